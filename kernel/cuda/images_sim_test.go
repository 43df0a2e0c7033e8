//go:build linux

package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// Images augmented by the kernel are those of the host, to the bit: the vectors, and random ones
// beside the reference; races, barriers and accesses outside memory are found.
func TestImagesOnSimulator(t *testing.T) {
	d := simulator(t, sim.Options{Seed: 5, Checked: true}, "images")
	d.on.(*simulated).align = 1 // each tensor ends where its page does
	h := &Hosted{d: d}
	ran, failures := conform.RunImages(h)
	report(t, "vectors of images", ran, failures)
	if err := sweep.Images(kernel.Reference{}, h, 3, 40); err != nil {
		t.Error(err)
	}
	d.on.(*simulated).align, d.on.(*simulated).before = 16, true
	if err := sweep.Images(kernel.Reference{}, h, 4, 40); err != nil {
		t.Error(err)
	}
}
