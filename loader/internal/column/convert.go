package column

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
)

// AsSlice returns b as elements of type T. The slice aliases b. b must be aligned for T, as tensors
// and scratch are; hosts are little-endian.
func AsSlice[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

// AsBytes returns the memory of v as bytes. The slice aliases v.
func AsBytes[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice(
		(*byte)(unsafe.Pointer(unsafe.SliceData(v))),
		len(v)*int(unsafe.Sizeof(v[0])),
	)
}

// Floats32 returns b as float32 elements. The slice aliases b.
func Floats32(b []byte) []float32 { return AsSlice[float32](b) }

// kernelBackend computes on the calling goroutine: the loader's workers are the threads.
var kernelBackend = cpu.New(1)

// Applied is a kernel.ApplyOp of one part with storage for its shapes, so that a call allocates
// nothing.
type Applied struct {
	op             kernel.ApplyOp
	parts          [1]kernel.Part
	src, out, rows [2]int
	plan           [5]kernel.Tensor
}

// Applies recycles Applied values. Applied.Run returns its receiver to it.
var Applies = sync.Pool{New: func() any { return new(Applied) }}

// Part sets the part of the operation: it converts src to dst in rows of elems elements. The result
// is valid until Run.
func (x *Applied) Part(
	dst []byte, to robocache.DType, src []byte, from robocache.DType, elems int, e kernel.Epilogue,
) *kernel.Part {
	x.src = [2]int{len(src) / elems / from.Size(), elems}
	x.out = [2]int{len(dst) / elems / to.Size(), elems}
	x.parts[0] = kernel.Part{
		Src:      kernel.Tensor{DType: from, Shape: x.src[:], Data: src},
		Out:      kernel.Tensor{DType: to, Shape: x.out[:], Data: dst},
		Epilogue: e,
	}
	x.op.Parts = x.parts[:]
	return &x.parts[0]
}

// setPlan sets the plan of the part's rows. Run reads and writes valid.
func (x *Applied) setPlan(p *kernel.Plan, valid []byte) {
	part := &x.parts[0]
	x.rows[0] = p.Len()
	for i, t := range []kernel.Tensor{
		{DType: robocache.Uint8, Data: AsBytes(p.Kind)},
		{DType: robocache.Int32, Data: AsBytes(p.Left)},
		{DType: robocache.Int32, Data: AsBytes(p.Right)},
		{DType: robocache.Float64, Data: AsBytes(p.Weight)},
		{DType: robocache.Uint8, Data: valid},
	} {
		t.Shape = x.rows[:1]
		x.plan[i] = t
	}
	part.Kind, part.Left, part.Right = &x.plan[0], &x.plan[1], &x.plan[2]
	part.Weight, part.Valid = &x.plan[3], &x.plan[4]
}

// Run executes the operation and recycles x, which must not be used after it.
func (x *Applied) Run() error {
	err := kernelBackend.Run(&x.op)
	x.parts[0], x.plan = kernel.Part{}, [5]kernel.Tensor{}
	Applies.Put(x)
	return err
}

// resample computes rows of a column by a plan. It writes the validity of each row to valid.
func resample(
	out []byte, dtype robocache.DType, src []byte, c *Column, p *kernel.Plan, e kernel.Epilogue,
	valid []byte,
) error {
	if p.Sums != nil { // kernel.ApplyOp does not support sums
		to := kernel.Dense(out, dtype, p.Len(), c.Elements)
		from := kernel.Dense(src, c.StoredDType, p.Sources, c.Elements)
		opt := kernel.Options{Rule: c.Time.Rule, Epilogue: e, Valid: valid}
		return kernel.Resample(to, from, p, opt)
	}
	copy(valid, p.Valid)
	x := Applies.Get().(*Applied)
	x.Part(out, dtype, src, c.StoredDType, c.Elements, e).Rule = c.Time.Rule
	x.setPlan(p, valid)
	return x.Run()
}

// Convert casts rows of elems elements and normalizes them, with a single rounding. Besides equal
// dtypes, it supports all casts to float and to int64.
func Convert(
	dst []byte, to robocache.DType, src []byte, from robocache.DType, elems int, norm *Affine,
) error {
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
			widenIntegers(out, AsSlice[int8](src))
		case robocache.Int16:
			widenIntegers(out, AsSlice[int16](src))
		case robocache.Int32:
			widenIntegers(out, AsSlice[int32](src))
		case robocache.Uint8:
			widenIntegers(out, src)
		case robocache.Uint16:
			widenIntegers(out, AsSlice[uint16](src))
		case robocache.Uint32:
			widenIntegers(out, AsSlice[uint32](src))
		default:
			copy(dst, src) // also uint64: torch has no such dtype, and indices fit into int64
		}
	}
	return nil
}

// widenIntegers converts integers to int64.
func widenIntegers[T int8 | int16 | int32 | uint8 | uint16 | uint32](dst []int64, src []T) {
	for i, v := range src {
		dst[i] = int64(v)
	}
}
