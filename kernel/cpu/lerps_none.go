//go:build purego || (!amd64 && !arm64)

package cpu

import "github.com/goatnote-inc/robocache"

const instructions = ""

// lerpKernel returns nil: there are no kernels for this processor.
func lerpKernel(src, dst robocache.DType, f kernelForm) func(*rowArgs) { return nil }

// slerpKernel returns nil: there is no kernel for this processor.
func slerpKernel() func(*rowArgs) { return nil }
