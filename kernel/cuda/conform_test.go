package cuda

import (
	"os"
	"strconv"
	"testing"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// suite runs all tests of package conform on a back end: random operations compared with the
// reference, and all vectors.
func suite(t *testing.T, b kernel.Backend, fuses, voxels int) {
	t.Helper()
	sweeps(t, b, fuses, voxels)
	ran, failures := conform.Run(b)
	report(t, "vectors", ran, failures)
}

// sweeps compares random operations with the reference.
func sweeps(t *testing.T, b kernel.Backend, fuses, voxels int) {
	t.Helper()
	ran, failures := sweep.Ops(kernel.Reference{}, b, 1, fuses)
	report(t, "sweep", ran, failures)
	if ran < fuses/2 {
		t.Errorf("of %d ops %d were supported", fuses, ran)
	}
	for what, f := range map[string]func(a, b kernel.Backend, seed uint64, n int) error{
		"voxels": sweep.Voxels,
		"depth":  sweep.Depth,
		"tsdf":   sweep.TSDF,
	} {
		if err := f(kernel.Reference{}, b, 1, voxels); err != nil {
			t.Errorf("sweep of %s: %v", what, err)
		}
	}
	if err := sweep.Images(kernel.Reference{}, b, 1, voxels); err != nil {
		t.Errorf("sweep of images: %v", err)
	}
}

// report logs the number of cases and reports the first 20 failures.
func report(t *testing.T, what string, ran int, failures []error) {
	t.Helper()
	t.Logf("%s: %d ran, %d failed", what, ran, len(failures))
	for i, err := range failures {
		if i == 20 {
			t.Errorf("and %d more", len(failures)-i)
			break
		}
		t.Errorf("%s: %v", what, err)
	}
}

// TestConformOnGPU compares a GPU with the reference, also in graphs.
func TestConformOnGPU(t *testing.T) {
	d := device(t)
	n := 3000
	// use fewer under a sanitizer
	if s, err := strconv.Atoi(os.Getenv("ROBOCACHE_SWEEP")); err == nil {
		n = s
	}
	suite(t, &Hosted{d: d, stream: stream(t, d)}, n, n/3)
	// captured operations are not checked, so vectors of errors are left out
	t.Run("graphs", func(t *testing.T) {
		ran, failures := sweep.Ops(
			kernel.Reference{},
			graphed{&Hosted{d: d, stream: stream(t, d)}},
			1,
			n/10,
		)
		for _, err := range failures {
			t.Error(err)
		}
		t.Log(ran, "ran in graphs")
	})
}
