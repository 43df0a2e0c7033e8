//go:build !purego

package cpu

import (
	"github.com/goatnote-inc/robocache"
	"golang.org/x/sys/cpu"
)

// fast says whether the vector kernels run here. One question for all of them: no processor has some of these and not the others.
var fast = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C && cpu.X86.HasOSXSAVE

// lerps are the kernels that blend, by the types of source and result.
var lerps = map[[2]robocache.DType][forms]func(*rowArgs){
	{robocache.Float32, robocache.Float32}:   {lerpF32F32, lerpF32F32Norm},
	{robocache.Float16, robocache.Float32}:   {lerpF16F32, lerpF16F32Norm},
	{robocache.BFloat16, robocache.Float32}:  {lerpB16F32, lerpB16F32Norm},
	{robocache.Uint8, robocache.Float32}:     {lerpU8F32, lerpU8F32Norm, lerpU8F32UnitNorm},
	{robocache.Float32, robocache.Float16}:   {lerpF32F16, lerpF32F16Norm},
	{robocache.Float16, robocache.Float16}:   {lerpF16F16, lerpF16F16Norm},
	{robocache.BFloat16, robocache.Float16}:  {lerpB16F16, lerpB16F16Norm},
	{robocache.Uint8, robocache.Float16}:     {lerpU8F16, lerpU8F16Norm, lerpU8F16UnitNorm},
	{robocache.Float32, robocache.BFloat16}:  {lerpF32B16, lerpF32B16Norm},
	{robocache.Float16, robocache.BFloat16}:  {lerpF16B16, lerpF16B16Norm},
	{robocache.BFloat16, robocache.BFloat16}: {lerpB16B16, lerpB16B16Norm},
	{robocache.Uint8, robocache.BFloat16}:    {lerpU8B16, lerpU8B16Norm, lerpU8B16UnitNorm},
	{robocache.Float64, robocache.Float64}:   {lerpWide[float64]},
	{robocache.Float64, robocache.Float32}:   {lerpWide[float32]},
}

func lerpKernel(src, dst robocache.DType, f form) func(*rowArgs) {
	if !fast {
		return nil
	}
	return lerps[[2]robocache.DType{src, dst}][f]
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

func slerpKernel(a *rowArgs) { slerpF32(a) }

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
