package kernel

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// floats returns a host tensor of float32.
func floats(shape []int, x ...float32) Tensor {
	t := Tensor{DType: robocache.Float32, Shape: shape, Data: make([]byte, 4*len(x))}
	for i, v := range x {
		binary.LittleEndian.PutUint32(t.Data[4*i:], math.Float32bits(v))
	}
	return t
}

// zeros returns a host tensor in C order.
func zeros(dt robocache.DType, shape ...int) *Tensor {
	t := &Tensor{DType: dt, Shape: shape}
	t.Data = make([]byte, t.Len()*dt.Size())
	return t
}

// grid returns an operation with a dense result on a grid of cells of size 1. If the options are
// invalid, there is no result.
func grid(points Tensor, mode VoxelMode, g ...int) *VoxelOp {
	op := &VoxelOp{
		Points: points,
		Mode:   mode,
		Size:   [3]float32{1, 1, 1},
		Grid:   [3]int{g[0], g[1], g[2]},
	}
	l, err := op.Layout()
	if err != nil {
		return op
	}
	op.Out = zeros(l.DType, l.Shape...)
	return op
}

// TestEarlierVoxels checks cases that the earlier RoboCache computed wrongly.
func TestEarlierVoxels(t *testing.T) {
	for _, c := range []struct {
		grid []int
		at   int
	}{{[]int{4, 4, 4}, 0*16 + 1*4 + 3}, {[]int{2, 3, 5}, 0*15 + 1*5 + 3}} {
		op := grid(floats([]int{1, 3}, 0.5, 1.5, 3.5), Count, c.grid...)
		if err := (Reference{}).Run(op); err != nil {
			t.Fatal(err)
		}
		for i := range op.Out.Len() {
			want := uint32(0)
			if i == c.at {
				want = 1
			}
			if got := le.Uint32(op.Out.Data[4*i:]); got != want {
				t.Errorf("grid %v: cell %d holds %d, want %d", c.grid, i, got, want)
			}
		}
	}
	f := floats([]int{2, 1}, -3, -1)
	op := &VoxelOp{
		Points:   floats([]int{2, 3}, 0, 0, 0, 0, 0, 0),
		Features: &f,
		Mode:     Maximum,
		Size:     [3]float32{1, 1, 1},
		Grid:     [3]int{1, 1, 1},
		Out:      zeros(robocache.Float32, 1, 1, 1, 1),
	}
	if err := (Reference{}).Run(op); err != nil {
		t.Fatal(err)
	}
	if got := math.Float32frombits(le.Uint32(op.Out.Data)); got != -1 {
		t.Errorf("max of -3 and -1 is %v", got)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	op = grid(
		floats([]int{5, 3}, nan, 0, 0, 0, inf, 0, 0, 0, 4, -0.1, 0, 0, 1, 1, 1),
		Count,
		4,
		4,
		4,
	)
	op.Stats = zeros(robocache.Int64, 3)
	if err := (Reference{}).Run(op); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 2, 2} {
		if got := op.Stats.int64At(i); got != want {
			t.Errorf("stats %d: %d, want %d", i, got, want)
		}
	}
	op = &VoxelOp{
		Points: floats([]int{1, 3}, 1.3, 0, 0),
		Mode:   Count,
		Size:   [3]float32{0.1, 1, 1},
		Grid:   [3]int{20, 1, 1},
		Out:    zeros(robocache.Int32, 20, 1, 1),
	}
	if err := (Reference{}).Run(op); err != nil {
		t.Fatal(err)
	}
	if le.Uint32(op.Out.Data[4*12:]) != 1 {
		t.Error("1.3 at a size of 0.1 is not in cell 12: a reciprocal is no division")
	}
}

// TestVoxelPhrases checks the texts of errors that callers look for.
func TestVoxelPhrases(t *testing.T) {
	good := func() *VoxelOp { return grid(floats([]int{1, 3}, 0, 0, 0), Count, 2, 3, 4) }
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		phrase string
		class  error
		change func(op *VoxelOp)
	}{
		{"voxel_size must be positive", robocache.ErrMisuse, func(op *VoxelOp) { op.Size[1] = 0 }},
		{"voxel_size must be positive", robocache.ErrMisuse, func(op *VoxelOp) { op.Size[1] = -1 }},
		{
			"voxel_size must be positive",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Size[1] = nan },
		},
		{
			"voxel size must be positive",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Size[1] = float32(math.Inf(1)) },
		},
		{"not finite", robocache.ErrMisuse, func(op *VoxelOp) { op.Min[0] = nan }},
		{"Invalid grid dimensions", robocache.ErrMisuse, func(op *VoxelOp) { op.Grid[2] = 0 }},
		{"Invalid grid dimensions", robocache.ErrMisuse, func(op *VoxelOp) { op.Grid[0] = -5 }},
		{
			"points must have shape",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Points.Shape = []int{3} },
		},
		{
			"points must have shape",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Points.Shape = []int{1, 2} },
		},
		{
			"features required for mean/max modes",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Mode = Average },
		},
		{"features required", robocache.ErrMisuse, func(op *VoxelOp) { op.Mode = FirstPoint }},
		{"Invalid mode", robocache.ErrMisuse, func(op *VoxelOp) { op.Mode = 77 }},
		{
			"unsupported dtype",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Points.DType = robocache.Int32 },
		},
		{
			"unsupported dtype",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Out.DType = robocache.Float32 },
		},
		{
			"out has wrong shape",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Out = zeros(robocache.Int32, 2, 3, 5) },
		},
		{
			"out overlaps itself",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Out.Stride = []int{0, 4, 1} },
		},
		{
			"memory budget",
			robocache.ErrResourceLimit,
			func(op *VoxelOp) { op.Grid = [3]int{1 << 22, 1 << 22, 1 << 22} },
		},
		{
			"memory budget",
			robocache.ErrResourceLimit,
			func(op *VoxelOp) { op.Grid = [3]int{1 << 21, 1 << 21, 1 << 20} },
		},
		{
			"memory budget",
			robocache.ErrResourceLimit,
			func(op *VoxelOp) { op.Budget = 2*3*4*4 - 1 },
		},
		{
			"must be on the same device",
			robocache.ErrMisuse,
			func(op *VoxelOp) { op.Out.Addr = 4096 },
		},
		{"Batch size mismatch", robocache.ErrMisuse, func(op *VoxelOp) {
			op.Points.Shape, op.Lengths = []int{1, 1, 3}, zeros(robocache.Int64, 2)
		}},
		{"length mismatch", robocache.ErrMisuse, func(op *VoxelOp) {
			f := floats([]int{2, 1}, 1, 2)
			op.Mode, op.Features = Sum, &f
		}},
	} {
		op := good()
		c.change(op)
		err := op.Check()
		if err == nil || !strings.Contains(err.Error(), c.phrase) || !errors.Is(err, c.class) {
			t.Errorf("%q: %v", c.phrase, err)
		}
	}
	op := good()
	op.Outside, op.Points = FailOutside, floats([]int{2, 3}, 0, 0, 0, 2, 0, 0)
	if err := (Reference{}).Run(op); err == nil ||
		!strings.Contains(err.Error(), "row 1, tensor points: point outside the grid") {
		t.Error(err)
	}
	op = good()
	op.Points.Data = op.Out.Data
	if err := (Reference{}).Run(op); err == nil ||
		!strings.Contains(err.Error(), "out aliases points") {
		t.Error(err)
	}
}
