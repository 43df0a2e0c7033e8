package lru

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCache(t *testing.T) {
	ctx := context.Background()
	c := New[int, int](100)
	var loads atomic.Int32
	get := func(k int, size int64) int {
		v, err := c.Get(
			ctx,
			k,
			func() (int, int64, error) { loads.Add(1); return k * k, size, nil },
		)
		if err != nil || v != k*k {
			t.Fatal(v, err)
		}
		return v
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() { defer wg.Done(); get(3, 40) }()
	}
	wg.Wait()
	if loads.Load() != 1 {
		t.Errorf("lru.C1: loaded %d times", loads.Load())
	}
	get(4, 40)
	get(3, 40)
	get(5, 40) // evicts 4
	if _, ok := c.Peek(4); ok {
		t.Error("lru.C3: the least recently used is still there")
	}
	if _, ok := c.Peek(3); !ok {
		t.Error("lru.C3: the most recently used is gone")
	}
	get(6, 101)
	if _, ok := c.Peek(6); ok || c.Stats().Bytes != 80 {
		t.Error("lru.C3: a value above the budget was kept")
	}
	boom := errors.New("boom")
	if _, err := c.Get(ctx, 7, func() (int, int64, error) { return 0, 0, boom }); err != boom {
		t.Error(err)
	}
	get(7, 1)
	c.Put(7, 1, 1)
	get(7, 1) // Put does not replace
	c.Clear()
	if s := c.Stats(); s.Bytes != 0 || s.Peak > 100 {
		t.Errorf("%+v", s)
	}
}

// TestGone checks that each removed value is reported exactly once, and no cached value is
// (lru.C2).
func TestGone(t *testing.T) {
	c := New[int, int](100)
	heard := map[int]int{}
	c.Gone(func(v int) { heard[v]++ })
	for k := range 6 {
		c.Put(k, k, 25) // 0 and 1 are evicted
	}
	c.Put(6, 6, 101) // above the budget
	c.Drop(2)
	c.Forget(func(k int) bool { return k == 3 })
	c.Limit(30) // evicts 4
	if want := map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 6: 1}; !maps.Equal(heard, want) {
		t.Errorf("heard of %v, wanted %v", heard, want)
	}
}

// TestCancelled checks lru.C4.
func TestCancelled(t *testing.T) {
	c := New[int, int](100)
	begun, release := make(chan struct{}), make(chan struct{})
	go c.Get(context.Background(), 1, func() (int, int64, error) {
		close(begun)
		<-release
		return 0, 0, context.Canceled
	})
	<-begun
	done := make(chan error)
	go func() {
		v, err := c.Get(context.Background(), 1, func() (int, int64, error) { return 5, 1, nil })
		if v != 5 {
			err = errors.New("not loaded again")
		}
		done <- err
	}()
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestForget checks that a forgotten value is loaded again and its bytes are free, and that other
// values stay.
func TestForget(t *testing.T) {
	c := New[int, int](100)
	for k := range 4 {
		c.Put(k, k, 20)
	}
	c.Forget(func(k int) bool { return k%2 == 0 })
	_, even := c.Peek(2)
	_, odd := c.Peek(3)
	if s := c.Stats(); even || !odd || s.Bytes != 40 {
		t.Errorf("%v %v %+v", even, odd, s)
	}
	c.Clear()
	if s := c.Stats(); s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTogether checks lru.C1 to lru.C3 with many goroutines. Values are correct, the budget holds,
// and a value in constant use stays cached.
func TestTogether(t *testing.T) {
	c := New[int, int](1000)
	var hot atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				for _, k := range []int{-1, (i*7 + g*13) % 300} {
					v, err := c.Get(t.Context(), k, func() (int, int64, error) {
						if k == -1 {
							hot.Add(1)
						}
						return 3 * k, 10, nil
					})
					if err != nil || v != 3*k {
						t.Error(k, v, err)
					}
				}
				if i%500 == 0 {
					c.Forget(func(k int) bool { return k >= 0 && k%2 == 0 })
				}
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.Peak > 1000 || s.Bytes > 1000 || s.Evictions == 0 {
		t.Errorf("%+v", s)
	}
	if hot.Load() != 1 {
		t.Errorf("lru.C3: what is used all the time was loaded %d times", hot.Load())
	}
}

// BenchmarkHits measures lru.C5.
func BenchmarkHits(b *testing.B) {
	c := New[[2]int, int](100)
	ctx := b.Context()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = c.Get(ctx, [2]int{1, 2}, func() (int, int64, error) { return 1, 1, nil })
		}
	})
}
