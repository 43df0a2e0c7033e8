package cpu

import (
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// reducer makes a cell's row of the features of its points. Each thread has its own.
//
// Rows of features lie anywhere, so that each costs the time of a cache miss. They are first
// gathered, many keys at a time and without a branch between them, which lets the processor wait
// for many misses at once; then cells are made of rows that lie side by side.
type reducer struct {
	mode     kernel.VoxelMode
	width    int       // F
	view               // of the features
	rows     int       // of an entry; 0: the rows are numbered through
	f32      []float32 // the same memory, where a row is neighbours of this type
	mask     uint64    // of a key's row
	rowBits  int
	digits   *[1 << widest]uint32
	gathered []float32 // rows of the keys since begin
	next     int       // where among them the next cell's begin
	most     int       // keys that are gathered at a time
	starts   []uint32  // of the cells of a bucket
	left     int       // keys that begin has taken and reduce has not
	long     bool      // they are one cell's and not gathered
}

// gatherable is the most keys that are gathered at a time, and gatherRoom the most numbers of them:
// rows should stay in a near cache. Wider rows are read where they are.
const (
	gatherable = 512
	gatherRoom = 1 << 18
)

// open takes the op's features.
func (r *reducer) open(op *kernel.VoxelOp, l *kernel.VoxelLayout, rowBits int) {
	r.mode, r.width, r.rowBits, r.mask = op.Mode, l.Features, rowBits, 1<<rowBits-1
	if !op.Mode.Featured() {
		return
	}
	t := op.Features
	if r.view = viewOf(t); len(t.Shape) == 3 && r.batch != r.row*l.Rows {
		r.rows = l.Rows
	}
	if t.DType == robocache.Float32 && (r.step == 1 || r.width == 1) {
		r.f32 = elements[float32](t.Data)
	}
}

// clone is a reducer with memory of its own.
func (r *reducer) clone() *reducer {
	c := *r
	c.digits = new([1 << widest]uint32)
	c.most = min(gatherable, gatherRoom/max(c.width, 1))
	if c.width > 0 {
		c.gathered = make([]float32, c.most*c.width)
	}
	return &c
}

// element is where the row of a key begins.
func (r *reducer) element(key uint64) int {
	i := int(key & r.mask)
	if r.rows == 0 {
		return r.base + i*r.row
	}
	return r.base + i/r.rows*r.batch + i%r.rows*r.row
}

// begin gathers what is next of the keys, up to the end of a cell. It gives the keys back.
func (r *reducer) begin(keys []uint64) []uint64 {
	r.left, r.long = len(keys), r.dtype == robocache.Float64 // which are few, and not rounded first
	if r.width == 0 || len(keys) == 0 || r.long {
		return keys
	}
	if r.left > r.most {
		r.left = r.most
		for r.left > 0 && keys[r.left]>>r.rowBits == keys[r.left-1]>>r.rowBits {
			r.left--
		}
		if r.left == 0 {
			r.left, r.long = run(keys, r.rowBits), true
			return keys
		}
	}
	r.next = 0
	r.gather(keys[:r.left])
	return keys
}

// four and eight are so many float32, as what the compiler moves through registers; arrays it moves
// by a call.
type (
	four  struct{ a, b uint64 }
	eight struct{ a, b, c, d uint64 }
)

func (r *reducer) gather(keys []uint64) {
	w := r.width
	if r.f32 == nil {
		for i, k := range keys {
			at := r.element(k)
			for j := range w {
				r.gathered[i*w+j] = float32(number(r.data, r.dtype, at+j*r.step))
			}
		}
		return
	}
	dst := r.gathered
	switch {
	case w == 4 && r.rows == 0:
		for _, k := range keys {
			at := r.base + int(k&r.mask)*r.row
			*(*four)(unsafe.Pointer(unsafe.SliceData(dst[:4]))) = *(*four)(unsafe.Pointer(unsafe.SliceData(r.f32[at : at+4])))
			dst = dst[4:]
		}
	case w == 8 && r.rows == 0:
		for _, k := range keys {
			at := r.base + int(k&r.mask)*r.row
			*(*eight)(unsafe.Pointer(unsafe.SliceData(dst[:8]))) = *(*eight)(unsafe.Pointer(unsafe.SliceData(r.f32[at : at+8])))
			dst = dst[8:]
		}
	default:
		for _, k := range keys {
			at := r.element(k)
			copy(dst[:w], r.f32[at:at+w])
			dst = dst[w:]
		}
	}
}

// reduce fills dst from the points of one cell, which are the next of those that begin took.
func (r *reducer) reduce(dst []float32, keys []uint64) {
	n := len(keys)
	r.left -= n
	switch {
	case r.width == 0:
		return
	case r.long:
		r.longCell(dst, keys)
		return
	}
	rows := r.gathered[r.next : r.next+n*r.width]
	r.next += len(rows)
	switch {
	case r.mode == kernel.FirstPoint:
		copy(dst, rows)
	case r.mode == kernel.Maximum, r.mode == kernel.Minimum:
		r.extremes(dst, rows)
	case n == 1:
		for c, x := range rows {
			dst[c] = x + 0 // a sum begins at +0: -0 becomes +0
		}
	default:
		r.sum(dst, rows, n)
	}
}

// sum adds in float64, four channels at a time.
func (r *reducer) sum(dst, rows []float32, n int) {
	by, w := 1.0, r.width
	if r.mode == kernel.Average {
		by = float64(n)
	}
	j := 0
	for ; j+4 <= w; j += 4 {
		var a, b, c, d float64
		for i := j; i+4 <= len(rows); i += w {
			x := (*[4]float32)(rows[i : i+4])
			a += float64(x[0])
			b += float64(x[1])
			c += float64(x[2])
			d += float64(x[3])
		}
		y := (*[4]float32)(dst[j : j+4])
		y[0], y[1], y[2], y[3] = float32(a/by), float32(b/by), float32(c/by), float32(d/by)
	}
	for ; j < w; j++ {
		s := 0.0
		for i := j; i < len(rows); i += w {
			s += float64(rows[i])
		}
		dst[j] = float32(s / by)
	}
}

// ordered turns the bits of a float that is no NaN into an integer that sorts as the float does,
// with -0 < +0; it is its own inverse.
func ordered(b uint32) int32 {
	k := int32(b)
	return k ^ (k>>31)&math.MaxInt32
}

var (
	lowest  = ordered(math.Float32bits(float32(math.Inf(-1))))
	highest = ordered(math.Float32bits(float32(math.Inf(1))))
)

// extreme takes one number more into a maximum or a minimum.
func (r *reducer) extreme(m int32, x float32) int32 {
	switch o := ordered(math.Float32bits(x)); {
	case x != x:
		return m
	case r.mode == kernel.Maximum:
		return max(m, o)
	default:
		return min(m, o)
	}
}

// none is the maximum or minimum of nothing.
func (r *reducer) none() int32 {
	if r.mode == kernel.Maximum {
		return lowest
	}
	return highest
}

func (r *reducer) extremes(dst, rows []float32) {
	for j := range dst {
		m := r.none()
		for i := j; i < len(rows); i += r.width {
			m = r.extreme(m, rows[i])
		}
		dst[j] = unordered(m)
	}
}

func unordered(m int32) float32 { return math.Float32frombits(uint32(ordered(uint32(m)))) }

// columns is reduce by number i of the points, and channel j.
func (r *reducer) columns(dst []float32, n int, at func(i, j int) float64) {
	for j := range dst {
		s, m := 0.0, r.none()
		for i := range n {
			x := at(i, j)
			s += x
			if r.mode >= kernel.Maximum {
				m = r.extreme(m, float32(x))
			}
		}
		switch r.mode {
		case kernel.FirstPoint:
			dst[j] = float32(at(0, j))
		case kernel.Maximum, kernel.Minimum:
			dst[j] = unordered(m)
		case kernel.Average:
			dst[j] = float32(s / float64(n))
		default:
			dst[j] = float32(s)
		}
	}
}

// longCell is reduce for a cell of more points than are gathered: their rows come in order, which
// needs no help.
func (r *reducer) longCell(dst []float32, keys []uint64) {
	r.columns(
		dst,
		len(keys),
		func(i, j int) float64 { return number(r.data, r.dtype, r.element(keys[i])+j*r.step) },
	)
}
