package write

import (
	"fmt"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/synth"
)

// write.C9: episodes read ahead stay within the limit of bytes. Groups count with their estimates
// until one is finished, and then with corrected estimates. A single group is always admitted.
func TestLimiter(t *testing.T) {
	r := newLimiter(8, 100)
	state := func(step string, estimate int64, full bool) {
		t.Helper()
		if got := r.isFull(estimate); got != full {
			t.Fatalf("%s: full for %d: %v", step, estimate, got)
		}
	}
	state("empty", 1000, false)
	for range 3 {
		r.enter(30)
	}
	state("nothing landed: their estimate counts", 30, true)
	state("nothing landed: their estimate counts", 10, false)
	r.replaceEstimate(30, 10)
	state("they say three times too much", 180, false) // 10 held, 240/3 expected
	state("they say three times too much", 181, false)
	state("they say three times too much", 214, true)
	r.replaceEstimate(30, 60)
	state("one was twice as large as it said", 15, true) // 70 held, 2·30 in progress
	r.leave(60)
	state("it is gone: 10 held, 2·30 under way", 15, false)
	state("it is gone: 10 held, 2·30 under way", 16, true)
	r.replaceEstimate(30, 30)
	r.leave(30)
	r.leave(10)
	state("empty again", 1000, false)
	r.enter(1000)
	state("one beyond the limit is alone", 1, true)
	r.replaceEstimate(1000, 1000)
	state("one beyond the limit is alone", 1, true)
	r.leave(1000)
	for range 8 {
		r.enter(0)
	}
	state("no place", 0, true)
	done := make(chan bool)
	go func() { done <- r.enter(0) }()
	r.close()
	if <-done {
		t.Error("a closed limiter let one in")
	}
}

// Waiting groups are admitted as others leave.
func TestLimiterWaits(t *testing.T) {
	r := newLimiter(4, 100)
	sizes := make(chan int64, 4)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(sizes)
		for i := range int64(200) {
			size := 30 + i%3*100
			r.enter(size)
			r.replaceEstimate(size, size)
			sizes <- size
		}
	})
	for size := range sizes {
		r.mu.Lock()
		if r.heldBytes > 100 && r.inside > 1 {
			t.Errorf("%d bytes in %d groups", r.heldBytes, r.inside)
		}
		r.mu.Unlock()
		r.leave(size)
	}
	wg.Wait()
}

// The estimate of a group is at least the memory of its rows, and not much more if they are
// numbers.
func TestEstimate(t *testing.T) {
	for _, images := range []bool{false, true} {
		set := synth.Options{Episodes: 4, Seconds: 12, Spread: 0.5, Cameras: -1}
		if images {
			set = synth.Options{
				Episodes: 4,
				Seconds:  0.3,
				Spread:   0.9,
				Cameras:  1,
				Width:    96,
				Height:   64,
				Codec:    "raw",
			}
		}
		src, err := synth.New(set)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newConversion(
			t.Context(),
			src,
			robocache.WriteOptions{Options: map[string]string{"images": "images"}, Threads: 1},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		dst := storetest.NewMem(fmt.Sprint("estimate-", images))
		cfg := Config{FPS: c.fps, Encoders: 1}
		for _, f := range c.features {
			cfg.Features = append(cfg.Features, f.Feature)
		}
		w, err := NewWriter(t.Context(), dst, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range [][]int{{0}, {1, 2}} {
			var size int64
			for _, turn := range c.prepareGroup(t.Context(), w, g) {
				if turn.readError != nil || turn.encodeError != nil {
					t.Fatal(turn.readError, turn.encodeError)
				}
				size += turn.size()
			}
			if estimate := c.estimateBytes(g); estimate < size || !images && estimate > 3*size {
				t.Errorf("images %v, %v: said %d bytes, takes %d", images, g, estimate, size)
			}
		}
		w.Abort()
	}
}
