package cpu

import (
	"math"
	"math/bits"

	"github.com/goatnote-inc/robocache/kernel"
)

// sparse lists the occupied cells. Over several threads, buckets are sorted and their cells counted
// first, so that each knows where its rows begin.
func (v *voxels) sparse() {
	rows := lists{op: v.op, capacity: v.op.Coords.Shape[0], rowBits: v.rowBits}
	rows.open()
	if v.threads == 1 {
		r := v.reducer.clone()
		found := 0
		for d := range v.buckets {
			found += rows.write(r, found, v.sorted(r, d))
		}
		v.found = int64(found)
		return
	}
	before := make([]int, v.buckets+1)
	v.share(func(r *reducer, d int) {
		before[d+1] = len(r.split(v.sorted(r, d))) - 1
	})
	for d := range v.buckets {
		before[d+1] += before[d]
	}
	v.found = int64(before[v.buckets])
	v.share(func(r *reducer, d int) {
		rows.write(r, before[d], v.keys[v.first[d]:v.first[d+1]])
	})
}

// split says where each cell's keys begin, and at last where they end.
func (r *reducer) split(keys []uint64) []uint32 {
	starts := grow(&r.starts, len(keys)+1)
	r.starts = starts
	m, last, rowBits := 0, ^uint64(0), r.rowBits
	for i, k := range keys {
		f := k >> (rowBits & 63)
		// Written each time and kept where a cell begins: a branch would be guessed wrong too
		// often.
		starts[m] = uint32(i)
		if f != last {
			m++
		}
		last = f
	}
	starts[m] = uint32(len(keys))
	return starts[:m+1]
}

// lists are the results of the sparse layout.
type lists struct {
	op         *kernel.VoxelOp
	capacity   int
	rowBits    int
	gx, gy, gz divisor
	coords     []uint64 // pairs as one number
	counts     []uint32 // or nil
	rows       []float32
}

func (l *lists) open() {
	l.gx, l.gy, l.gz = divide(l.op.Grid[0]), divide(l.op.Grid[1]), divide(l.op.Grid[2])
	l.coords = elements[uint64](memory(l.op.Coords))
	if l.op.Counts != nil {
		l.counts = elements[uint32](memory(l.op.Counts))
	}
	if l.op.Rows != nil {
		l.rows = elements[float32](memory(l.op.Rows))
	}
}

// write makes the rows of one bucket, from row at on, and says how many cells it has.
func (l *lists) write(r *reducer, at int, keys []uint64) int {
	starts := r.split(keys)
	found := len(starts) - 1
	n := min(found, l.capacity-at)
	if n <= 0 {
		return found
	}
	starts = starts[:n+1]
	l.cells(l.coords[2*at:2*(at+n)], keys, starts[:n])
	if l.counts != nil {
		for i, s := range starts[:n] {
			l.counts[at+i] = starts[i+1] - s
		}
	}
	if l.op.Rows != nil && r.width > 0 {
		l.features(r, at, keys, starts)
	}
	return found
}

// features makes rows from row at on.
func (l *lists) features(r *reducer, at int, keys []uint64, starts []uint32) {
	n, w := len(starts)-1, r.width
	out := l.rows[at*w : (at+n)*w]
	r.left = 0
	for i := range n {
		if r.left == 0 {
			r.begin(keys[starts[i]:])
		}
		r.reduce(out[i*w:(i+1)*w], keys[starts[i]:starts[i+1]])
	}
}

// cells writes coordinates. The next cell lies mostly in the same line of the grid, where z alone
// is another.
func (l *lists) cells(out []uint64, keys []uint64, starts []uint32) {
	var bx, yz uint64
	flat, y, rowBits := uint64(0), uint64(0), l.rowBits
	z := l.gz.d // as if a line had ended
	for _, s := range starts {
		f := keys[s] >> (rowBits & 63)
		z += f - flat
		flat = f
		if z >= l.gz.d {
			bx, yz = l.cell(f)
			z = yz >> 32
			y = yz & math.MaxUint32
		}
		o := out[:2]
		o[0], o[1] = bx, y|z<<32
		out = out[2:]
	}
}

// cell takes a flat index apart: entry and x, y and z.
func (l *lists) cell(flat uint64) (bx, yz uint64) {
	if flat < 1<<32 {
		z := l.gz.by(flat)
		y := l.gy.by(z)
		x := l.gx.by(y)
		return x | (y-x*l.gx.d)<<32, z - y*l.gy.d | (flat-z*l.gz.d)<<32
	}
	z := flat / l.gz.d
	y := z / l.gy.d
	x := y / l.gx.d
	return x | (y-x*l.gx.d)<<32, z - y*l.gy.d | (flat-z*l.gz.d)<<32
}

// divisor divides numbers below 2^32 by a product: the high half of n·(2^64/d + 1) is n/d where
// both have 32 bits (Lemire, Kaser, Kurz 2019).
type divisor struct{ d, m uint64 }

func divide(d int) divisor { return divisor{uint64(d), ^uint64(0)/uint64(d) + 1} }

func (d divisor) by(n uint64) uint64 {
	if d.m == 0 { // by 1
		return n
	}
	q, _ := bits.Mul64(d.m, n)
	return q
}
