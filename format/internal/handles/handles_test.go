package handles

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

type thing struct {
	key    int
	closed atomic.Int32
	open   *atomic.Int32
}

func (t *thing) Close() error {
	if t.closed.Add(1) > 1 {
		panic("closed twice")
	}
	t.open.Add(-1)
	return nil
}

func opener(n *atomic.Int32, key int) func() (*thing, error) {
	return func() (*thing, error) {
		n.Add(1)
		return &thing{key: key, open: n}, nil
	}
}

func get(t *testing.T, p *Pool[int, *thing], n *atomic.Int32, key int) *Handle[int, *thing] {
	t.Helper()
	h, err := p.Get(key, opener(n, key))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestInUseStaysOpen tests handles.H1 and handles.H2.
func TestInUseStaysOpen(t *testing.T) {
	var n atomic.Int32
	p := New[int, *thing](2, 1<<20)
	a := get(t, p, &n, 0)
	for k := 1; k < 10; k++ {
		p.Put(get(t, p, &n, k))
	}
	if a.Value.closed.Load() != 0 || n.Load() != 3 {
		t.Fatalf("in use: closed %d times; %d open, want 3", a.Value.closed.Load(), n.Load())
	}
	p.Put(a)
	if n.Load() != 2 {
		t.Fatalf("%d open, want 2", n.Load())
	}
	if h := get(t, p, &n, 9); h.Value.closed.Load() != 0 || n.Load() != 2 {
		t.Fatal("the last one was opened again")
	} else {
		p.Put(h)
	}
}

// TestBytes tests the byte limit of handles.H2. A value in use that alone exceeds the limit is
// closed when another one is opened.
func TestBytes(t *testing.T) {
	var n atomic.Int32
	p := New[int, *thing](100, 1000)
	for k := range 10 {
		h := get(t, p, &n, k)
		p.Grow(h, 300)
		p.Put(h)
	}
	if n.Load() != 3 {
		t.Fatalf("%d things of 300 bytes are open within 1000", n.Load())
	}
	p.Limit(500)
	if n.Load() != 1 {
		t.Fatalf("%d are open within 500", n.Load())
	}
}

// TestClose tests handles.H3, and an open that fails.
func TestClose(t *testing.T) {
	var n atomic.Int32
	p := New[int, *thing](4, 1)
	h := get(t, p, &n, 1)
	if err := p.Close(); err != nil || n.Load() != 1 {
		t.Fatalf("%v, %d open", err, n.Load())
	}
	p.Put(h)
	p.Put(get(t, p, &n, 2))
	if n.Load() != 0 {
		t.Fatalf("%d open after the end", n.Load())
	}
	bad := errors.New("bad")
	if _, err := p.Get(3, func() (*thing, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Fatal(err)
	}
}

// TestManyAtOnce checks that each value is closed once, and never while in use, in any order of
// calls.
func TestManyAtOnce(t *testing.T) {
	var n atomic.Int32
	p := New[int, *thing](3, 1000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 2000 {
				k := r.IntN(8)
				h, err := p.Get(k, opener(&n, k))
				if err != nil || h.Value.key != k || h.Value.closed.Load() != 0 {
					t.Error("a closed thing, or another's")
					return
				}
				p.Grow(h, int64(r.IntN(200)))
				if h.Value.closed.Load() != 0 {
					t.Error("closed in use")
				}
				p.Put(h)
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil || n.Load() != 0 {
		t.Fatalf("%v, %d open", err, n.Load())
	}
}
