//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// TestCrowdedCells checks cells with many points, which the block sorts and adds up together. Grids
// that are too large to count cell by cell use lists.
func TestCrowdedCells(t *testing.T) {
	d := simulator(
		t,
		sim.Options{Seed: 3, Checked: true},
		"voxel_tile",
		"voxel_count",
		"voxel_rows",
	)
	h := &Hosted{d: d}
	for i, c := range []struct {
		mode    kernel.VoxelMode
		grid    [3]int
		columns int
		dtype   robocache.DType
		sparse  bool
		points  int
	}{
		{kernel.Average, [3]int{4, 4, 4}, 8, robocache.Float32, false, 3000},
		{kernel.Sum, [3]int{4, 5, 4}, 3, robocache.Float64, false, 3000},
		{kernel.Maximum, [3]int{4, 4, 4}, 8, robocache.Float32, false, 3000},
		{kernel.FirstPoint, [3]int{4, 4, 4}, 4, robocache.BFloat16, false, 1500},
		{kernel.Average, [3]int{4, 4, 4}, 36, robocache.Float16, true, 2500},
		{kernel.Minimum, [3]int{500, 400, 300}, 8, robocache.Float32, true, 2500},
		{kernel.Average, [3]int{1 << 20, 1 << 20, 1 << 20}, 4, robocache.Float32, true, 1500},
		{kernel.Sum, [3]int{70, 300, 256}, 4, robocache.Float32, false, 300},
		{kernel.Count, [3]int{300, 300, 300}, 0, 0, false, 300},
	} {
		x := crowded(uint64(i), c.mode, c.grid, c.columns, c.dtype, c.sparse, c.points)
		y := crowded(uint64(i), c.mode, c.grid, c.columns, c.dtype, c.sparse, c.points)
		if err := (kernel.Reference{}).Run(x); err != nil {
			t.Fatal(err)
		}
		if err := h.Run(y); err != nil {
			t.Error(i, c, err)
			continue
		}
		for j, a := range x.Tensors() {
			if b := y.Tensors()[j]; !bytes.Equal(a.Data, b.Data) {
				t.Error(i, c, "tensor", j, "differs")
			}
		}
	}
}

// crowded returns a cloud with half of its points in one cell and a tenth in another. The others
// are random.
func crowded(
	seed uint64,
	mode kernel.VoxelMode,
	grid [3]int,
	columns int,
	dt robocache.DType,
	sparse bool,
	n int,
) *kernel.VoxelOp {
	r := rand.New(rand.NewPCG(7, seed))
	op := &kernel.VoxelOp{Mode: mode, Grid: grid, Size: [3]float32{1, 1, 1}}
	blank := func(dt robocache.DType, shape ...int) *kernel.Tensor {
		t := &kernel.Tensor{DType: dt, Shape: shape}
		t.Data = make([]byte, t.Len()*dt.Size())
		return t
	}
	op.Points = *blank(robocache.Float32, n, 3)
	for i := range n {
		for a, g := range grid {
			x := r.Float32() * float32(min(g, 300))
			switch i % 10 {
			case 0, 2, 4, 6, 8:
				x = 1.5
			case 1:
				x = 2.25
			}
			binary.LittleEndian.PutUint32(op.Points.Data[12*i+4*a:], math.Float32bits(x))
		}
	}
	if columns > 0 {
		op.Features = blank(dt, n, columns)
		for i := range n * columns {
			switch x := r.NormFloat64(); dt {
			case robocache.Float64:
				binary.LittleEndian.PutUint64(op.Features.Data[8*i:], math.Float64bits(x))
			case robocache.Float32:
				binary.LittleEndian.PutUint32(op.Features.Data[4*i:], math.Float32bits(float32(x)))
			case robocache.Float16:
				binary.LittleEndian.PutUint16(op.Features.Data[2*i:], kernel.Float64to16(x))
			default:
				binary.LittleEndian.PutUint16(op.Features.Data[2*i:], kernel.Float64toB16(x))
			}
		}
	}
	op.Stats = blank(robocache.Int64, 3)
	if sparse {
		op.Coords = blank(robocache.Int32, n, 4)
		op.Rows = blank(robocache.Float32, n, columns)
		op.Counts = blank(robocache.Int32, n)
		op.Found = blank(robocache.Int64, 1)
		return op
	}
	l, err := op.Layout()
	if err != nil {
		panic(fmt.Sprint("the test itself: ", err))
	}
	op.Out = blank(l.DType, l.Shape...)
	return op
}
