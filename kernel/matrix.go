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
	mStart, mEnd := m.addressRange()
	oStart, oEnd := o.addressRange()
	if mEnd <= oStart || oEnd <= mStart {
		return false
	}
	pitch := m.RowStride * m.DType.Size()
	samePitch := pitch > 0 && pitch == o.RowStride*o.DType.Size()
	if !samePitch || m.ColStride < 0 || o.ColStride < 0 {
		return true
	}
	// Rows of both views repeat with the same pitch. They are disjoint if the rows of o are between
	// the rows of m.
	var ahead int // bytes from a row of m to the next row of o, within one pitch
	if oStart >= mStart {
		ahead = int(oStart-mStart) % pitch
	} else {
		ahead = (pitch - int(mStart-oStart)%pitch) % pitch
	}
	return ahead < m.rowWidth() || ahead+o.rowWidth() > pitch
}

// addressRange returns the range of addresses in the view, end exclusive.
func (m *Matrix) addressRange() (start, end uintptr) {
	lo, hi, _ := m.elementRange()
	size := m.DType.Size()
	base := uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))
	return base + uintptr(lo*size), base + uintptr(hi*size)
}

// rowWidth returns the number of bytes from the first to the last byte of a row. ColStride must not
// be negative.
func (m *Matrix) rowWidth() int { return ((m.Cols-1)*m.ColStride + 1) * m.DType.Size() }

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
