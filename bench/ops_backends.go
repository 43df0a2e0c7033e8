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
	return []hostBackend{
		{OpsOurs, "kernel/cpu, " + strconv.Itoa(threads) + " threads", whole(cpu.New(threads))},
		{"reference", "pure Go, one thread", kernel.Reference{}},
	}
}

// part is a back end of which some operation is not there.
type part struct{ b any }

func whole(b any) opsBackend {
	if w, ok := b.(opsBackend); ok {
		return w
	}
	return part{b}
}

func (p part) Fuse(op *kernel.FuseOp) error {
	if f, ok := p.b.(interface{ Fuse(*kernel.FuseOp) error }); ok {
		return f.Fuse(op)
	}
	return absent("fuse")
}

func (p part) Voxelize(op *kernel.VoxelOp) error {
	if f, ok := p.b.(interface{ Voxelize(*kernel.VoxelOp) error }); ok {
		return f.Voxelize(op)
	}
	return absent("voxelize")
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
