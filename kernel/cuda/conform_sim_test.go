//go:build linux

package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/cuda/tests/build"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// shuffled is the simulator: its seed alone gives the order of threads, the same one in each
// launch.
type shuffled struct{ *Hosted }

func (shuffled) Repeats() {}

// The same kernels and the same host code, on the host.
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
	t.Run("checked", func(t *testing.T) { // ten times slower: random ops only
		d := simulator(t, sim.Options{Seed: 2, Checked: true}, names...)
		// each tensor ends where its page does, but for an element: what lies between elements is
		// unsupported
		d.on.(*simulated).align = 8
		sweeps(t, &Hosted{d: d}, 60, 20)
	})
}
