//go:build !purego

package cpu

import (
	"github.com/goatnote-inc/robocache"
	"golang.org/x/sys/cpu"
)

// hasVectors reports whether the vector kernels can run. One flag is enough, because no processor
// has only some of these features.
var hasVectors = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C && cpu.X86.HasOSXSAVE

// instructions names the instructions that blend rows; "" means plain Go.
var instructions = ""

// init sets instructions, which has a constant value on other architectures.
func init() {
	if hasVectors {
		instructions = "AVX2, FMA, F16C"
	}
}

// isSorted reports whether the timestamps do not decrease.
func isSorted(s []int64) bool {
	if !hasVectors || len(s) < 2 {
		return sortedGo(s)
	}
	return sorted(&s[0], len(s))
}

// findIntervals runs the assembly kernel bracket if possible, and bracketGo for the remaining rows.
// It returns the number of rows before the first one whose interval it cannot find.
func findIntervals(a *searchArgs) int {
	n := 0
	if hasVectors {
		n = bracket(a)
	}
	return bracketGo(a, n)
}

// streamKernel returns the kernel whose stores bypass the caches. It returns nil if there is none
// for the types.
func streamKernel(src, dst robocache.DType) func(*rowArgs) {
	switch {
	case !hasVectors || src != dst:
	case src == robocache.Float32:
		return lerpF32F32Stream
	case src == robocache.Float16:
		return lerpF16F16Stream
	case src == robocache.BFloat16:
		return lerpB16B16Stream
	}
	return nil
}

// flattenPoints runs flattenRows on the first multiple of 8 points if possible, and flattenGo on
// the others. It returns the number of points inside the grid.
func flattenPoints(out []int64, p []float32, g *lattice) int {
	n := 0
	if hasVectors {
		n = len(out) &^ 7
	}
	inside := 0
	if n > 0 {
		inside = flattenRows(&out[0], &p[:3*n][0], n, g)
	}
	return inside + flattenGo(out[n:], p[3*n:], g)
}
