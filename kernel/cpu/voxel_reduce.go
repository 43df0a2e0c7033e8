package cpu

import (
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// reducer makes a cell's row of the features of its points. Each thread has its own.
type reducer struct {
	mode          kernel.VoxelMode
	data          []byte
	dtype         robocache.DType
	base          int
	entry, row, c int       // strides, in elements
	f32           []float32 // the same memory, where a row is neighbours of this type
	mask          uint64    // of a key's row
	digits        *[1 << widest]uint32
}

// open says whether the op's features can be read here.
func (r *reducer) open(op *kernel.VoxelOp, width int) bool {
	r.mode = op.Mode
	if !op.Mode.Featured() {
		return true
	}
	t := op.Features
	rank := len(t.Shape)
	r.data, r.dtype, r.base = t.Data, t.DType, t.Base
	r.row, r.c = t.Step(rank-2), t.Step(rank-1)
	if rank == 3 {
		r.entry = t.Step(0)
	}
	if t.DType == robocache.Float32 && (r.c == 1 || width == 1) {
		r.f32 = elements[float32](t.Data)
	}
	return true
}

// clone is a reducer with memory of its own.
func (r *reducer) clone() *reducer {
	c := *r
	c.digits = new([1 << widest]uint32)
	return &c
}

// reduce fills dst from the points that the keys name, which are in order.
func (r *reducer) reduce(dst []float32, entry int, keys []uint64) {
	base := r.base + entry*r.entry
	switch {
	case len(dst) == 0:
	case r.f32 == nil:
		r.any(dst, base, keys)
	case r.mode == kernel.FirstPoint:
		at := base + int(keys[0]&r.mask)*r.row
		copy(dst, r.f32[at:at+len(dst)])
	case len(keys) == 1 && (r.mode == kernel.Sum || r.mode == kernel.Average):
		at := base + int(keys[0]&r.mask)*r.row
		for c, x := range r.f32[at : at+len(dst)] {
			dst[c] = x + 0 // a sum begins at +0: -0 becomes +0
		}
	case r.mode == kernel.Maximum, r.mode == kernel.Minimum:
		r.extremes(dst, base, keys)
	default:
		r.sums(dst, base, keys)
	}
}

// sums adds in float64, four channels at a time.
func (r *reducer) sums(dst []float32, base int, keys []uint64) {
	n := 1.0
	if r.mode == kernel.Average {
		n = float64(len(keys))
	}
	for len(dst) >= 4 {
		var a, b, c, d float64
		for _, k := range keys {
			at := base + int(k&r.mask)*r.row
			x := (*[4]float32)(r.f32[at : at+4])
			a += float64(x[0])
			b += float64(x[1])
			c += float64(x[2])
			d += float64(x[3])
		}
		dst[0], dst[1], dst[2], dst[3] = float32(a/n), float32(b/n), float32(c/n), float32(d/n)
		dst = dst[4:]
		base += 4
	}
	for j := range dst {
		s := 0.0
		for _, k := range keys {
			s += float64(r.f32[base+j+int(k&r.mask)*r.row])
		}
		dst[j] = float32(s / n)
	}
}

// ordered turns the bits of a float that is no NaN into an integer that sorts as the float does, with -0 < +0; it is its own inverse.
func ordered(b uint32) int32 {
	k := int32(b)
	return k ^ (k>>31)&math.MaxInt32
}

var (
	lowest  = ordered(math.Float32bits(float32(math.Inf(-1))))
	highest = ordered(math.Float32bits(float32(math.Inf(1))))
)

func (r *reducer) extremes(dst []float32, base int, keys []uint64) {
	for j := range dst {
		m := lowest
		if r.mode == kernel.Minimum {
			m = highest
		}
		for _, k := range keys {
			x := r.f32[base+j+int(k&r.mask)*r.row]
			o := ordered(math.Float32bits(x))
			switch {
			case x != x:
			case r.mode == kernel.Maximum:
				m = max(m, o)
			default:
				m = min(m, o)
			}
		}
		dst[j] = math.Float32frombits(uint32(ordered(uint32(m))))
	}
}

// any is reduce for every type and layout.
func (r *reducer) any(dst []float32, base int, keys []uint64) {
	for j := range dst {
		s, m := 0.0, lowest
		if r.mode == kernel.Minimum {
			m = highest
		}
		for i, k := range keys {
			x := number(r.data, r.dtype, base+int(k&r.mask)*r.row+j*r.c)
			switch r.mode {
			case kernel.Sum, kernel.Average:
				s += x
				continue
			case kernel.FirstPoint:
				if i == 0 {
					s = x
				}
				continue
			}
			f := float32(x)
			o := ordered(math.Float32bits(f))
			switch {
			case f != f:
			case r.mode == kernel.Maximum:
				m = max(m, o)
			default:
				m = min(m, o)
			}
		}
		switch r.mode {
		case kernel.Average:
			dst[j] = float32(s / float64(len(keys)))
		case kernel.Maximum, kernel.Minimum:
			dst[j] = math.Float32frombits(uint32(ordered(uint32(m))))
		default:
			dst[j] = float32(s)
		}
	}
}
