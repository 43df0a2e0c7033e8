package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

var le = binary.LittleEndian

// streamBytes is the result size from which rows are stored around the caches: such a result would
// leave the second-level cache before it is read. Tests lower it.
var streamBytes = 4 << 20

// rowsAhead is the number of rows between the prefetch of a long source row and its use.
const rowsAhead = 8

// stream is one series of a FuseOp or one part of an ApplyOp, with the kernel that computes its
// rows.
type stream struct {
	rule     *kernel.Rule
	epilogue *kernel.Epilogue
	cols     int
	dst, src tensorView
	// kernel computes rows that are copied, and blended rows if the mode is linear. If it is nil,
	// kernel.Resample computes all rows.
	kernel      func(*rowArgs)
	copiesBytes bool // the kernel copies bytes and does not blend
	// minRows is the number of rows that the kernel needs. It is 0 except for slerp, whose kernel
	// also writes the validity.
	minRows       int
	referenceOnly bool // kernel.Resample computes all rows, because the mode has no kernel
	args          rowArgs
	table         normTable
	infinityBits  uint16 // bits of a 16-bit infinity if overflows are counted, else 0
}

// tensorView gives the memory address of each row of a tensor.
type tensorView struct {
	data             []byte
	dtype            robocache.DType
	base             int // in elements
	batch, row, step int // strides, in elements
}

// viewOf returns the view of a tensor with the axes (batch,) row, column.
func viewOf(t *kernel.Tensor) tensorView {
	n := len(t.Shape)
	v := tensorView{
		data:  t.Data,
		dtype: t.DType,
		base:  t.Base,
		row:   t.Step(n - 2),
		step:  t.Step(n - 1),
	}
	if n == 3 {
		v.batch = t.Step(0)
	}
	return v
}

// rowPointer returns the address of the first element of a row of entry b.
func (v *tensorView) rowPointer(b, row int) unsafe.Pointer {
	return unsafe.Add(
		unsafe.Pointer(unsafe.SliceData(v.data)),
		(v.base+b*v.batch+row*v.row)*v.dtype.Size(),
	)
}

// matrixView returns a number of rows of entry b, from the given row on, for package kernel.
func (v *tensorView) matrixView(b, row, rows, cols int) kernel.Matrix {
	return kernel.Matrix{
		Data:      v.data,
		DType:     v.dtype,
		Rows:      rows,
		Cols:      cols,
		RowStride: v.row,
		ColStride: v.step,
		Base:      v.base + b*v.batch + row*v.row,
	}
}

// rowTraits are properties of the rows of a stream on which the choice of a kernel depends.
type rowTraits struct {
	countsOverflows bool // overflows are counted
	exceedsCaches   bool // the result is too large for the caches
	isEmpty         bool // there are no rows; they may then have any length
}

// chooseKernel chooses the kernel that computes the rows, or none if kernel.Resample must compute
// them.
func (s *stream) chooseKernel(
	rule *kernel.Rule,
	e *kernel.Epilogue,
	dst, src tensorView,
	cols int,
	traits rowTraits,
) {
	s.forgetCaller()
	s.rule, s.epilogue, s.cols, s.dst, s.src = rule, e, cols, dst, src
	from, to := src.dtype, dst.dtype
	// The kernels need adjacent columns.
	if traits.isEmpty || cols > 1 && (src.step != 1 || dst.step != 1) || e.Augment != nil {
		return
	}
	a := &s.args
	a.dstStep, a.srcStep = dst.row*to.Size(), src.row*from.Size()
	f := formOf(e, from)
	// Choose the kernel for rows that are copied, and for linear blends.
	switch {
	case f == plain && from == to && rule.Mode != kernel.Linear:
		s.kernel, s.copiesBytes = moveRows, true
	case f < 0 || traits.countsOverflows && from == robocache.Float64 && to != from:
		return
	default:
		s.kernel = lerpKernel(from, to, f)
	}
	// Slerp has its own kernel. The other computing modes have none.
	k := slerpKernel()
	isSlerp := rule.Mode == kernel.Slerp && rule.Quats == nil && rule.Rotations == nil
	isFloat32 := from == robocache.Float32 && to == from
	if k != nil && isSlerp && isFloat32 && f == plain {
		s.kernel, s.copiesBytes, s.minRows = k, false, 4
		return
	}
	s.referenceOnly = rule.Mode.Computes() && rule.Mode != kernel.Linear
	if s.kernel == nil {
		return
	}
	if traits.countsOverflows && to == robocache.Float16 {
		s.infinityBits = 0x7c00
	} else if traits.countsOverflows && to == robocache.BFloat16 {
		s.infinityBits = 0x7f80
	}
	if f != plain {
		s.setNormalization(e)
		return
	}
	// Aligned rows of a large result can be stored around the caches.
	k = streamKernel(from, to)
	if !traits.exceedsCaches || rule.Mode != kernel.Linear || k == nil {
		return
	}
	steps := uintptr(a.dstStep) | uintptr(dst.batch*to.Size()) | uintptr(cols*to.Size())
	isAligned := (uintptr(dst.rowPointer(0, 0))|steps)%32 == 0
	if isAligned {
		s.kernel = k
		if cols*from.Size() >= 512 {
			a.ahead = rowsAhead
		}
	}
}

// formOf returns the kernel form that an epilogue needs, or -1 if there is none.
func formOf(e *kernel.Epilogue, from robocache.DType) kernelForm {
	switch {
	case !e.Unit && e.Norm == nil && e.Clip == nil:
		return plain
	case from == robocache.Float64:
		return -1
	case !e.Unit || e.Norm == nil:
		return norm
	case from == robocache.Uint8:
		return unitNorm
	}
	return -1
}

// setNormalization sets the arguments and the table of a kernel with the form norm or unitNorm.
// Bounds that are not set become infinite.
func (s *stream) setNormalization(e *kernel.Epilogue) {
	a := &s.args
	a.scale = 1
	a.lo = float32(math.Inf(-1))
	a.hi = float32(math.Inf(1))
	if e.Norm != nil && e.Norm.Kind == kernel.MinMax {
		a.scale, a.off = 2, 1
	}
	if e.Clip != nil {
		a.lo, a.hi = e.Clip[0], e.Clip[1]
	}
	s.table.fillTable(e, s.cols)
}

// forgetCaller drops the references to the caller's memory and keeps the memory of the table.
func (s *stream) forgetCaller() { *s = stream{table: normTable{a: s.table.a, b: s.table.b}} }
