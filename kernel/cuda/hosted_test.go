package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// hosted makes a device a back end of conform: tensors of host memory are moved to the device, with their strides and bases, and what the
// device made of them back. It also proves that nothing outside a tensor is written: memory around it comes back as it was.
type hosted struct {
	t      testing.TB
	d      *Device
	stream uintptr
	graph  bool // run each op as a graph that was captured
}

// moved is host memory that lies on the device for the time of one op.
type moved struct {
	host []byte
	addr uintptr
}

// with runs f while all tensors lie on the device.
func (h *hosted) with(tensors []*kernel.Tensor, f func() error) (err error) {
	type was struct {
		t    *kernel.Tensor
		data []byte
	}
	var all []was
	places := map[*byte]*moved{}
	defer func() {
		for _, w := range all {
			w.t.Data, w.t.Addr = w.data, 0
		}
		for _, m := range places {
			if e := h.d.CopyOut(m.host, m.addr); err == nil {
				err = e
			}
			h.d.Free(m.addr)
		}
	}()
	for _, t := range tensors {
		if t.Data == nil {
			continue
		}
		all = append(all, was{t, t.Data})
		if len(t.Data) == 0 {
			t.Data = nil
			continue
		}
		key := unsafe.SliceData(t.Data)
		m := places[key]
		if m == nil {
			addr, err := h.d.Alloc(len(t.Data))
			if err != nil {
				return err
			}
			m = &moved{t.Data, addr}
			places[key] = m
			if err := h.d.CopyIn(addr, t.Data); err != nil {
				return err
			}
		} else if len(m.host) < len(t.Data) {
			return fmt.Errorf("tensors of one memory with %d and %d bytes", len(m.host), len(t.Data))
		}
		t.Addr = m.addr + uintptr(t.Base*t.DType.Size())
		t.Data = nil
	}
	return f()
}

// run starts an op that is there, and waits.
func (h *hosted) run(tensors []*kernel.Tensor, f func() error) error {
	return h.with(tensors, func() error {
		if h.graph && h.d.gpu != nil {
			g, err := h.d.Capture(h.stream, f)
			if errors.Is(err, robocache.ErrMisuse) && strings.Contains(err.Error(), "a graph cannot capture") {
				err = nil // an op that waits: as it is
			} else if err == nil {
				defer g.Free()
				f = func() error { return g.Launch(h.stream) }
			}
			if err != nil {
				return err
			}
		}
		if err := f(); err != nil {
			return err
		}
		return h.d.Wait(h.stream)
	})
}

func missing(op string) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: op, Msg: "kernel/cuda has no such operation"}
}

func (h *hosted) Fuse(op *kernel.FuseOp) error {
	q, ok := any(h.d.On(h.stream)).(interface{ Fuse(*kernel.FuseOp) error })
	if !ok {
		return missing("fuse")
	}
	if h.graph && op.Validate { // what is captured is not proved
		op.Validate = false
		defer func() { op.Validate = true }()
	}
	return h.run(op.Tensors(), func() error { return q.Fuse(op) })
}

func (h *hosted) FuseGrad(op *kernel.FuseGradOp) error {
	q, ok := any(h.d.On(h.stream)).(interface {
		FuseGrad(*kernel.FuseGradOp) error
	})
	if !ok {
		return missing("fuse_grad")
	}
	return h.run(op.Tensors(), func() error { return q.FuseGrad(op) })
}

func (h *hosted) Apply(op *kernel.ApplyOp) error {
	q, ok := any(h.d.On(h.stream)).(interface{ Apply(*kernel.ApplyOp) error })
	if !ok {
		return missing("apply")
	}
	return h.run(op.Tensors(), func() error { return q.Apply(op) })
}

func (h *hosted) Voxelize(op *kernel.VoxelOp) error {
	q, ok := any(h.d.On(h.stream)).(interface{ Voxelize(*kernel.VoxelOp) error })
	if !ok {
		return missing("voxelize")
	}
	if s, ok := any(h.d).(interface {
		VoxelScratch(*kernel.VoxelOp) (int, error)
	}); ok && op.Scratch == nil {
		// A device's own copies: the op of the caller keeps its tensors of the host.
		n, err := s.VoxelScratch(op)
		if err != nil {
			return err
		}
		if n > 0 {
			op.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}, Data: make([]byte, n)}
			defer func() { op.Scratch = nil }()
		}
	}
	return h.run(op.Tensors(), func() error { return q.Voxelize(op) })
}

func (h *hosted) Unproject(op *kernel.DepthOp) error {
	q, ok := any(h.d.On(h.stream)).(interface{ Unproject(*kernel.DepthOp) error })
	if !ok {
		return missing("unproject")
	}
	return h.run(op.Tensors(), func() error { return q.Unproject(op) })
}

func (h *hosted) Integrate(op *kernel.TSDFOp) error {
	q, ok := any(h.d.On(h.stream)).(interface{ Integrate(*kernel.TSDFOp) error })
	if !ok {
		return missing("integrate")
	}
	return h.run(op.Tensors(), func() error { return q.Integrate(op) })
}
