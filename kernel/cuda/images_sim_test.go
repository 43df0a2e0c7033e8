//go:build linux

package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// TestImagesOnSimulator checks that images augmented by the kernel equal those of the host to the
// bit, for the vectors and for random ones. It also detects races, wrong barriers and accesses
// outside memory.
func TestImagesOnSimulator(t *testing.T) {
	d := simulator(t, sim.Options{Seed: 5, Checked: true}, "images")
	d.launcher.(*simulated).align = 1 // each tensor ends at the end of a page
	h := &Hosted{d: d}
	ran, failures := conform.RunImages(h)
	report(t, "vectors of images", ran, failures)
	if err := sweep.Images(kernel.Reference{}, h, 3, 40); err != nil {
		t.Error(err)
	}
	d.launcher.(*simulated).align, d.launcher.(*simulated).before = 16, true
	if err := sweep.Images(kernel.Reference{}, h, 4, 40); err != nil {
		t.Error(err)
	}
}
