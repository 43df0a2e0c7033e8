//go:build cgo

package main

import (
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
	"github.com/goatnote-inc/robocache/kernel/cpu"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// hostBackend runs operations on host memory.
type hostBackend = conform.Backend

// cores are all of the processor's.
var cores = sync.OnceValue(func() *cpu.Backend { return cpu.New(0) })

// host finds a back end for host memory by its name.
func host(name string) (hostBackend, error) {
	switch name {
	case "reference":
		return kernel.Reference{}, nil
	case "cpu", "":
		return cores(), nil
	}
	return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "op", Msg: fmt.Sprintf("Invalid backend %q", name), Want: "cpu, cuda or reference", Got: name}
}

// on runs an instance of an op whose tensors have their memory.
func (o *operation) on(b hostBackend) error {
	switch op := o.op.(type) {
	case *kernel.FuseOp:
		return b.Fuse(op)
	case *kernel.FuseGradOp:
		return b.FuseGrad(op)
	case *kernel.ApplyOp:
		return b.Apply(op)
	case *kernel.ImageOp:
		return b.Images(op)
	case *kernel.VoxelOp:
		return b.Voxelize(op)
	case *kernel.DepthOp:
		return b.Unproject(op)
	case *kernel.TSDFOp:
		return b.Integrate(op)
	}
	return misuse("op", fmt.Sprintf("no back end runs %T", o.op))
}

// check proves what shapes, types and options alone decide.
func (o *operation) check() error {
	if op, ok := o.op.(interface{ Check() error }); ok {
		return op.Check()
	}
	return misuse("op", fmt.Sprintf("no check of %T", o.op))
}

// prepareDevice makes an op ready on a CUDA device, and says how much memory of the device it wants beside its tensors.
func prepareDevice(ordinal int, o *operation) (deviceOp, int, error) {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return nil, 0, err
	}
	var d any = dev
	switch op := o.op.(type) {
	case *kernel.FuseOp:
		if d, ok := d.(interface {
			PrepareFuse(*kernel.FuseOp) (*cuda.Launch, error)
		}); ok {
			l, err := d.PrepareFuse(op)
			return l, 0, err
		}
	case *kernel.FuseGradOp:
		if d, ok := d.(interface {
			PrepareFuseGrad(*kernel.FuseGradOp) (*cuda.Launch, error)
		}); ok {
			l, err := d.PrepareFuseGrad(op)
			return l, 0, err
		}
	case *kernel.ApplyOp:
		if d, ok := d.(interface {
			PrepareApply(*kernel.ApplyOp) (*cuda.Launch, error)
		}); ok {
			l, err := d.PrepareApply(op)
			return l, 0, err
		}
	case *kernel.ImageOp:
		l, err := dev.PrepareImages(op)
		return l, 0, err
	case *kernel.VoxelOp:
		if d, ok := d.(interface {
			PrepareVoxelize(*kernel.VoxelOp) (*cuda.Launch, error)
			VoxelScratch(*kernel.VoxelOp) (int, error)
		}); ok {
			n, err := d.VoxelScratch(op)
			if err != nil {
				return nil, 0, err
			}
			if n > 0 {
				op.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}, Stride: []int{1}}
				o.tensors = op.Tensors()
			}
			l, err := d.PrepareVoxelize(op)
			return l, n, err
		}
	case *kernel.DepthOp:
		if d, ok := d.(interface {
			PrepareUnproject(*kernel.DepthOp) (*cuda.Launch, error)
		}); ok {
			l, err := d.PrepareUnproject(op)
			return l, 0, err
		}
	case *kernel.TSDFOp:
		if d, ok := d.(interface {
			PrepareIntegrate(*kernel.TSDFOp) (*cuda.Launch, error)
		}); ok {
			l, err := d.PrepareIntegrate(op)
			return l, 0, err
		}
	}
	return nil, 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "op", Msg: fmt.Sprintf("no CUDA kernel for %T", o.op), Hint: "use backend=\"pytorch\", or tensors of the host"}
}
