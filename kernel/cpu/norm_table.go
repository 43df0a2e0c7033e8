package cpu

import "github.com/goatnote-inc/robocache/kernel"

// blockCols is the number of columns of a wide row that are computed at a time. Their table entries
// stay in the first-level cache.
const blockCols = 2048

// normTable holds the two numbers of a normalization for each column, as kernel.Norm has them for
// each channel. An operation without a Norm uses the table too: x/255 is (x-a)/b with a = 0 and b =
// 255, and the identity is that with b = 1.
type normTable struct {
	a, b  []float32
	size  int  // number of columns of a block; 0 = no table
	whole bool // the table is as long as a row
	// plane is the number of columns of a channel, if each channel has its own block of the table.
	// It is 0 if all blocks of columns use the same table.
	plane    int
	channels int
}

// columnBlock returns how many of the n columns from c on form one block, and the index of their
// first table entry. The index is -1 if there is no table.
func (t *normTable) columnBlock(c, n int) (cols, entry int) {
	switch {
	case t.size == 0:
		return n, -1
	case t.whole:
		return n, c
	case t.plane == 0:
		inBlock := c % t.size
		return min(n, t.size-inBlock), inBlock
	}
	// All columns of a channel have equal entries, so a block may start at the channel's first
	// entry.
	channel := c / t.plane % t.channels
	leftInPlane := t.plane - c%t.plane
	return min(n, t.size, leftInPlane), channel * t.size
}

// fillTable chooses the size of the table for rows of cols columns and fills it. A short row has a
// table of its own length. A longer row uses a shorter table several times, if its channels allow
// it.
func (t *normTable) fillTable(e *kernel.Epilogue, cols int) {
	plane := max(e.Plane, 1)
	channels := 1
	if e.Norm != nil {
		channels = max(len(e.Norm.A), 1)
	}
	period := plane * channels // number of columns after which the entries repeat
	if e.Norm == nil {
		period = 1
	}
	*t = normTable{a: t.a, b: t.b}
	switch {
	case cols <= blockCols: // one entry for each column
		t.size, t.whole = cols, true
	case period <= blockCols: // whole periods, which repeat along the row
		t.size = blockCols / period * period
	case plane >= 64: // a block for each channel, because a plane has one channel only
		t.size = min(plane, blockCols)
		t.plane = plane
		t.channels = channels
	default: // one entry for each column of a long row
		t.size, t.whole = cols, true
	}
	n := t.size
	if t.plane > 0 {
		n *= channels
	}
	t.a, t.b = resizeSlice(t.a, n), resizeSlice(t.b, n)
	for i := range n {
		k := i / plane % channels // channel of entry i
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
