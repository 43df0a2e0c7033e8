package column

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
)

// AsSlice reads bytes as elements. Tensors and scratch begin at 8-byte boundaries at least; hosts are little-endian.
func AsSlice[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

// AsBytes is the memory of elements.
func AsBytes[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

func Floats32(b []byte) []float32 { return AsSlice[float32](b) }

// kernels computes on the goroutine that asks: the loader's workers are the threads.
var kernels = cpu.New(1)

// Applied is one part of a kernel.ApplyOp with room for its shapes, kept so that a call allocates nothing.
type Applied struct {
	op             kernel.ApplyOp
	parts          [1]kernel.Part
	src, out, rows [2]int
	plan           [5]kernel.Tensor
}

var Applies = sync.Pool{New: func() any { return new(Applied) }}

// Part readies a part from src to dst, of so many elements a row.
func (x *Applied) Part(dst []byte, to robocache.DType, src []byte, from robocache.DType, elems int, e kernel.Epilogue) *kernel.Part {
	x.src, x.out = [2]int{len(src) / elems / from.Size(), elems}, [2]int{len(dst) / elems / to.Size(), elems}
	x.parts[0] = kernel.Part{Src: kernel.Tensor{DType: from, Shape: x.src[:], Data: src}, Out: kernel.Tensor{DType: to, Shape: x.out[:], Data: dst}, Epilogue: e}
	x.op.Parts = x.parts[:]
	return &x.parts[0]
}

// planned gives the part its rows. valid is read and written.
func (x *Applied) planned(p *kernel.Plan, valid []byte) {
	part := &x.parts[0]
	x.rows[0] = p.Len()
	for i, t := range []kernel.Tensor{
		{DType: robocache.Uint8, Data: AsBytes(p.Kind)}, {DType: robocache.Int32, Data: AsBytes(p.Left)}, {DType: robocache.Int32, Data: AsBytes(p.Right)},
		{DType: robocache.Float64, Data: AsBytes(p.Weight)}, {DType: robocache.Uint8, Data: valid},
	} {
		t.Shape = x.rows[:1]
		x.plan[i] = t
	}
	part.Kind, part.Left, part.Right, part.Weight, part.Valid = &x.plan[0], &x.plan[1], &x.plan[2], &x.plan[3], &x.plan[4]
}

func (x *Applied) Run() error {
	err := kernels.Run(&x.op)
	x.parts[0], x.plan = kernel.Part{}, [5]kernel.Tensor{}
	Applies.Put(x)
	return err
}

// resample makes rows of a column by a plan, at most as the kernel's backends can. valid is written.
func resample(out []byte, dtype robocache.DType, src []byte, c *Column, p *kernel.Plan, e kernel.Epilogue, valid []byte) error {
	if p.Sums != nil { // no op has this mode
		to, from := kernel.Dense(out, dtype, p.Len(), c.Elements), kernel.Dense(src, c.StoredDType, p.Sources, c.Elements)
		return kernel.Resample(to, from, p, kernel.Options{Rule: c.Time.Rule, Epilogue: e, Valid: valid})
	}
	copy(valid, p.Valid)
	x := Applies.Get().(*Applied)
	x.Part(out, dtype, src, c.StoredDType, c.Elements, e).Rule = c.Time.Rule
	x.planned(p, valid)
	return x.Run()
}

// Convert casts rows of so many elements into a tensor, and normalises them before the only rounding. from is to, or a reference dtype's source.
func Convert(dst []byte, to robocache.DType, src []byte, from robocache.DType, elems int, norm *Affine) error {
	switch {
	case len(dst) == 0:
	case to.Float() && (from != to || norm != nil):
		x := Applies.Get().(*Applied)
		x.Part(dst, to, src, from, elems, norm.Epilogue(0))
		return x.Run()
	case to != robocache.Int64:
		copy(dst, src)
	default:
		out := AsSlice[int64](dst)
		switch from {
		case robocache.Int8:
			widen(out, AsSlice[int8](src))
		case robocache.Int16:
			widen(out, AsSlice[int16](src))
		case robocache.Int32:
			widen(out, AsSlice[int32](src))
		case robocache.Uint8:
			widen(out, src)
		case robocache.Uint16:
			widen(out, AsSlice[uint16](src))
		case robocache.Uint32:
			widen(out, AsSlice[uint32](src))
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
