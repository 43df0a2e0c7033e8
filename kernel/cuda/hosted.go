package cuda

import (
	"cmp"
	"slices"
	"sort"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Hosted runs operations on tensors in host memory. It copies their memory to the device, keeping
// strides and bases. Afterwards it copies all of it back, including the memory around a tensor.
// Tests and self-tests use it to compare a device with other back ends. For speed, keep tensors on
// the device.
type Hosted struct {
	d      *Device
	stream uintptr
}

// Hosted returns a back end for host memory. Its runs wait until the device is finished. Not safe
// for concurrent use.
func (d *Device) Hosted(stream uintptr) *Hosted { return &Hosted{d: d, stream: stream} }

// region is host memory that contains some tensors, and its address on the device.
type region struct {
	data []byte
	addr uintptr
}

// startAddress returns the address of the first byte on the host.
func (r *region) startAddress() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.data))) }

// endAddress returns the address after the last byte on the host.
func (r *region) endAddress() uintptr { return r.startAddress() + uintptr(len(r.data)) }

// mergeRegions merges overlapping memory of tensors: an output may be columns of a larger tensor,
// and two outputs may be columns of the same tensor.
func mergeRegions(tensors []*kernel.Tensor) []*region {
	var all []*region
	for _, t := range tensors {
		if len(t.Data) > 0 {
			all = append(all, &region{data: t.Data})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].startAddress() < all[j].startAddress() })
	var out []*region
	for _, r := range all {
		if n := len(out); n > 0 && r.startAddress() < out[n-1].endAddress() {
			last := out[n-1]
			last.data = unsafe.Slice(
				unsafe.SliceData(last.data),
				max(last.endAddress(), r.endAddress())-last.startAddress(),
			)
			continue
		}
		out = append(out, r)
	}
	return out
}

// runOnDevice sets the tensors' device addresses, calls f, and restores the tensors.
func (h *Hosted) runOnDevice(tensors []*kernel.Tensor, f func() error) (err error) {
	list := mergeRegions(tensors)
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
				if at >= r.startAddress() && at < r.endAddress() {
					t.Addr = r.addr + (at - r.startAddress()) + uintptr(t.Base*t.DType.Size())
				}
			}
		}
		t.Data, t.Base = nil, 0
	}
	err = f()
	err = cmp.Or(err, h.d.Wait(h.stream))
	for i, t := range tensors {
		*t = saved[i]
	}
	for _, r := range list {
		err = cmp.Or(err, h.d.CopyOut(r.data, r.addr))
	}
	return err
}

// Run runs an operation on the device. It checks the times of a FuseGradOp first, as a host back
// end does; a device relies on the check of the forward pass. A VoxelOp gets the scratch memory
// that it needs.
func (h *Hosted) Run(op kernel.Op) error {
	return h.runWith(op, func() error { return h.d.Run(op, h.stream) })
}

// runWith prepares the operation and calls f to run it.
func (h *Hosted) runWith(op kernel.Op, f func() error) (err error) {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *kernel.FuseGradOp:
		// The reference checks the times with a FuseOp on the same stream without columns.
		s, out := op.Series, op.Out
		s.Epilogue = kernel.Epilogue{}
		s.Rule.Quats = nil
		s.Values = kernel.Tensor{
			DType: s.Values.DType,
			Shape: append(slices.Clone(s.Values.Shape[:len(s.Values.Shape)-1]), 0),
		}
		out = kernel.Tensor{DType: out.DType, Shape: []int{out.Shape[0], out.Shape[1], 0}}
		err := (kernel.Reference{}).Run(&kernel.FuseOp{
			Series:  []kernel.Series{s},
			Targets: op.Targets,
			Out:     out,
			Clock:   op.Clock,
			Epsilon: op.Epsilon,
		})
		if err != nil {
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
	return h.runOnDevice(op.Tensors(), f)
}
