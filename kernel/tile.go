package kernel

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// tile is the number of columns that one step handles at a time. The switch on the type then runs
// once per tile, not per element.
const tile = 64

// Counts holds the number of casts that changed a value by more than rounding (kernel.K11).
type Counts struct {
	Overflow int64 // finite values that became infinite or saturated
	NaN      int64 // NaN values that became the integer 0
}

var le = binary.LittleEndian

// loadRow32 reads the columns from col on as float32, for types whose computing type is float32.
// Wide integers are rounded once.
func (m *Matrix) loadRow32(dst []float32, row, col int) { loadColumns(m, dst, row, col) }

// loadRow64 reads the columns from col on as float64.
func (m *Matrix) loadRow64(dst []float64, row, col int) { loadColumns(m, dst, row, col) }

// loadColumns reads the columns from col on. Each value is rounded at most once to T.
func loadColumns[T float32 | float64](m *Matrix, dst []T, row, col int) {
	d := m.Data
	o := m.byteOffset(row, col)
	step := m.ColStride * m.DType.Size()
	switch m.DType {
	case robocache.Float32:
		for i := range dst {
			dst[i] = T(math.Float32frombits(le.Uint32(d[o:])))
			o += step
		}
	case robocache.Float16:
		for i := range dst {
			dst[i] = T(Float16to32(le.Uint16(d[o:])))
			o += step
		}
	case robocache.BFloat16:
		for i := range dst {
			dst[i] = T(BFloat16to32(le.Uint16(d[o:])))
			o += step
		}
	case robocache.Float64:
		for i := range dst {
			dst[i] = T(math.Float64frombits(le.Uint64(d[o:])))
			o += step
		}
	case robocache.Int64:
		for i := range dst {
			dst[i] = T(int64(le.Uint64(d[o:])))
			o += step
		}
	case robocache.Uint64:
		for i := range dst {
			dst[i] = T(le.Uint64(d[o:]))
			o += step
		}
	default: // types of at most 32 bits: exact in float64
		for i := range dst {
			dst[i] = T(m.smallInteger(o))
			o += step
		}
	}
}

// smallInteger returns the integer of at most 32 bits, or the bool, at byte offset o.
func (m *Matrix) smallInteger(o int) float64 {
	d := m.Data
	switch m.DType {
	case robocache.Int8:
		return float64(int8(d[o]))
	case robocache.Int16:
		return float64(int16(le.Uint16(d[o:])))
	case robocache.Int32:
		return float64(int32(le.Uint32(d[o:])))
	case robocache.Uint16:
		return float64(le.Uint16(d[o:]))
	case robocache.Uint32:
		return float64(le.Uint32(d[o:]))
	case robocache.Bool:
		if d[o] != 0 {
			return 1
		}
		return 0
	}
	return float64(d[o])
}

// storeRow32 writes float32 values, rounding once to the view's type.
func (m *Matrix) storeRow32(src []float32, row, col int, c *Counts) {
	d := m.Data
	o := m.byteOffset(row, col)
	step := m.ColStride * m.DType.Size()
	switch m.DType {
	case robocache.Float32:
		for _, x := range src {
			le.PutUint32(d[o:], math.Float32bits(x))
			o += step
		}
	case robocache.Float16:
		for _, x := range src {
			h := Float32to16(x)
			if h&0x7fff == 0x7c00 && !math.IsInf(float64(x), 0) {
				c.Overflow++
			}
			le.PutUint16(d[o:], h)
			o += step
		}
	case robocache.BFloat16:
		for _, x := range src {
			h := Float32toB16(x)
			if h&0x7fff == 0x7f80 && !math.IsInf(float64(x), 0) {
				c.Overflow++
			}
			le.PutUint16(d[o:], h)
			o += step
		}
	default:
		for _, x := range src {
			m.putRounded(o, float64(x), c)
			o += step
		}
	}
}

// storeRow64 writes float64 values, rounding once to the view's type.
func (m *Matrix) storeRow64(src []float64, row, col int, c *Counts) {
	o := m.byteOffset(row, col)
	step := m.ColStride * m.DType.Size()
	for _, x := range src {
		m.putRounded(o, x, c)
		o += step
	}
}

// integerLimits are the limits of the integer types as float64: values in [lo, hi) truncate into
// the type.
var integerLimits = [robocache.JSON + 1][2]float64{
	robocache.Int8: {
		-1 << 7,
		1 << 7,
	},
	robocache.Int16: {-1 << 15, 1 << 15},
	robocache.Int32: {-1 << 31, 1 << 31},
	robocache.Int64: {-1 << 63, 1 << 63},
	robocache.Uint8: {
		0,
		1 << 8,
	},
	robocache.Uint16: {0, 1 << 16},
	robocache.Uint32: {0, 1 << 32},
	robocache.Uint64: {0, 1 << 64},
}

// putRounded writes x at byte offset o, rounded once to the view's type, and counts overflows and
// NaN in c.
func (m *Matrix) putRounded(o int, x float64, c *Counts) {
	d := m.Data
	switch m.DType {
	case robocache.Float64:
		le.PutUint64(d[o:], math.Float64bits(x))
		return
	case robocache.Float32:
		f := float32(x)
		if math.IsInf(float64(f), 0) && !math.IsInf(x, 0) {
			c.Overflow++
		}
		le.PutUint32(d[o:], math.Float32bits(f))
		return
	case robocache.Float16, robocache.BFloat16:
		// Rounding to odd first makes the two roundings equal to one.
		f := roundOdd32(x)
		h := Float32to16(f)
		inf := uint16(0x7c00)
		if m.DType == robocache.BFloat16 {
			h = Float32toB16(f)
			inf = 0x7f80
		}
		if h&0x7fff == inf && !math.IsInf(x, 0) {
			c.Overflow++
		}
		le.PutUint16(d[o:], h)
		return
	}
	u := truncatedInteger(x, m.DType, c)
	switch m.DType.Size() {
	case 1:
		d[o] = byte(u)
	case 2:
		le.PutUint16(d[o:], uint16(u))
	case 4:
		le.PutUint32(d[o:], uint32(u))
	default:
		le.PutUint64(d[o:], u)
	}
}

// truncatedInteger returns the integer part of x, within the range of an integer type, in two's
// complement. NaN is 0.
func truncatedInteger(x float64, dtype robocache.DType, c *Counts) uint64 {
	limits := integerLimits[dtype]
	x = math.Trunc(x)
	switch {
	case math.IsNaN(x):
		c.NaN++
		return 0
	case x < limits[0]:
		c.Overflow++
		return uint64(int64(limits[0]))
	case x >= limits[1]:
		c.Overflow++
		return largestInteger(dtype, limits[0] < 0)
	case x < 0:
		return uint64(int64(x))
	}
	return uint64(x)
}

// largestInteger returns the largest value of an integer type.
func largestInteger(dtype robocache.DType, isSigned bool) uint64 {
	width := 8 * dtype.Size()
	if isSigned {
		width--
	}
	return uint64(math.MaxUint64) >> (64 - width)
}

// moveRow copies the bits of a row between views of one type (kernel.K4).
func moveRow(dst, src *Matrix, to, from int) {
	size := dst.DType.Size()
	do, so := dst.byteOffset(to, 0), src.byteOffset(from, 0)
	if dst.ColStride == 1 && src.ColStride == 1 {
		copy(dst.Data[do:do+dst.Cols*size], src.Data[so:so+dst.Cols*size])
		return
	}
	ds, ss := dst.ColStride*size, src.ColStride*size
	for range dst.Cols {
		copy(dst.Data[do:do+size], src.Data[so:so+size])
		do += ds
		so += ss
	}
}

// zeroRow fills a row with zero bits (kernel.K9).
func (m *Matrix) zeroRow(row int) {
	size := m.DType.Size()
	o := m.byteOffset(row, 0)
	step := m.ColStride * size
	for range m.Cols {
		clear(m.Data[o : o+size])
		o += step
	}
}
