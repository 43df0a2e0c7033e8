package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

var le = binary.LittleEndian

// streamBytes is the size of a result that leaves the second cache before anyone reads it: its rows
// are stored round the caches. Tests lower it.
var streamBytes = 4 << 20

// rowsAhead is how many rows before their turn long source rows are asked for.
const rowsAhead = 8

// stream is one series of a Fuse, or one part of an Apply, with what its rows are made by.
type stream struct {
	rule     *kernel.Rule
	epilogue *kernel.Epilogue
	cols     int
	dst, src view
	// rows that are copied, and blended where the mode is linear; nil = kernel.Resample makes them
	kernel   func(*rowArgs)
	moves    bool // the kernel counts bytes
	least    int  // rows that the kernel needs; slerp's also writes the validity
	general  bool // blended rows and windows are for kernel.Resample
	args     rowArgs
	table    table
	infinity uint16 // bits of a 16-bit infinity, where results are counted
}

// view is a tensor of rows by addresses.
type view struct {
	data             []byte
	dtype            robocache.DType
	base             int // elements
	batch, row, step int // strides in elements
}

func viewOf(t *kernel.Tensor) view {
	n := len(t.Shape)
	v := view{data: t.Data, dtype: t.DType, base: t.Base, row: t.Step(n - 2), step: t.Step(n - 1)}
	if n == 3 {
		v.batch = t.Step(0)
	}
	return v
}

func (v *view) at(b, row int) unsafe.Pointer {
	return unsafe.Add(
		unsafe.Pointer(unsafe.SliceData(v.data)),
		(v.base+b*v.batch+row*v.row)*v.dtype.Size(),
	)
}

func (v *view) matrix(b, row, rows, cols int) kernel.Matrix {
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

// start chooses what makes the rows; dst and src are the tensors' views. Of an empty result nothing
// is made, whose rows may be of any length.
func (s *stream) start(
	rule *kernel.Rule,
	e *kernel.Epilogue,
	dst, src view,
	cols int,
	counted, streaming, empty bool,
) {
	s.forget()
	s.rule, s.epilogue, s.cols, s.dst, s.src = rule, e, cols, dst, src
	from, to := src.dtype, dst.dtype
	// The kernels need columns side by side.
	if empty || cols > 1 && (src.step != 1 || dst.step != 1) || e.Augment != nil {
		return
	}
	a := &s.args
	a.dstStep, a.srcStep = dst.row*to.Size(), src.row*from.Size()
	f := formOf(e, from)
	switch {
	case f == plain && from == to && rule.Mode != kernel.Linear:
		s.kernel, s.moves = moveRows, true
	case f < 0 || counted && from == robocache.Float64 && to != from:
		return
	default:
		s.kernel = lerpKernel(from, to, f)
	}
	if k := slerpKernel(); rule.Mode == kernel.Slerp && rule.Quats == nil &&
		rule.Rotations == nil &&
		f == plain &&
		from == robocache.Float32 &&
		to == from &&
		k != nil {
		s.kernel, s.moves, s.least = k, false, 4
		return
	}
	s.general = rule.Mode.Computes() && rule.Mode != kernel.Linear
	if s.kernel == nil {
		return
	}
	if counted && to == robocache.Float16 {
		s.infinity = 0x7c00
	} else if counted && to == robocache.BFloat16 {
		s.infinity = 0x7f80
	}
	if f != plain {
		s.normalise(e)
		return
	}
	k := streamKernel(from, to)
	if streaming && rule.Mode == kernel.Linear && k != nil &&
		(uintptr(dst.at(0, 0))|uintptr(a.dstStep)|uintptr(dst.batch*to.Size())|uintptr(cols*to.Size()))%32 == 0 {
		s.kernel = k
		if cols*from.Size() >= 512 {
			a.ahead = rowsAhead
		}
	}
}

// formOf is the form of kernel that an epilogue needs; below 0 where there is none.
func formOf(e *kernel.Epilogue, from robocache.DType) form {
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

func (s *stream) normalise(e *kernel.Epilogue) {
	a := &s.args
	a.scale, a.lo, a.hi = 1, float32(math.Inf(-1)), float32(math.Inf(1))
	if e.Norm != nil && e.Norm.Kind == kernel.MinMax {
		a.scale, a.off = 2, 1
	}
	if e.Clip != nil {
		a.lo, a.hi = e.Clip[0], e.Clip[1]
	}
	s.table.start(e, s.cols)
}

// forget lets go of the caller's memory and keeps the room of the table.
func (s *stream) forget() { *s = stream{table: table{a: s.table.a, b: s.table.b}} }
