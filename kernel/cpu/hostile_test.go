package cpu

import (
	"bytes"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestWideRowsKeepTheirValidity checks that wide rows are split by columns only if no column
// changes the row's validity.
func TestWideRowsKeepTheirValidity(t *testing.T) {
	const rows, cols = 5, 1 << 17
	part := func() *kernel.ApplyOp {
		src := make([]byte, 2*rows*cols*4)
		for i := range 2 * rows * cols {
			le.PutUint32(src[4*i:], math.Float32bits(float32(i%7)+1))
		}
		// a quaternion of the left sample of row 2, beyond the first block
		clear(src[4*(4*cols+cols/2):][:16])
		kinds := make([]byte, rows)
		left := make([]byte, 4*rows)
		right := make([]byte, 4*rows)
		weight := make([]byte, 8*rows)
		valid := bytes.Repeat([]byte{1}, rows)
		for i := range rows {
			kinds[i] = byte(kernel.Blend)
			le.PutUint32(left[4*i:], uint32(2*i))
			le.PutUint32(right[4*i:], uint32(2*i+1))
			le.PutUint64(weight[8*i:], math.Float64bits(0.25))
		}
		tensor := func(d robocache.DType, data []byte) *kernel.Tensor {
			return &kernel.Tensor{DType: d, Shape: []int{rows}, Data: data}
		}
		return &kernel.ApplyOp{Parts: []kernel.Part{
			{
				Src: kernel.Tensor{
					DType: robocache.Float32,
					Shape: []int{2 * rows, cols},
					Data:  src,
				},
				Out: kernel.Tensor{
					DType: robocache.Float32,
					Shape: []int{rows, cols},
					Data:  make([]byte, rows*cols*4),
				},
				Rule: kernel.Rule{Mode: kernel.Slerp},
				Kind: tensor(robocache.Uint8, kinds),
				Left: tensor(robocache.Int32, left),
				Right: tensor(
					robocache.Int32,
					right,
				),
				Weight: tensor(robocache.Float64, weight),
				Valid:  tensor(robocache.Uint8, valid),
			},
		}}
	}
	for _, mode := range []kernel.Mode{kernel.Slerp, kernel.Linear} {
		want, got := part(), part()
		want.Parts[0].Rule.Mode, got.Parts[0].Rule.Mode = mode, mode
		if err := (kernel.Reference{}).Run(want); err != nil {
			t.Fatal(err)
		}
		if err := New(4).Run(got); err != nil {
			t.Fatal(err)
		}
		if w, g := want.Parts[0].Valid.Data, got.Parts[0].Valid.Data; !bytes.Equal(w, g) {
			t.Errorf("%v: valid %v, want %v", mode, g, w)
		}
	}
}

// TestNothingOfGreatWidth checks that huge rows cost no memory if another extent is 0.
func TestNothingOfGreatWidth(t *testing.T) {
	const huge = 1 << 50
	f32 := func(shape ...int) kernel.Tensor {
		return kernel.Tensor{
			DType: robocache.Float32,
			Shape: shape,
		}
	}
	i64 := func(shape ...int) kernel.Tensor {
		return kernel.Tensor{
			DType: robocache.Int64,
			Shape: shape,
		}
	}
	found := i64(1)
	found.Data = make([]byte, 8)
	i32 := kernel.Tensor{DType: robocache.Int32, Shape: []int{0, 4}}
	one := f32(1, 3)
	one.Data = make([]byte, 12)
	wide := kernel.Tensor{
		DType:  robocache.Float32,
		Shape:  []int{1, huge},
		Stride: []int{0, 0},
		Data:   make([]byte, 4),
	}
	none := f32(0, huge)
	norm := kernel.NewMeanStd(make([]float64, 4096), make([]float64, 4096))
	for name, run := range map[string]func(b *Backend) error{
		"voxelize": func(b *Backend) error {
			return b.Run(&kernel.VoxelOp{
				Points:   one,
				Features: &wide,
				Mode:     kernel.Average,
				Size:     [3]float32{1, 1, 1},
				Grid:     [3]int{2, 2, 2},
				Coords:   &i32,
				Rows:     &none,
				Found:    &found,
			})
		},
		"fuse_grad": func(b *Backend) error {
			return b.Run(&kernel.FuseGradOp{
				Series:  kernel.Series{Values: f32(1, 0, huge), Times: i64(0)},
				Targets: i64(0),
				Out:     f32(1, 0, huge),
				Grad:    f32(1, 0, huge),
			})
		},
		"fuse": func(b *Backend) error {
			return b.Run(&kernel.FuseOp{
				Series: []kernel.Series{
					{Values: f32(1, 0, huge), Times: i64(0), Epilogue: kernel.Epilogue{Norm: norm}},
				},
				Targets: i64(0),
				Out:     f32(1, 0, huge),
			})
		},
		"apply": func(b *Backend) error {
			return b.Run(&kernel.ApplyOp{
				Parts: []kernel.Part{
					{Src: f32(0, huge), Out: f32(0, huge), Epilogue: kernel.Epilogue{Norm: norm}},
				},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(New(2)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExpandedImage checks an expanded image with more pixels than any memory holds. Pixels that
// are not read must cost nothing.
func TestExpandedImage(t *testing.T) {
	op := func() *kernel.TSDFOp {
		x := &kernel.TSDFOp{
			Depth: kernel.Tensor{
				DType:  robocache.Float32,
				Shape:  []int{1 << 30, 1 << 30},
				Stride: []int{0, 0},
				Data:   make([]byte, 4),
			},
			Camera: [4]float32{9, 9, 2, 2},
			View: [12]float32{
				1,
				0,
				0,
				0,
				0,
				1,
				0,
				0,
				0,
				0,
				1,
				0,
			},
			Size:      [3]float32{1, 1, 1},
			Truncate:  1,
			MaxWeight: 4,
		}
		le.PutUint32(x.Depth.Data, math.Float32bits(2))
		for _, v := range []*kernel.Tensor{&x.Value, &x.Weight} {
			*v = kernel.Tensor{
				DType: robocache.Float32,
				Shape: []int{3, 3, 3},
				Data:  make([]byte, 4*27),
			}
		}
		return x
	}
	want, got := op(), op()
	if err := (kernel.Reference{}).Run(want); err != nil {
		t.Fatal(err)
	}
	if err := New(2).Run(got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Value.Data, got.Value.Data) ||
		bytes.Equal(want.Weight.Data, make([]byte, 4*27)) {
		t.Errorf("%v, want %v", got.Value.Data, want.Value.Data)
	}
}

// broken panics on every thread.
type broken struct{}

func (broken) beginWorker(*worker) {}

func (broken) runUnit(*worker, int) bool { panic("broken") }

// TestPanicsAreTheCallers covers cpu.C9: a panic on any thread reaches the caller after all other
// threads have ended.
func TestPanicsAreTheCallers(t *testing.T) {
	for name, run := range map[string]func(){
		"worker group": func() { new(workerGroup).runTask(broken{}, 100, 4) },
		"each":         func() { runThreads(4, func(int) { panic("broken") }) },
	} {
		func() {
			defer func() {
				if r := recover(); r != "broken" {
					t.Errorf("%s: recovered %v", name, r)
				}
			}()
			run()
		}()
	}
}
