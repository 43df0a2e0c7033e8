package cpu

import (
	"math"
	"math/bits"

	"github.com/goatnote-inc/robocache/kernel"
)

// writeSparse lists the occupied cells. With several threads, all buckets are first sorted and
// their cells counted, so that each bucket's first row is known.
func (v *voxelRun) writeSparse() {
	rows := sparseResult{op: v.op, capacity: v.op.Coords.Shape[0], rowBits: v.rowBits}
	rows.openResults()
	if v.threads == 1 {
		r := v.reducer.clone()
		found := 0
		for d := range v.buckets {
			found += rows.writeBucket(r, found, v.sortBucket(r, d))
		}
		v.found = int64(found)
		return
	}
	before := make([]int, v.buckets+1)
	v.spreadBuckets(func(r *reducer, d int) {
		before[d+1] = len(r.cellStarts(v.sortBucket(r, d))) - 1
	})
	for d := range v.buckets {
		before[d+1] += before[d]
	}
	v.found = int64(before[v.buckets])
	v.spreadBuckets(func(r *reducer, d int) {
		rows.writeBucket(r, before[d], v.keys[v.first[d]:v.first[d+1]])
	})
}

// cellStarts returns the index of each cell's first key, and the number of keys at the end.
func (r *reducer) cellStarts(keys []uint64) []uint32 {
	starts := growScratch(&r.starts, len(keys)+1)
	r.starts = starts
	m := 0
	last := ^uint64(0)
	rowBits := r.rowBits
	for i, k := range keys {
		f := k >> (rowBits & 63)
		// starts[m] is written for every key and kept if a cell starts there. A branch would often
		// be predicted wrongly.
		starts[m] = uint32(i)
		if f != last {
			m++
		}
		last = f
	}
	starts[m] = uint32(len(keys))
	return starts[:m+1]
}

// sparseResult is the result of the sparse layout.
type sparseResult struct {
	op         *kernel.VoxelOp
	capacity   int
	rowBits    int
	gx, gy, gz divisor
	coords     []uint64 // two int32 values in each number
	counts     []uint32 // nil if not requested
	rows       []float32
}

// openResults prepares the slices of the results and the divisors of the grid.
func (l *sparseResult) openResults() {
	l.gx, l.gy, l.gz = newDivisor(l.op.Grid[0]), newDivisor(l.op.Grid[1]), newDivisor(l.op.Grid[2])
	l.coords = castSlice[uint64](resultBytes(l.op.Coords))
	if l.op.Counts != nil {
		l.counts = castSlice[uint32](resultBytes(l.op.Counts))
	}
	if l.op.Rows != nil {
		l.rows = castSlice[float32](resultBytes(l.op.Rows))
	}
}

// writeBucket writes the rows of one bucket, starting at row at. It returns the number of cells in
// the bucket.
func (l *sparseResult) writeBucket(r *reducer, at int, keys []uint64) int {
	starts := r.cellStarts(keys)
	found := len(starts) - 1
	n := min(found, l.capacity-at)
	if n <= 0 {
		return found
	}
	starts = starts[:n+1]
	l.writeCoords(l.coords[2*at:2*(at+n)], keys, starts[:n])
	if l.counts != nil {
		for i, s := range starts[:n] {
			l.counts[at+i] = starts[i+1] - s
		}
	}
	if l.op.Rows != nil && r.width > 0 {
		l.featureRows(r, at, keys, starts)
	}
	return found
}

// featureRows computes the features of consecutive result rows, the first of which is row at.
// starts has the first key of each cell, and the number of keys at the end.
func (l *sparseResult) featureRows(r *reducer, at int, keys []uint64, starts []uint32) {
	n := len(starts) - 1
	w := r.width
	out := l.rows[at*w : (at+n)*w]
	r.left = 0
	for i := range n {
		if r.left == 0 { // all gathered keys are reduced
			r.gatherCells(keys[starts[i]:])
		}
		r.reduceCell(out[i*w:(i+1)*w], keys[starts[i]:starts[i+1]])
	}
}

// writeCoords writes the coordinates of cells to out. starts has the first key of each cell. The
// next cell is usually in the same grid line; then only z differs, and no division is needed.
func (l *sparseResult) writeCoords(out []uint64, keys []uint64, starts []uint32) {
	var bx, yz uint64
	flat := uint64(0)
	y := uint64(0)
	rowBits := l.rowBits
	z := l.gz.d // as if a line has just ended
	for _, s := range starts {
		f := keys[s] >> (rowBits & 63)
		z += f - flat // correct while it is inside the line
		flat = f
		if z >= l.gz.d {
			bx, yz = l.cellCoords(f)
			z = yz >> 32
			y = yz & math.MaxUint32
		}
		o := out[:2]
		o[0] = bx
		o[1] = y | z<<32
		out = out[2:]
	}
}

// cellCoords splits a flat index into entry and x (bx), and y and z (yz). The first number of each
// pair is in the low 32 bits. Indices below 2^32 use fast divisions.
func (l *sparseResult) cellCoords(flat uint64) (bx, yz uint64) {
	if flat < 1<<32 {
		z := l.gz.quotient(flat)
		y := l.gy.quotient(z)
		x := l.gx.quotient(y)
		return x | (y-x*l.gx.d)<<32, z - y*l.gy.d | (flat-z*l.gz.d)<<32
	}
	z := flat / l.gz.d
	y := z / l.gy.d
	x := y / l.gx.d
	return x | (y-x*l.gx.d)<<32, z - y*l.gy.d | (flat-z*l.gz.d)<<32
}

// divisor divides numbers below 2^32 by a multiplication. If n and d have 32 bits, the high half of
// n·(2^64/d + 1) is n/d (Lemire, Kaser, Kurz 2019).
type divisor struct{ d, m uint64 }

// newDivisor returns the divisor d, which must be at least 1 and below 2^32.
func newDivisor(d int) divisor { return divisor{uint64(d), ^uint64(0)/uint64(d) + 1} }

// quotient returns n/d. n must be below 2^32.
func (d divisor) quotient(n uint64) uint64 {
	if d.m == 0 { // d is 1
		return n
	}
	q, _ := bits.Mul64(d.m, n)
	return q
}
