//go:build linux

package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// TestFramesOnSimulator runs checkFrames with checked memory, and with other seeds.
func TestFramesOnSimulator(t *testing.T) {
	d := simulator(t, sim.Options{Seed: 3, Checked: true}, "frames")
	checkFrames(t, d, append(frameShapes[1:3:3], frameShapes[6]), 1)
	d.launcher.(*simulated).before = true
	d = simulator(t, sim.Options{Seed: 3}, "frames")
	checkFrames(t, d, frameShapes, 2)
}

// TestRowsOnSimulator runs checkRows with checked memory.
func TestRowsOnSimulator(t *testing.T) {
	checkRows(t, simulator(t, sim.Options{Seed: 3, Checked: true}, "frames"))
}
