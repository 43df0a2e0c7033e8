package bench

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

type hostBackend struct {
	name, setting string
	backend       opsBackend
}

// hostBackends are ours, and the reference for who asks for it by name.
func hostBackends(threads int) []hostBackend {
	ours := cpu.New(threads)
	return []hostBackend{
		{OpsOurs, "kernel/cpu, " + ours.Instructions() + ", " + strconv.Itoa(threads) + " threads", ours},
		{"reference", "pure Go, one thread", kernel.Reference{}},
	}
}

func absent(op string) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench ops", Msg: "this build's back end has no " + op}
}

func prepareFuse(d *cuda.Device, op *kernel.FuseOp) (*cuda.Launch, error) {
	if p, ok := any(d).(interface {
		PrepareFuse(*kernel.FuseOp) (*cuda.Launch, error)
	}); ok {
		return p.PrepareFuse(op)
	}
	return nil, absent("fuse")
}

func prepareVoxelize(d *cuda.Device, op *kernel.VoxelOp) (*cuda.Launch, error) {
	if p, ok := any(d).(interface {
		PrepareVoxelize(*kernel.VoxelOp) (*cuda.Launch, error)
	}); ok {
		return p.PrepareVoxelize(op)
	}
	return nil, absent("voxelize")
}

func voxelScratch(d *cuda.Device, op *kernel.VoxelOp) (int, error) {
	if p, ok := any(d).(interface {
		VoxelScratch(*kernel.VoxelOp) (int, error)
	}); ok {
		return p.VoxelScratch(op)
	}
	return 0, absent("voxelize")
}
