package buffers

import "testing"

// loader.L10: idle buffers of other sizes are evicted, so that used and idle buffers together stay
// below the limit. Only buffers in use may exceed it.
func TestBuffersStayBelowTheirLimit(t *testing.T) {
	const limit = 1 << 20
	p := New(limit, nil)
	defer p.Close()
	total := func() int64 { return p.idleBytes + p.InUse.Load() }
	for _, n := range []int{100, 5000, 70_000, 300_000, 600_000, 900_000, 100, 400_000} {
		b, err := p.Get(n)
		if err != nil {
			t.Fatal(err)
		}
		if total() > limit {
			t.Errorf("%d bytes with one of %d in use", total(), n)
		}
		b.Unref()
		if total() > limit {
			t.Errorf("%d bytes after one of %d was released", total(), n)
		}
	}
	var held []*Buffer
	for range 3 {
		b, err := p.Get(600_000)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	for _, b := range held {
		b.Unref()
	}
	if total() > limit || p.InUse.Load() != 0 {
		t.Errorf("%d bytes idle, %d in use", p.idleBytes, p.InUse.Load())
	}
}
