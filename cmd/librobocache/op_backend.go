//go:build cgo

package main

import (
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// cpuBackend returns the back end that uses all cores.
var cpuBackend = sync.OnceValue(func() *cpu.Backend { return cpu.New(0) })

// hostBackend returns the back end with a name, for host memory.
func hostBackend(name string) (kernel.Backend, error) {
	switch name {
	case "reference":
		return kernel.Reference{}, nil
	case "cpu", "":
		return cpuBackend(), nil
	}
	return nil, robocache.Misuse("op", nil, "Invalid backend %q", name).
		Expected("cpu, cuda or reference", name)
}

// prepareDevice prepares an operation on a CUDA device. It also returns how many bytes of scratch
// memory the operation needs on the device.
func prepareDevice(ordinal int, o *operation) (_ deviceOp, bytes int, err error) {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return nil, bytes, err
	}
	if v, ok := o.op.(*kernel.VoxelOp); ok {
		if bytes, err = dev.VoxelScratch(v); err != nil {
			return nil, bytes, err
		}
		if bytes > 0 {
			v.Scratch = &kernel.Tensor{
				DType:  robocache.Uint8,
				Shape:  []int{bytes},
				Stride: []int{1},
			}
			o.tensors = v.Tensors()
		}
	}
	prepareValue, err := dev.Prepare(o.op)
	if err != nil {
		return nil, bytes, err
	}
	return prepareValue, bytes, nil
}
