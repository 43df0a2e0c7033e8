//go:build linux

package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/cuda/tests/build"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// shuffled is the simulator. Its order of threads depends only on its seed and is the same in each
// launch.
type shuffled struct{ *Hosted }

// Repeats marks that each run does the same things in the same order; see kernel.Reference.
func (shuffled) Repeats() {}

// TestConformOnSimulator runs the same kernels and the same host code on the host.
func TestConformOnSimulator(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles all kernels for the host, and runs all vectors: minutes")
	}
	names, err := build.Names("src")
	if err != nil {
		t.Fatal(err)
	}
	d := simulator(t, sim.Options{Seed: 1}, names...)
	suite(t, shuffled{&Hosted{d: d}}, 200, 60)
	t.Run("checked", func(t *testing.T) { // ten times slower, so only random operations
		d := simulator(t, sim.Options{Seed: 2, Checked: true}, names...)
		// each tensor ends one element before the end of a page; addresses between elements are
		// unsupported
		d.launcher.(*simulated).align = 8
		sweeps(t, &Hosted{d: d}, 60, 20)
	})
}
