package cpu

import "github.com/goatnote-inc/robocache/kernel"

// blockCols is how many columns of a wide row are made at a time: their numbers stay in the first
// cache.
const blockCols = 2048

// table holds a normalisation's two numbers for each column: x/255 is ((x-0)·1)/255 - 0, and where
// there is nothing to do it is (x-0)/1.
type table struct {
	a, b  []float32
	size  int  // columns of a block; 0 = no table
	whole bool // the table is as long as a row
	// columns that share an entry, where blocks end with them; 0 = all blocks have the same table
	plane    int
	channels int
}

// block is how many of the next n columns from c on go together, and where their numbers begin; -1
// = there are none.
func (t *table) block(c, n int) (cols, entry int) {
	switch {
	case t.size == 0:
		return n, -1
	case t.whole:
		return n, c
	case t.plane == 0:
		return min(n, t.size-c%t.size), c % t.size
	}
	return min(n, t.size, t.plane-c%t.plane), c / t.plane % t.channels * t.size
}

func (t *table) start(e *kernel.Epilogue, cols int) {
	plane, channels := max(e.Plane, 1), 1
	if e.Norm != nil {
		channels = max(len(e.Norm.A), 1)
	}
	period := plane * channels
	if e.Norm == nil {
		period = 1
	}
	*t = table{a: t.a, b: t.b}
	switch {
	case cols <= blockCols:
		t.size, t.whole = cols, true
	case period <= blockCols:
		t.size = blockCols / period * period
	case plane >= 64:
		t.size, t.plane, t.channels = min(plane, blockCols), plane, channels
	default:
		t.size, t.whole = cols, true
	}
	n := t.size
	if t.plane > 0 {
		n *= channels
	}
	t.a, t.b = resize(t.a, n), resize(t.b, n)
	for i := range n {
		k := i / plane % channels
		if t.plane > 0 {
			k = i / t.size
		}
		switch {
		case e.Norm != nil:
			t.a[i], t.b[i] = e.Norm.A[k], e.Norm.B[k]
		case e.Unit:
			t.a[i], t.b[i] = 0, 255
		default:
			t.a[i], t.b[i] = 0, 1
		}
	}
}
