package cpu

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/goatnote-inc/robocache/kernel"
)

// sparse lists the occupied cells. Buckets are sorted and counted first, so that each knows where its rows begin.
func (v *voxels) sparse() {
	before := make([]int64, v.buckets+1)
	v.share(func(r *reducer, d int) {
		n := int64(0)
		last := ^uint64(0)
		for _, k := range v.sorted(r, d) {
			if f := k >> v.rowBits; f != last {
				last = f
				n++
			}
		}
		before[d+1] = n
	})
	for d := range v.buckets {
		before[d+1] += before[d]
	}
	v.found = before[v.buckets]
	rows := lists{op: v.op, capacity: int64(v.op.Coords.Shape[0]), rowBits: v.rowBits}
	rows.open()
	v.share(func(r *reducer, d int) {
		if before[d] < rows.capacity {
			rows.write(r, before[d], v.keys[v.first[d]:v.first[d+1]])
		}
	})
}

// lists are the results of the sparse layout.
type lists struct {
	op         *kernel.VoxelOp
	capacity   int64
	rowBits    int
	gx, gy, gz divisor
	coords     []uint64  // in C order, pairs as one number; or nil
	rows       []float32 // in C order, or nil
}

func (l *lists) open() {
	l.gx, l.gy, l.gz = divide(l.op.Grid[0]), divide(l.op.Grid[1]), divide(l.op.Grid[2])
	if t := l.op.Coords; contiguous(t) && t.Len() > 0 {
		l.coords = elements[uint64](t.Data[4*t.Base : 4*(t.Base+t.Len())])
	}
	if t := l.op.Rows; t != nil && contiguous(t) && t.Len() > 0 {
		l.rows = elements[float32](t.Data[4*t.Base : 4*(t.Base+t.Len())])
	}
}

// write makes the rows of one bucket, from row at on.
func (l *lists) write(r *reducer, at int64, keys []uint64) {
	op := l.op
	var row []float32
	if op.Rows != nil {
		row = make([]float32, op.Rows.Shape[1])
	}
	r.left = 0
	for ; len(keys) > 0 && at < l.capacity; at++ {
		if r.left == 0 {
			r.begin(keys)
		}
		flat := keys[0] >> l.rowBits
		n := run(keys, l.rowBits)
		bx, yz := l.cell(flat)
		if l.coords != nil {
			l.coords[2*at], l.coords[2*at+1] = bx, yz
		} else {
			for j, x := range [4]uint64{bx, bx >> 32, yz, yz >> 32} {
				put32(op.Coords, int(at), j, uint32(x))
			}
		}
		if t := op.Counts; t != nil {
			binary.LittleEndian.PutUint32(t.Data[4*(t.Base+int(at)*t.Step(0)):], uint32(n))
		}
		switch {
		case l.rows != nil:
			w := int64(len(row))
			r.reduce(l.rows[at*w:(at+1)*w], keys[:n])
		default:
			r.reduce(row, keys[:n])
			for j, x := range row {
				put32(op.Rows, int(at), j, math.Float32bits(x))
			}
		}
		keys = keys[n:]
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

// divisor divides numbers below 2^32 by a product: the high half of n·(2^64/d + 1) is n/d where both have 32 bits (Lemire, Kaser, Kurz 2019).
type divisor struct{ d, m uint64 }

func divide(d int) divisor { return divisor{uint64(d), ^uint64(0)/uint64(d) + 1} }

func (d divisor) by(n uint64) uint64 {
	if d.m == 0 { // by 1
		return n
	}
	q, _ := bits.Mul64(d.m, n)
	return q
}

func put32(t *kernel.Tensor, i, j int, bits uint32) {
	binary.LittleEndian.PutUint32(t.Data[4*(t.Base+i*t.Step(0)+j*t.Step(1)):], bits)
}
