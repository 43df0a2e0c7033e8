package selftest

import (
	"sort"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// onDevice makes a device a back end of host memory, as the vectors want one: what an op's tensors lie in is copied there, and back.
type onDevice struct {
	dev    *cuda.Device
	stream uintptr
	queue  conform.Backend
}

func newOnDevice(dev *cuda.Device) (*onDevice, error) {
	s, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	q, ok := any(dev.On(s)).(conform.Backend)
	if !ok {
		dev.FreeStream(s)
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "CUDA", Msg: "this build has not all operations"}
	}
	return &onDevice{dev, s, q}, nil
}

func (b *onDevice) close() { b.dev.FreeStream(b.stream) }

// region is memory of the host that some tensors lie in, and where it stands on the device.
type region struct {
	data []byte
	addr uintptr
}

// regions joins what overlaps: an output may be columns of a larger tensor, and two of them columns of the same one.
func regions(tensors []*kernel.Tensor) []*region {
	var all []*region
	for _, t := range tensors {
		if len(t.Data) > 0 {
			all = append(all, &region{data: t.Data})
		}
	}
	start := func(r *region) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.data))) }
	sort.Slice(all, func(i, j int) bool { return start(all[i]) < start(all[j]) })
	var out []*region
	for _, r := range all {
		if n := len(out); n > 0 && start(r) < start(out[n-1])+uintptr(len(out[n-1].data)) {
			last := out[n-1]
			end := max(start(last)+uintptr(len(last.data)), start(r)+uintptr(len(r.data)))
			last.data = unsafe.Slice(unsafe.SliceData(last.data), end-start(last))
			continue
		}
		out = append(out, r)
	}
	return out
}

// run gives the tensors addresses, runs, and puts them back as they were.
func (b *onDevice) run(tensors []*kernel.Tensor, f func() error) (err error) {
	list := regions(tensors)
	defer func() {
		for _, r := range list {
			if r.addr != 0 {
				b.dev.Free(r.addr)
			}
		}
	}()
	for _, r := range list {
		if r.addr, err = b.dev.Alloc(len(r.data)); err != nil {
			return err
		}
		if err = b.dev.CopyIn(r.addr, r.data); err != nil {
			return err
		}
	}
	saved := make([]kernel.Tensor, len(tensors))
	for i, t := range tensors {
		saved[i] = *t
		if len(t.Data) == 0 {
			continue
		}
		at := uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))
		for _, r := range list {
			from := uintptr(unsafe.Pointer(unsafe.SliceData(r.data)))
			if at >= from && at < from+uintptr(len(r.data)) {
				t.Addr = r.addr + (at - from) + uintptr(t.Base*t.DType.Size())
			}
		}
		t.Data, t.Base = nil, 0
	}
	err = f()
	if waited := b.dev.Wait(b.stream); err == nil {
		err = waited
	}
	for i, t := range tensors {
		*t = saved[i]
	}
	for _, r := range list {
		if back := b.dev.CopyOut(r.data, r.addr); err == nil {
			err = back
		}
	}
	return err
}

func (b *onDevice) Fuse(op *kernel.FuseOp) error {
	return b.run(op.Tensors(), func() error { return b.queue.Fuse(op) })
}

func (b *onDevice) FuseGrad(op *kernel.FuseGradOp) error {
	return b.run(op.Tensors(), func() error { return b.queue.FuseGrad(op) })
}

func (b *onDevice) Apply(op *kernel.ApplyOp) error {
	return b.run(op.Tensors(), func() error { return b.queue.Apply(op) })
}

func (b *onDevice) Unproject(op *kernel.DepthOp) error {
	return b.run(op.Tensors(), func() error { return b.queue.Unproject(op) })
}

func (b *onDevice) Integrate(op *kernel.TSDFOp) error {
	return b.run(op.Tensors(), func() error { return b.queue.Integrate(op) })
}

// Voxelize brings the scratch memory that the op wants.
func (b *onDevice) Voxelize(op *kernel.VoxelOp) error {
	tensors := op.Tensors()
	return b.run(tensors, func() error {
		s, ok := any(b.dev).(interface {
			VoxelScratch(*kernel.VoxelOp) (int, error)
		})
		if !ok || op.Scratch != nil {
			return b.queue.Voxelize(op)
		}
		n, err := s.VoxelScratch(op)
		if err != nil {
			return err
		}
		if n > 0 {
			addr, err := b.dev.Alloc(n)
			if err != nil {
				return err
			}
			defer b.dev.Free(addr)
			op.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}, Addr: addr}
			defer func() { op.Scratch = nil }()
		}
		if err := b.queue.Voxelize(op); err != nil {
			return err
		}
		return b.dev.Wait(b.stream) // before the scratch is freed
	})
}
