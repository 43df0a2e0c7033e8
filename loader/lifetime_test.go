package loader

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// loader.L9: a batch that is held is never overwritten; released ones are used again.
func TestHeldBatchesStay(t *testing.T) {
	f := newFake(lengthsFor(2, 6, 20, 40)...)
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 8, Shuffle: Global},
			Runtime: options.Runtime{Threads: 4},
			Windows: options.Windows{Keys: []string{"cam", "observation.state"}},
		},
	)
	var held []*layout.Batch
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(held)%2 == 0 {
			held = append(held, b)
		} else {
			held = append(held, nil)
			b.Release()
			b.Release() // a second one does nothing
		}
	}
	for _, b := range held {
		if b != nil {
			checkBatch(t, f, l.config, b)
		}
	}
	l.Close()
	for _, b := range held {
		if b != nil {
			checkBatch(t, f, l.config, b)
			b.Release()
		}
	}
	if n := l.assembler.Buffers.InUse.Load(); n != 0 {
		t.Errorf("%d bytes in use after all were released", n)
	}
}

// loader.L10: the horizon shrinks to the budget; what cannot fit is refused by name.
func TestBudget(t *testing.T) {
	f := newFake(lengthsFor(2, 6, 20, 40)...)
	cfg := options.Config{
		Order:   options.Order{BatchSize: 8, Shuffle: Global},
		Runtime: options.Runtime{Threads: 4, Prefetch: 8},
		Windows: options.Windows{Keys: []string{"cam"}},
	}
	one := mustLoader(t, f, cfg).Stats().BatchBytes
	for _, batches := range []int64{1, 2, 3, 5} {
		cfg.MemoryBudget = Bytes((one*batches + 100) * 8 / 5)
		l := mustLoader(t, f, cfg)
		var peak int64
		for {
			b, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			peak = max(peak, l.Stats().BufferPeak)
			b.Release()
		}
		if peak > one*(batches+1) { // one more is in the user's hands
			t.Errorf("budget of %d batches: peak %d bytes, a batch has %d", batches, peak, one)
		}
	}
	cfg.MemoryBudget = Bytes(one)
	if _, err := New(bg, f, cfg); !errors.Is(err, robocache.ErrResourceLimit) ||
		!strings.Contains(err.Error(), "memory_budget") {
		t.Errorf("a batch above the budget: %v", err)
	}
}

// loader.L11: cancel and close at any moment; nothing is left running.
func TestCancelAndClose(t *testing.T) {
	before := runtime.NumGoroutine()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 25 {
		f := newFake(lengthsFor(7, 6, 20, 40)...)
		f.slow = time.Duration(rng.IntN(300)) * time.Microsecond
		l, err := New(
			bg,
			f,
			options.Config{
				Order:   options.Order{BatchSize: 8, Shuffle: Global},
				Runtime: options.Runtime{Threads: 3},
				Windows: options.Windows{Keys: []string{"cam"}},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(5000))*time.Microsecond)
		done := make(chan error)
		go func() {
			for {
				b, err := l.Next(ctx)
				if err != nil {
					done <- err
					return
				}
				b.Release()
			}
		}()
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
			l.Close()
		}
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, robocache.ErrMisuse) &&
				err != io.EOF {
				t.Errorf("Next ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Next hangs")
		}
		cancel()
		l.Close()
		if n := l.assembler.Buffers.InUse.Load(); n != 0 {
			t.Fatalf("%d bytes not given back", n)
		}
		if f.opened.Load() != 0 {
			t.Fatal("a file was not given back")
		}
	}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// loader.L11: a cancelled Next loses nothing: the next one gives the batch.
func TestCancelledNextKeepsItsBatch(t *testing.T) { synctest.Test(t, cancelledNextKeepsItsBatch) }

func cancelledNextKeepsItsBatch(t *testing.T) {
	f := newFake(40)
	f.slow = 2 * time.Millisecond
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 8, Shuffle: Global},
			Runtime: options.Runtime{Threads: 2},
			Windows: options.Windows{Keys: []string{"cam", "index"}},
		},
	)
	var got []int64
	for len(got) < 40 {
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		b, err := l.Next(ctx)
		cancel()
		if err == nil {
			got = append(got, b.Indices...)
			b.Release()
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	want := make([]int64, 40)
	l.Order(0).Fill(want, 0)
	if !slices.Equal(got, want) {
		t.Error("samples were lost or repeated")
	}
}

// loader.L15: a batch of 512 costs as many allocations as one of 16.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector makes sync.Pool forget at random: counted without it")
	}
	perBatch := func(size int) float64 {
		f := newFake(lengthsFor(1, 40, 200, 300)...)
		l := mustLoader(
			t,
			f,
			options.Config{
				Order:   options.Order{BatchSize: size, Shuffle: Global},
				Runtime: options.Runtime{Threads: 2},
				Windows: options.Windows{
					Keys:   []string{"observation.state", "action", "count"},
					Compat: "lerobot",
					Deltas: deltas("action", []float64{0, 0.1, 0.2}),
				},
			},
		)
		take := func(n int) {
			for range n {
				b, err := l.Next(bg)
				if err == io.EOF {
					b, err = l.Next(bg)
				}
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
		}
		take(4)
		least := math.Inf(1)
		for range 3 { // a collection of garbage empties pools, and others allocate too
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			take(12)
			runtime.ReadMemStats(&after)
			least = min(least, float64(after.Mallocs-before.Mallocs)/12)
		}
		return least
	}
	small, large := perBatch(16), perBatch(512)
	t.Logf("allocations a batch: %.0f of 16 samples, %.0f of 512", small, large)
	if large > small+24 {
		t.Errorf("%.0f allocations more for 496 samples more", large-small)
	}
}

// loader.L11: a stage without progress is an error, and the batch comes once the stage moves again.
func TestDeadline(t *testing.T) { synctest.Test(t, deadline) }

func deadline(t *testing.T) {
	f := newFake(10)
	f.gate = make(chan struct{})
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4},
			Runtime: options.Runtime{Deadline: 0.05},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	_, err := l.Next(bg)
	if !errors.Is(err, robocache.ErrTemporary) || !strings.Contains(err.Error(), "4 more") {
		t.Fatalf("nothing moves, and Next gives %v", err)
	}
	close(f.gate)
	b, err := l.Next(bg)
	if err != nil || b.Position != 0 {
		t.Fatal(err)
	}
	b.Release()
}

// loader.L11: a Next that waits for another Next ends with its own context.
func TestSecondNextEndsWithItsContext(
	t *testing.T,
) {
	synctest.Test(t, secondNextEndsWithItsContext)
}

func secondNextEndsWithItsContext(t *testing.T) {
	f := newFake(10)
	f.gate = make(chan struct{})
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 4},
			Runtime: options.Runtime{Threads: 1},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	first := make(chan error, 1)
	go func() {
		b, err := l.Next(bg)
		if err == nil {
			b.Release()
		}
		first <- err
	}()
	synctest.Wait() // it waits
	ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		_, err := l.Next(ctx)
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("a Next behind another does not see that its context has ended")
	}
	close(f.gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestFewFilesAreOpenAtOnce checks that a file is decoded and released before the next is opened: a
// batch may need more files than a process may open.
func TestFewFilesAreOpenAtOnce(t *testing.T) {
	f := newFake(lengthsFor(1, 300, 3, 6)...)
	f.perFile = 1
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 128, Shuffle: Global},
			Runtime: options.Runtime{Threads: 2, Prefetch: 1},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	epochOf(t, f, l)
	if n := f.mostOpen.Load(); n > 8 {
		t.Errorf("%d files open at once for 2 threads", n)
	}
}

// TestAbsurdBatch checks that sizes beyond any memory are rejected by the budget, regardless of
// overflows.
func TestAbsurdBatch(t *testing.T) {
	f := newFake(10)
	_, err := New(
		bg,
		f,
		options.Config{
			Order:  options.Order{BatchSize: 1 << 24},
			Images: options.Images{ImageSize: []int{1 << 15, 1 << 15}, ImageDType: "float32"},
			Windows: options.Windows{
				Keys:   []string{"cam"},
				Deltas: deltas("cam", make([]float64, 1<<10)),
			},
		},
	)
	if !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("%v", err)
	}
}
