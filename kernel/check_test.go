package kernel

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestHostileTensors checks that impossible sizes are rejected before memory is read or allocated.
func TestHostileTensors(t *testing.T) {
	f32 := func(data int, shape, stride []int) Tensor {
		return Tensor{
			DType:  robocache.Float32,
			Shape:  shape,
			Stride: stride,
			Data:   make([]byte, data),
		}
	}
	i64 := func(shape, stride []int, values ...int64) Tensor {
		x := Tensor{DType: robocache.Int64, Shape: shape, Stride: stride}
		for _, v := range values {
			x.Data = le.AppendUint64(x.Data, uint64(v))
		}
		return x
	}
	const many = 1<<31 + 8
	base := f32(8, []int{1, 1}, nil)
	base.Base = math.MaxInt
	offsets := i64([]int{2}, nil, 0, 1<<40)
	points, cells := f32(24, []int{2, 3}, nil), f32(32, []int{2, 2, 2}, nil)
	onPoints := &Tensor{DType: robocache.Float32, Shape: []int{1, 1, 2}, Data: points.Data}
	depth := f32(48, []int{2, 2}, nil)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"base beyond memory": {
			CheckHost(&ApplyOp{Parts: []Part{{Src: base, Out: f32(4, []int{1, 1}, nil)}}}),
			"strides reach beyond any memory",
		},
		"rows beyond int32": {
			(&ApplyOp{
				Parts: []Part{
					{
						Src: f32(4, []int{many, 1}, []int{0, 0}),
						Out: Tensor{DType: robocache.Float32, Shape: []int{many, 1}},
					},
				},
			}).Check(),
			"too many",
		},
		"ragged rows": {(Reference{}).Run(&FuseOp{
			Series: []Series{
				{
					Values:  f32(4, []int{1 << 40, 1}, []int{0, 0}),
					Times:   i64([]int{1 << 40}, []int{0}, 5),
					Offsets: &offsets,
				},
			},
			Targets: i64([]int{1}, nil, 5), Out: f32(4, []int{1, 1, 1}, nil),
		}), "too many samples"},
		"scratch's strides": {(&VoxelOp{
			Points: points,
			Size:   [3]float32{1, 1, 1}, Grid: [3]int{2, 2, 2}, Mode: Count, Out: &Tensor{
				DType: robocache.Int32,
				Shape: []int{2, 2, 2},
				Data:  make([]byte, 32),
			},
			Scratch: &Tensor{DType: robocache.Uint8, Shape: []int{2}, Stride: []int{}},
		}).Check(), "length mismatch"},
		"voxels on points": {
			(&VoxelOp{
				Points: points,
				Size:   [3]float32{1, 1, 1},
				Grid:   [3]int{1, 1, 2},
				Mode:   Occupancy,
				Out:    onPoints,
			}).Check(),
			"out aliases points",
		},
		"points on depth": {
			(&DepthOp{
				Depth:  depth,
				Camera: [4]float32{1, 1, 0, 0},
				Out:    Tensor{DType: robocache.Float32, Shape: []int{2, 2, 3}, Data: depth.Data},
			}).Check(),
			"out aliases depth",
		},
		"weight on value": {
			(&TSDFOp{
				Depth:     depth,
				Camera:    [4]float32{1, 1, 0, 0},
				Size:      [3]float32{1, 1, 1},
				Truncate:  1,
				MaxWeight: 1,
				Value:     cells,
				Weight:    cells,
			}).Check(),
			"out aliases weight",
		},
		"planes beyond counting": {
			(&ApplyOp{
				Parts: []Part{
					{
						Src: f32(32, []int{1, 8}, nil),
						Out: f32(32, []int{1, 8}, nil),
						Epilogue: Epilogue{
							Norm:  NewMeanStd(make([]float64, 4), make([]float64, 4)),
							Plane: 1 << 62,
						},
					},
				},
			}).Check(),
			"length mismatch",
		},
		"columns beyond counting": {wideStreams(8).Check(), "more elements than can be counted"},
	} {
		var e *robocache.Error
		if !errors.As(c.err, &e) || !strings.Contains(e.Msg, c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
}

// wideStreams returns streams without samples. They have so many columns that the column count
// overflows to 1.
func wideStreams(n int) *FuseOp {
	times := Tensor{DType: robocache.Int64, Shape: []int{0}}
	op := &FuseOp{
		Targets: Tensor{DType: robocache.Int64, Shape: []int{1}, Data: make([]byte, 8)},
		Out:     Tensor{DType: robocache.Float32, Shape: []int{1, 1, 1}, Data: make([]byte, 4)},
	}
	for range n {
		op.Series = append(
			op.Series,
			Series{
				Values: Tensor{DType: robocache.Float32, Shape: []int{1, 0, 1 << 61}},
				Times:  times,
				Rule:   Rule{Edge: Mask},
			},
		)
	}
	op.Series = append(
		op.Series,
		Series{
			Values: Tensor{DType: robocache.Float32, Shape: []int{1, 0, 1}},
			Times:  times,
			Rule:   Rule{Edge: Mask},
		},
	)
	return op
}

// TestCheckOfStreamsAllocates checks that the memory allocated by Check does not grow with the
// number of streams.
func TestCheckOfStreamsAllocates(t *testing.T) {
	form := func(shape ...int) Tensor { return Tensor{DType: robocache.Float32, Shape: shape} }
	allocations := func(streams int) float64 {
		op := &FuseOp{Targets: form(5), Out: form(1, 5, 4*streams), Series: make([]Series, streams)}
		for i := range op.Series {
			op.Series[i] = Series{Values: form(1, 8, 4), Times: form(8)}
		}
		if err := op.Check(); err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(50, func() { _ = op.Check() })
	}
	if few, many := allocations(2), allocations(30); many > few+10 { // the list of tensors grows
		t.Errorf("%v allocations for 2 streams, %v for 30", few, many)
	}
}
