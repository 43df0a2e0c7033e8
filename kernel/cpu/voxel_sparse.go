package cpu

import (
	"encoding/binary"
	"math"

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
	op       *kernel.VoxelOp
	capacity int64
	rowBits  int
	coords   []int32   // in C order, or nil
	rows     []float32 // in C order, or nil
}

func (l *lists) open() {
	if t := l.op.Coords; contiguous(t) && t.Len() > 0 {
		l.coords = elements[int32](t.Data[4*t.Base : 4*(t.Base+t.Len())])
	}
	if t := l.op.Rows; t != nil && contiguous(t) && t.Len() > 0 {
		l.rows = elements[float32](t.Data[4*t.Base : 4*(t.Base+t.Len())])
	}
}

// write makes the rows of one bucket, from row at on.
func (l *lists) write(r *reducer, at int64, keys []uint64) {
	op := l.op
	gx, gy, gz := uint64(op.Grid[0]), uint64(op.Grid[1]), uint64(op.Grid[2])
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
		var c [4]int32
		if flat < 1<<32 { // half the time of a division of 64 bits
			f := uint32(flat)
			q := f / uint32(gz)
			c[3] = int32(f - q*uint32(gz))
			f, q = q, q/uint32(gy)
			c[2] = int32(f - q*uint32(gy))
			f, q = q, q/uint32(gx)
			c[1], c[0] = int32(f-q*uint32(gx)), int32(q)
		} else {
			q := flat / gz
			c[3] = int32(flat - q*gz)
			q, f := q/gy, q
			c[2] = int32(f - q*gy)
			q, f = q/gx, q
			c[1], c[0] = int32(f-q*gx), int32(q)
		}
		if l.coords != nil {
			copy(l.coords[4*at:4*at+4], c[:])
		} else {
			for j, x := range c {
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

func put32(t *kernel.Tensor, i, j int, bits uint32) {
	binary.LittleEndian.PutUint32(t.Data[4*(t.Base+i*t.Step(0)+j*t.Step(1)):], bits)
}
