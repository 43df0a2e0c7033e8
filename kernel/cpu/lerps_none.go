//go:build purego || (!amd64 && !arm64)

package cpu

import "github.com/goatnote-inc/robocache"

const instructions = ""

func lerpKernel(src, dst robocache.DType, f kernelForm) func(*rowArgs) { return nil }

func slerpKernel() func(*rowArgs) { return nil }
