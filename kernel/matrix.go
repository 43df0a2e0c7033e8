package kernel

import (
	"fmt"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// Matrix is a view of rows × columns in memory, little-endian, with any strides (kernel.K8). A
// batch has one Matrix per entry.
type Matrix struct {
	Data       []byte
	DType      robocache.DType
	Rows, Cols int
	RowStride  int // in elements; 0 and negative strides are legal in sources
	ColStride  int
	Base       int // element offset of [0, 0]
}

// Dense returns the view of rows × cols elements in C order from the start of data.
func Dense(data []byte, dtype robocache.DType, rows, cols int) Matrix {
	return Matrix{Data: data, DType: dtype, Rows: rows, Cols: cols, RowStride: cols, ColStride: 1}
}

// Columns returns the view of columns from … from+n-1.
func (m Matrix) Columns(from, n int) Matrix {
	m.Base += from * m.ColStride
	m.Cols = n
	return m
}

// elementRange returns the range of element offsets in the view, hi exclusive. ok is false if the
// range overflows.
func (m *Matrix) elementRange() (lo, hi int, ok bool) {
	lo, hi = m.Base, m.Base
	if lo < 0 || hi > 1<<60 { // Base is the offset of the first element
		return 0, 0, false
	}
	if !widenRange(&lo, &hi, m.Rows, m.RowStride) || !widenRange(&lo, &hi, m.Cols, m.ColStride) {
		return 0, 0, false
	}
	return lo, hi + 1, true
}

// checkInside rejects a view with elements outside the data.
func (m *Matrix) checkInside(op, name string) error {
	size := m.DType.Size()
	if size == 0 {
		return robocache.Unsupported(op, robocache.Where{"tensor": name}, "unsupported dtype").
			Expected("a type of fixed size", m.DType.String())
	}
	if m.Rows < 0 || m.Cols < 0 {
		return robocache.Misuse(op, robocache.Where{"tensor": name}, "negative extent").
			Expected("rows and columns ≥ 0", fmt.Sprintf("%d × %d", m.Rows, m.Cols))
	}
	if m.Rows == 0 || m.Cols == 0 {
		return nil
	}
	lo, hi, ok := m.elementRange()
	if !ok || lo < 0 || hi > len(m.Data)/size {
		return robocache.Misuse(op, robocache.Where{"tensor": name}, "length mismatch").
			Expected(
				fmt.Sprintf(
					"%d × %d elements with strides %d, %d from %d inside the memory",
					m.Rows,
					m.Cols,
					m.RowStride,
					m.ColStride,
					m.Base,
				),
				fmt.Sprintf("%d elements", len(m.Data)/size),
			)
	}
	return nil
}

// overlapsWith reports whether the two views may share a byte. Views of one buffer with equal row
// strides and disjoint columns do not overlap.
func (m *Matrix) overlapsWith(o *Matrix) bool {
	if m.Rows == 0 || m.Cols == 0 || o.Rows == 0 || o.Cols == 0 {
		return false
	}
	sm, so := m.DType.Size(), o.DType.Size()
	ml, mh, _ := m.elementRange()
	ol, oh, _ := o.elementRange()
	mp := uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))
	op := uintptr(unsafe.Pointer(unsafe.SliceData(o.Data)))
	// Addresses: m covers m0 to m1, and o covers o0 to o1.
	m0, m1, o0, o1 := mp+uintptr(ml*sm), mp+uintptr(mh*sm), op+uintptr(ol*so), op+uintptr(oh*so)
	if m1 <= o0 || o1 <= m0 {
		return false
	}
	pitch := m.RowStride * sm
	if pitch <= 0 || pitch != o.RowStride*so || m.ColStride < 0 || o.ColStride < 0 {
		return true
	}
	// Rows of both views repeat with the same pitch. They are disjoint if the rows of o lie between
	// the rows of m.
	mw, ow := ((m.Cols-1)*m.ColStride+1)*sm, ((o.Cols-1)*o.ColStride+1)*so
	var ahead int // bytes from a row of m to the next row of o, within one pitch
	if o0 >= m0 {
		ahead = int(o0-m0) % pitch
	} else {
		ahead = (pitch - int(m0-o0)%pitch) % pitch
	}
	return ahead < mw || ahead+ow > pitch
}

// hasDistinctElements reports whether no two elements of the view share memory. The test is
// sufficient, not necessary: one stride must be larger than the extent of the other axis.
func (m *Matrix) hasDistinctElements() bool {
	r, c := max(m.RowStride, -m.RowStride), max(m.ColStride, -m.ColStride)
	switch {
	case m.Rows == 0 || m.Cols == 0, m.Rows == 1 && m.Cols == 1:
		return true
	case m.Rows == 1:
		return c > 0
	case m.Cols == 1:
		return r > 0
	}
	return c > 0 && r >= (m.Cols-1)*c+1 || r > 0 && c >= (m.Rows-1)*r+1
}

// byteOffset returns the byte offset of an element.
func (m *Matrix) byteOffset(row, col int) int {
	return (m.Base + row*m.RowStride + col*m.ColStride) * m.DType.Size()
}
