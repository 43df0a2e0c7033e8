//go:build linux

package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/cuda/internal/build"
	"github.com/goatnote-inc/robocache/kernel/cuda/sim"
)

// The same kernels and the same host code, on the host.
func TestConformOnSimulator(t *testing.T) {
	names, err := build.Names("src")
	if err != nil {
		t.Fatal(err)
	}
	d := simulator(t, sim.Options{Seed: 1}, names...)
	suite(t, &Hosted{d: d}, 300, 100)
	if testing.Short() {
		return
	}
	t.Run("checked", func(t *testing.T) {
		d := simulator(t, sim.Options{Seed: 2, Checked: true}, names...)
		d.on.(*simulated).align = 1 // each tensor ends where its page does
		suite(t, &Hosted{d: d}, 100, 30)
	})
}
