package convert

import (
	"fmt"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache/store/tests/storetest"

	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

// C9: what is ahead stays within its bytes: by the groups' word until one has landed, then by how the landed ones kept theirs; one alone always goes.
func TestRunway(t *testing.T) {
	r := newRunway(8, 100)
	state := func(step string, word int64, full bool) {
		t.Helper()
		if got := r.full(word); got != full {
			t.Fatalf("%s: full for %d: %v", step, word, got)
		}
	}
	state("empty", 1000, false)
	for range 3 {
		r.enter(30)
	}
	state("nothing landed: their word counts", 30, true)
	state("nothing landed: their word counts", 10, false)
	r.landed(30, 10)
	state("they say three times too much", 180, false) // 10 held, 240/3 to come
	state("they say three times too much", 181, false)
	state("they say three times too much", 214, true)
	r.landed(30, 60)
	state("one was twice as large as it said", 15, true) // 70 held, 2·30 under way
	r.leave(60)
	state("it is gone: 10 held, 2·30 under way", 15, false)
	state("it is gone: 10 held, 2·30 under way", 16, true)
	r.landed(30, 30)
	r.leave(30)
	r.leave(10)
	state("empty again", 1000, false)
	r.enter(1000)
	state("one beyond the limit is alone", 1, true)
	r.landed(1000, 1000)
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
		t.Error("a closed runway let one in")
	}
}

// Those that wait come in as others leave.
func TestRunwayWaits(t *testing.T) {
	r := newRunway(4, 100)
	sizes := make(chan int64, 4)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(sizes)
		for i := range int64(200) {
			size := 30 + i%3*100
			r.enter(size)
			r.landed(size, size)
			sizes <- size
		}
	})
	for size := range sizes {
		r.mu.Lock()
		if r.held > 100 && r.inside > 1 {
			t.Errorf("%d bytes in %d groups", r.held, r.inside)
		}
		r.mu.Unlock()
		r.leave(size)
	}
	wg.Wait()
}

// A group's word is no less than what its rows take, and not far more where they are numbers.
func TestWord(t *testing.T) {
	for _, images := range []bool{false, true} {
		src := newPanics("")
		src.lengths = []int{4, 20, 6, 3}
		if !images {
			src.lengths = []int{400, 500, 600, 300}
			src.info.Features = src.info.Features[:1]
		}
		c := newConversion(src, Options{Images: "images", Threads: 1})
		if err := c.plan(t.Context()); err != nil {
			t.Fatal(err)
		}
		dst := storetest.NewMem(fmt.Sprint("word-", images))
		cfg := write.Config{FPS: c.fps, Encoders: 1}
		for _, f := range c.features {
			cfg.Features = append(cfg.Features, f.Feature)
		}
		w, err := write.NewWriter(t.Context(), dst, cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.stand()
		for _, g := range [][]int{{0}, {1, 2}} {
			var size int64
			for _, turn := range c.prepare(t.Context(), w, g) {
				if turn.err != nil || turn.made != nil {
					t.Fatal(turn.err, turn.made)
				}
				size += turn.size()
			}
			if word := c.word(g); word < size || !images && word > 3*size {
				t.Errorf("images %v, %v: said %d bytes, takes %d", images, g, word, size)
			}
		}
		w.Abort()
	}
}
