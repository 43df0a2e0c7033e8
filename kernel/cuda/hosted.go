package cuda

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Hosted runs operations on tensors in host memory: what they lie in is copied to the device with
// its strides and bases, and what the device made of it back, also the memory around a tensor. It
// serves tests and self-tests, which compare a device with other back ends; who wants speed keeps
// its tensors on the device.
type Hosted struct {
	d      *Device
	stream uintptr
}

// Hosted gives the operations on host memory, which wait for their end. One at a time may run.
func (d *Device) Hosted(stream uintptr) *Hosted { return &Hosted{d: d, stream: stream} }

// region is memory of the host that some tensors lie in, and where it stands on the device.
type region struct {
	data []byte
	addr uintptr
}

func (r *region) start() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.data))) }
func (r *region) end() uintptr   { return r.start() + uintptr(len(r.data)) }

// regions joins what overlaps: an output may be columns of a larger tensor, and two of them columns
// of the same one.
func regions(tensors []*kernel.Tensor) []*region {
	var all []*region
	for _, t := range tensors {
		if len(t.Data) > 0 {
			all = append(all, &region{data: t.Data})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].start() < all[j].start() })
	var out []*region
	for _, r := range all {
		if n := len(out); n > 0 && r.start() < out[n-1].end() {
			last := out[n-1]
			last.data = unsafe.Slice(
				unsafe.SliceData(last.data),
				max(last.end(), r.end())-last.start(),
			)
			continue
		}
		out = append(out, r)
	}
	return out
}

// run gives the tensors addresses, runs, and puts them back as they were.
func (h *Hosted) run(tensors []*kernel.Tensor, f func() error) (err error) {
	list := regions(tensors)
	defer func() {
		for _, r := range list {
			h.d.Free(r.addr)
		}
	}()
	for _, r := range list {
		if r.addr, err = h.d.Alloc(len(r.data)); err != nil {
			return err
		}
		if err := h.d.CopyIn(r.addr, r.data); err != nil {
			return err
		}
	}
	saved := make([]kernel.Tensor, len(tensors))
	for i, t := range tensors {
		saved[i] = *t
		if len(t.Data) > 0 {
			at := uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))
			for _, r := range list {
				if at >= r.start() && at < r.end() {
					t.Addr = r.addr + (at - r.start()) + uintptr(t.Base*t.DType.Size())
				}
			}
		}
		t.Data, t.Base = nil, 0
	}
	err = f()
	if waited := h.d.Wait(h.stream); err == nil {
		err = waited
	}
	for i, t := range tensors {
		*t = saved[i]
	}
	for _, r := range list {
		if back := h.d.CopyOut(r.data, r.addr); err == nil {
			err = back
		}
	}
	return err
}

// Run runs an op on the device. Of a backward the times are proved first, as the host does: a
// device trusts that the forward did. Voxels get the scratch memory that they want.
func (h *Hosted) Run(op kernel.Op) error {
	return h.with(op, func() error { return h.d.Run(op, h.stream) })
}

// with lets f run the op.
func (h *Hosted) with(op kernel.Op, f func() error) (err error) {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *kernel.FuseGradOp:
		s, out := op.Series, op.Out
		s.Epilogue, s.Rule.Quats = kernel.Epilogue{}, nil
		s.Values = kernel.Tensor{
			DType: s.Values.DType,
			Shape: append(slices.Clone(s.Values.Shape[:len(s.Values.Shape)-1]), 0),
		}
		out = kernel.Tensor{DType: out.DType, Shape: []int{out.Shape[0], out.Shape[1], 0}}
		if err := (kernel.Reference{}).Run(
			&kernel.FuseOp{
				Series:  []kernel.Series{s},
				Targets: op.Targets,
				Out:     out,
				Clock:   op.Clock,
				Epsilon: op.Epsilon,
			},
		); err != nil {
			return err
		}
	case *kernel.VoxelOp:
		if op.Scratch == nil {
			n, err := h.d.VoxelScratch(op)
			if err != nil {
				return err
			}
			addr, err := h.d.Alloc(n)
			if err != nil {
				return err
			}
			defer h.d.Free(addr)
			op.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}, Addr: addr}
			defer func() { op.Scratch = nil }()
		}
	}
	return h.run(op.Tensors(), f)
}
