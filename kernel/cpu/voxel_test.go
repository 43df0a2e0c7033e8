package cpu

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// TestVoxelVectors uses each thread count with the smallest number of points per thread, so that
// small operations run on several threads too.
func TestVoxelVectors(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		ran, failures := conform.RunVoxels(small{New(threads)})
		if ran < 300 {
			t.Errorf("only %d cases ran", ran)
		}
		for i, f := range failures {
			if i == 10 {
				t.Fatalf("%d threads: and %d more of %d", threads, len(failures)-i, ran)
			}
			t.Errorf("%d threads: %v", threads, f)
		}
	}
}

// small runs operations of any size on several threads.
type small struct{ *Backend }

// Run implements kernel.Backend.
func (s small) Run(op kernel.Op) error {
	defer func(n, m int) { minPointsPerThread, minPixels = n, m }(minPointsPerThread, minPixels)
	minPointsPerThread, minPixels = 3, 1
	return s.Backend.Run(op)
}

// TestVoxelSweep compares random operations with the reference.
func TestVoxelSweep(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 300
	}
	for i, threads := range []int{1, 2, 4} {
		if err := sweep.Voxels(kernel.Reference{}, small{New(threads)}, uint64(100+i), n); err !=
			nil {
			t.Errorf("%d threads: %v", threads, err)
		}
		if err := sweep.Depth(kernel.Reference{}, small{New(threads)}, uint64(100+i), n/4); err !=
			nil {
			t.Errorf("%d threads: %v", threads, err)
		}
		if err := sweep.TSDF(kernel.Reference{}, small{New(threads)}, uint64(100+i), n/4); err !=
			nil {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}
