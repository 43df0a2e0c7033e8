package cpu

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// TestConform runs all vectors on one and on several threads.
func TestConform(t *testing.T) {
	for _, threads := range []int{3, 1} {
		if threads == 1 && testing.Short() {
			break
		}
		ran, failures := conform.Run(New(threads))
		for _, err := range failures {
			t.Error(err)
		}
		if ran < 500 {
			t.Errorf("%d vectors", ran)
		}
	}
}

// TestNothingIsAllocated covers cpu.C8. It excludes what the checks allocate and what sync.Pool
// loses to a garbage collection.
func TestNothingIsAllocated(t *testing.T) {
	if raced {
		t.Skip("sync.Pool forgets at random under the race detector")
	}
	k := New(1)
	op := shape{8, 40, 30, 14, robocache.Float32, kernel.Linear}.op()
	apply := &kernel.ApplyOp{Parts: []kernel.Part{
		{
			Src: kernel.Tensor{
				DType: robocache.Uint8,
				Shape: []int{4, 3 * 64 * 64},
				Data:  make([]byte, 4*3*64*64),
			},
			Out: kernel.Tensor{
				DType: robocache.Float32,
				Shape: []int{4, 3 * 64 * 64},
				Data:  make([]byte, 16*3*64*64),
			},
			Epilogue: kernel.Epilogue{
				Unit:  true,
				Norm:  kernel.NewMeanStd([]float64{.4, .5, .4}, []float64{.2, .2, .2}),
				Plane: 64 * 64,
			},
		},
	}}
	for name, f := range map[string][2]func() error{
		"fuse": {func() error { return kernel.CheckHost(op) }, func() error { return k.Run(op) }},
		"apply": {
			func() error { return kernel.CheckHost(apply) },
			func() error { return k.Run(apply) },
		},
	} {
		var n [2]float64
		for i := range f {
			n[i] = testing.AllocsPerRun(200, func() {
				if err := f[i](); err != nil {
					t.Fatal(err)
				}
			})
		}
		if n[1] > n[0]+0.5 {
			t.Errorf("%s: %v allocations, its checks %v", name, n[1], n[0])
		}
	}
}
