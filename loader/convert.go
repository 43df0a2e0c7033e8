package loader

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
)

// view reads bytes as elements. Tensors and scratch begin at 8-byte boundaries at least; hosts are little-endian.
func view[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

// bytesOf is the memory of elements.
func bytesOf[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

func floats32(b []byte) []float32 { return view[float32](b) }

// kernels computes on the goroutine that asks: the loader's workers are the threads.
var kernels = cpu.New(1)

// applied is one part of a kernel.ApplyOp with room for its shapes, kept so that a call allocates nothing.
type applied struct {
	op             kernel.ApplyOp
	parts          [1]kernel.Part
	src, out, rows [2]int
	plan           [5]kernel.Tensor
}

var applies = sync.Pool{New: func() any { return new(applied) }}

// part readies a part from src to dst, of so many elements a row.
func (x *applied) part(dst []byte, to robocache.DType, src []byte, from robocache.DType, elems int, e kernel.Epilogue) *kernel.Part {
	x.src, x.out = [2]int{len(src) / elems / from.Size(), elems}, [2]int{len(dst) / elems / to.Size(), elems}
	x.parts[0] = kernel.Part{Src: kernel.Tensor{DType: from, Shape: x.src[:], Data: src}, Out: kernel.Tensor{DType: to, Shape: x.out[:], Data: dst}, Epilogue: e}
	x.op.Parts = x.parts[:]
	return &x.parts[0]
}

// planned gives the part its rows. valid is read and written.
func (x *applied) planned(p *kernel.Plan, valid []byte) {
	part := &x.parts[0]
	x.rows[0] = p.Len()
	for i, t := range []kernel.Tensor{
		{DType: robocache.Uint8, Data: bytesOf(p.Kind)}, {DType: robocache.Int32, Data: bytesOf(p.Left)}, {DType: robocache.Int32, Data: bytesOf(p.Right)},
		{DType: robocache.Float64, Data: bytesOf(p.Weight)}, {DType: robocache.Uint8, Data: valid},
	} {
		t.Shape = x.rows[:1]
		x.plan[i] = t
	}
	part.Kind, part.Left, part.Right, part.Weight, part.Valid = &x.plan[0], &x.plan[1], &x.plan[2], &x.plan[3], &x.plan[4]
}

func (x *applied) run() error {
	err := kernels.Run(&x.op)
	x.parts[0], x.plan = kernel.Part{}, [5]kernel.Tensor{}
	applies.Put(x)
	return err
}

// resample makes rows of a column by a plan, at most as the kernel's backends can. valid is written.
func resample(out []byte, dtype robocache.DType, src []byte, c *column, p *kernel.Plan, e kernel.Epilogue, valid []byte) error {
	if p.Sums != nil { // no op has this mode
		to, from := kernel.Dense(out, dtype, p.Len(), c.elems), kernel.Dense(src, c.stored, p.Sources, c.elems)
		return kernel.Resample(to, from, p, kernel.Options{Rule: c.time.rule, Epilogue: e, Valid: valid})
	}
	copy(valid, p.Valid)
	x := applies.Get().(*applied)
	x.part(out, dtype, src, c.stored, c.elems, e).Rule = c.time.rule
	x.planned(p, valid)
	return x.run()
}

// convert casts rows of so many elements into a tensor, and normalises them before the only rounding. from is to, or a reference dtype's source.
func convert(dst []byte, to robocache.DType, src []byte, from robocache.DType, elems int, norm *affine) error {
	switch {
	case len(dst) == 0:
	case to.Float() && (from != to || norm != nil):
		x := applies.Get().(*applied)
		x.part(dst, to, src, from, elems, norm.epilogue(0))
		return x.run()
	case to != robocache.Int64:
		copy(dst, src)
	default:
		out := view[int64](dst)
		switch from {
		case robocache.Int8:
			widen(out, view[int8](src))
		case robocache.Int16:
			widen(out, view[int16](src))
		case robocache.Int32:
			widen(out, view[int32](src))
		case robocache.Uint8:
			widen(out, src)
		case robocache.Uint16:
			widen(out, view[uint16](src))
		case robocache.Uint32:
			widen(out, view[uint32](src))
		default:
			copy(dst, src) // uint64 too: torch has no other way to hold it, and indices fit
		}
	}
	return nil
}

func widen[T int8 | int16 | int32 | uint8 | uint16 | uint32](dst []int64, src []T) {
	for i, v := range src {
		dst[i] = int64(v)
	}
}
