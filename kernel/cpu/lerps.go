//go:build !purego && (amd64 || arm64)

package cpu

import "github.com/goatnote-inc/robocache"

// lerpKernels are the kernels that blend rows, by the types of source and result.
var lerpKernels = map[[2]robocache.DType][forms]func(*rowArgs){
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

// lerpKernel returns the kernel that blends rows of type src into type dst, or nil if there is
// none.
func lerpKernel(src, dst robocache.DType, f kernelForm) func(*rowArgs) {
	if instructions == "" {
		return nil
	}
	return lerpKernels[[2]robocache.DType{src, dst}][f]
}

// slerpKernel returns the kernel for float32 quaternions, or nil if there is none.
func slerpKernel() func(*rowArgs) {
	if instructions == "" {
		return nil
	}
	return slerpF32
}
