package cpu

import (
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// reducer computes a cell's row from the features of its points. Each thread has its own reducer.
//
// Rows of features are in random order, so reading each one costs a cache miss. The reducer first
// gathers the rows of many keys, without a branch between them. The processor can then wait for
// many misses at the same time. Afterwards it computes the cells from adjacent rows.
type reducer struct {
	mode       kernel.VoxelMode
	width      int // number of features (F)
	tensorView     // view of the features
	rows       int // rows per entry; 0: rows are numbered through all entries
	// f32 is the memory of the features as float32 values. It is nil unless the features of a row
	// are adjacent float32 values.
	f32      []float32
	mask     uint64 // bits of the row in a key
	rowBits  int
	digits   *[1 << maxDigitBits]uint32
	gathered []float32 // rows of the keys gathered by the last gatherCells
	next     int       // index in gathered where the next cell starts
	maxKeys  int       // maximal number of keys gathered at a time
	starts   []uint32  // starts of the cells of a bucket
	left     int       // number of gathered keys that are not reduced yet
	long     bool      // the keys are not gathered: one long cell, or float64 features
}

// maxGatheredKeys and maxGatheredNumbers limit the rows that are gathered at a time, so that they
// stay in a near cache. Wider rows are read in place.
const (
	maxGatheredKeys    = 512
	maxGatheredNumbers = 1 << 18
)

// openFeatures prepares the reducer for the features of op.
func (r *reducer) openFeatures(op *kernel.VoxelOp, l *kernel.VoxelLayout, rowBits int) {
	r.mode = op.Mode
	r.width = l.Features
	r.rowBits = rowBits
	r.mask = 1<<rowBits - 1
	if !op.Mode.Featured() {
		return
	}
	t := op.Features
	r.tensorView = viewOf(t)
	if len(t.Shape) == 3 && r.batch != r.row*l.Rows {
		r.rows = l.Rows // there are gaps between entries
	}
	if t.DType == robocache.Float32 && (r.step == 1 || r.width == 1) {
		r.f32 = castSlice[float32](t.Data)
	}
}

// clone returns a copy of the reducer with scratch memory of its own. maxKeys limits how many rows
// that memory holds.
func (r *reducer) clone() *reducer {
	c := *r
	c.digits = new([1 << maxDigitBits]uint32)
	c.maxKeys = min(maxGatheredKeys, maxGatheredNumbers/max(c.width, 1))
	if c.width > 0 {
		c.gathered = make([]float32, c.maxKeys*c.width)
	}
	return &c
}

// rowElement returns the index of the first element of a key's row.
func (r *reducer) rowElement(key uint64) int {
	row := int(key & r.mask)
	if r.rows == 0 { // row through all entries
		return r.base + row*r.row
	}
	entry, rowInEntry := row/r.rows, row%r.rows
	return r.base + entry*r.batch + rowInEntry*r.row
}

// gatherCells prepares the cells of the next keys for reduceCell and sets r.left to the number of
// their keys. It gathers the rows of as many whole cells as fit. A cell that does not fit is not
// gathered (r.long). It returns keys unchanged.
func (r *reducer) gatherCells(keys []uint64) []uint64 {
	// Float64 features are not gathered as float32, because they must not be rounded before they
	// are summed. They are rare.
	r.left = len(keys)
	r.long = r.dtype == robocache.Float64
	if r.width == 0 || len(keys) == 0 || r.long {
		return keys
	}
	if r.left > r.maxKeys {
		r.left = r.maxKeys
		for r.left > 0 && keys[r.left]>>r.rowBits == keys[r.left-1]>>r.rowBits {
			r.left--
		}
		if r.left == 0 {
			r.left = countSameCell(keys, r.rowBits)
			r.long = true
			return keys
		}
	}
	r.next = 0
	r.gatherRows(keys[:r.left])
	return keys
}

// fourFloats and eightFloats hold 4 and 8 float32 values. The compiler copies these structs through
// registers; arrays it copies by a call.
type (
	fourFloats  struct{ a, b uint64 }
	eightFloats struct{ a, b, c, d uint64 }
)

// gatherRows copies the features of the keys to r.gathered, as adjacent float32 values. Rows of 4
// and 8 adjacent float32 values have faster loops.
func (r *reducer) gatherRows(keys []uint64) {
	w := r.width
	if r.f32 == nil {
		for i, k := range keys {
			at := r.rowElement(k)
			for j := range w {
				r.gathered[i*w+j] = float32(readNumber(r.data, r.dtype, at+j*r.step))
			}
		}
		return
	}
	dst := r.gathered
	switch {
	case w == 4 && r.rows == 0:
		for _, k := range keys {
			at := r.base + int(k&r.mask)*r.row
			*(*fourFloats)(
				unsafe.Pointer(unsafe.SliceData(dst[:4])),
			) = *(*fourFloats)(unsafe.Pointer(unsafe.SliceData(r.f32[at : at+4])))
			dst = dst[4:]
		}
	case w == 8 && r.rows == 0:
		for _, k := range keys {
			at := r.base + int(k&r.mask)*r.row
			*(*eightFloats)(
				unsafe.Pointer(unsafe.SliceData(dst[:8])),
			) = *(*eightFloats)(unsafe.Pointer(unsafe.SliceData(r.f32[at : at+8])))
			dst = dst[8:]
		}
	default:
		for _, k := range keys {
			at := r.rowElement(k)
			copy(dst[:w], r.f32[at:at+w])
			dst = dst[w:]
		}
	}
}

// reduceCell computes dst from the points of one cell. keys must be the next of the keys that
// gatherCells gathered.
func (r *reducer) reduceCell(dst []float32, keys []uint64) {
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
		r.extremeRows(dst, rows)
	case n == 1:
		for c, x := range rows {
			dst[c] = x + 0 // a sum starts at +0, so -0 becomes +0
		}
	default:
		r.sumRows(dst, rows, n)
	}
}

// sumRows writes the sums or averages of n rows to dst. It adds in float64, four channels at a
// time.
func (r *reducer) sumRows(dst, rows []float32, n int) {
	denominator, w := 1.0, r.width
	if r.mode == kernel.Average {
		denominator = float64(n)
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
		y[0], y[1] = float32(a/denominator), float32(b/denominator)
		y[2], y[3] = float32(c/denominator), float32(d/denominator)
	}
	for ; j < w; j++ {
		s := 0.0
		for i := j; i < len(rows); i += w {
			s += float64(rows[i])
		}
		dst[j] = float32(s / denominator)
	}
}

// orderBits converts the bits of a float that is not NaN to an integer that sorts as the float
// does, with -0 < +0: if the sign bit is set, it flips all other bits. It is its own inverse.
func orderBits(b uint32) int32 {
	k := int32(b)
	return k ^ (k>>31)&math.MaxInt32
}

var (
	lowest  = orderBits(math.Float32bits(float32(math.Inf(-1))))
	highest = orderBits(math.Float32bits(float32(math.Inf(1))))
)

// foldExtreme includes x in the maximum or minimum m.
func (r *reducer) foldExtreme(m int32, x float32) int32 {
	switch o := orderBits(math.Float32bits(x)); {
	case x != x:
		return m
	case r.mode == kernel.Maximum:
		return max(m, o)
	default:
		return min(m, o)
	}
}

// emptyExtreme returns the maximum or minimum of no numbers.
func (r *reducer) emptyExtreme() int32 {
	if r.mode == kernel.Maximum {
		return lowest
	}
	return highest
}

// extremeRows writes the maximum or minimum of each column of rows to dst.
func (r *reducer) extremeRows(dst, rows []float32) {
	for j := range dst {
		m := r.emptyExtreme()
		for i := j; i < len(rows); i += r.width {
			m = r.foldExtreme(m, rows[i])
		}
		dst[j] = unorderBits(m)
	}
}

// unorderBits returns the float whose orderBits are m.
func unorderBits(m int32) float32 { return math.Float32frombits(uint32(orderBits(uint32(m)))) }

// reduceColumns computes dst, one number per channel, from n points. at returns channel j of point
// i.
func (r *reducer) reduceColumns(dst []float32, n int, at func(i, j int) float64) {
	for j := range dst {
		sum := 0.0
		extreme := r.emptyExtreme()
		for i := range n {
			x := at(i, j)
			sum += x
			if r.mode >= kernel.Maximum {
				extreme = r.foldExtreme(extreme, float32(x))
			}
		}
		switch r.mode {
		case kernel.FirstPoint:
			dst[j] = float32(at(0, j))
		case kernel.Maximum, kernel.Minimum:
			dst[j] = unorderBits(extreme)
		case kernel.Average:
			dst[j] = float32(sum / float64(n))
		default:
			dst[j] = float32(sum)
		}
	}
}

// longCell computes a cell with more points than can be gathered. Its rows are read in ascending
// order, so the processor prefetches them.
func (r *reducer) longCell(dst []float32, keys []uint64) {
	r.reduceColumns(
		dst,
		len(keys),
		func(i, j int) float64 {
			return readNumber(
				r.data,
				r.dtype,
				r.rowElement(keys[i])+j*r.step,
			)
		},
	)
}
