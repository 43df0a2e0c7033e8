package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// bytesOf returns the memory of a slice.
func bytesOf[T any](x []T) []byte {
	var zero T
	return unsafe.Slice(
		(*byte)(unsafe.Pointer(unsafe.SliceData(x))),
		len(x)*int(unsafe.Sizeof(zero)),
	)
}

// benchOp returns an operation with n random points in a cube of side cells, and width features.
func benchOp(n, width, side int, mode kernel.VoxelMode, sparse bool) *kernel.VoxelOp {
	r := rand.New(rand.NewPCG(1, 2))
	points := make([]float32, 3*n)
	for i := range points {
		points[i] = r.Float32() * float32(side) * 0.1
	}
	op := &kernel.VoxelOp{
		Mode: mode, Size: [3]float32{0.1, 0.1, 0.1}, Grid: [3]int{side, side, side},
		Points: kernel.Tensor{DType: robocache.Float32, Shape: []int{n, 3}, Data: bytesOf(points)},
	}
	if mode.Featured() {
		features := make([]float32, n*width)
		for i := range features {
			features[i] = r.Float32()
		}
		op.Features = &kernel.Tensor{
			DType: robocache.Float32,
			Shape: []int{n, width},
			Data:  bytesOf(features),
		}
	}
	tensor := func(dt robocache.DType, shape ...int) *kernel.Tensor {
		t := &kernel.Tensor{DType: dt, Shape: shape}
		t.Data = make([]byte, t.Len()*dt.Size())
		return t
	}
	if sparse {
		op.Coords = tensor(robocache.Int32, n, 4)
		op.Counts = tensor(robocache.Int32, n)
		op.Found = tensor(robocache.Int64, 1)
		if mode.Featured() {
			op.Rows = tensor(robocache.Float32, n, width)
		}
		return op
	}
	l, err := op.Layout()
	if err != nil {
		panic(err)
	}
	op.Out = tensor(l.DType, l.Shape...)
	return op
}

// BenchmarkVoxelize measures the modes and layouts.
func BenchmarkVoxelize(b *testing.B) {
	for _, c := range []struct {
		n, width, side int
		mode           kernel.VoxelMode
		sparse         bool
	}{
		{500_000, 0, 128, kernel.Count, false},
		{500_000, 0, 128, kernel.Occupancy, false},
		{500_000, 4, 128, kernel.Average, false},
		{500_000, 8, 128, kernel.Average, false},
		{500_000, 8, 128, kernel.Maximum, false},
		{500_000, 4, 128, kernel.Average, true},
		{500_000, 8, 128, kernel.Average, true},
		{17_000, 4, 400, kernel.Average, true},
	} {
		for _, threads := range []int{1, 2} {
			name := fmt.Sprintf(
				"%s%d-sparse=%v-%d-threads%d",
				c.mode,
				c.width,
				c.sparse,
				c.n,
				threads,
			)
			b.Run(name, func(b *testing.B) {
				op, be := benchOp(c.n, c.width, c.side, c.mode, c.sparse), New(threads)
				b.ReportAllocs()
				for b.Loop() {
					if err := be.Run(op); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
