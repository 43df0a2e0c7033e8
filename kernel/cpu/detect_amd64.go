//go:build !purego

package cpu

import (
	"github.com/goatnote-inc/robocache"
	"golang.org/x/sys/cpu"
)

// fast says whether the vector kernels run here. One question for all of them: no processor has
// some of these and not the others.
var fast = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C && cpu.X86.HasOSXSAVE

// instructions is what rows are blended with; "" is plain Go.
var instructions = ""

func init() {
	if fast {
		instructions = "AVX2, FMA, F16C"
	}
}

// isSorted says whether the timestamps do not decrease.
func isSorted(s []int64) bool {
	if !fast || len(s) < 2 {
		return sortedGo(s)
	}
	return sorted(&s[0], len(s))
}

// find is bracket, in the best form.
func find(a *searchArgs) int {
	n := 0
	if fast {
		n = bracket(a)
	}
	return bracketGo(a, n)
}

// streamKernel is the kernel whose results go round the caches.
func streamKernel(src, dst robocache.DType) func(*rowArgs) {
	switch {
	case !fast || src != dst:
	case src == robocache.Float32:
		return lerpF32F32Stream
	case src == robocache.Float16:
		return lerpF16F16Stream
	case src == robocache.BFloat16:
		return lerpB16B16Stream
	}
	return nil
}

// flatten is flattenGo, in the best form.
func flatten(out []int64, p []float32, g *lattice) int {
	n := 0
	if fast {
		n = len(out) &^ 7
	}
	inside := 0
	if n > 0 {
		inside = flattenRows(&out[0], &p[:3*n][0], n, g)
	}
	return inside + flattenGo(out[n:], p[3*n:], g)
}
