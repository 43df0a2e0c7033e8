package cuda

import (
	"sort"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Hosted runs operations on tensors in host memory: what they lie in is copied to the device with its strides and bases, and what the device
// made of it back, also the memory around a tensor. It serves tests and self-tests, which compare a device with other back ends; who wants
// speed moves memory by a Flow.
type Hosted struct {
	d      *Device
	stream uintptr
	graph  bool // each op goes as a graph that was captured
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

// regions joins what overlaps: an output may be columns of a larger tensor, and two of them columns of the same one.
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
			last.data = unsafe.Slice(unsafe.SliceData(last.data), max(last.end(), r.end())-last.start())
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
		if err = h.d.CopyIn(r.addr, r.data); err != nil {
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
	err = h.launch(f)
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

func (h *Hosted) launch(f func() error) error {
	if !h.graph || h.d.gpu == nil {
		return f()
	}
	g, err := h.d.Capture(h.stream, f)
	if err != nil {
		return err
	}
	defer g.Free()
	if err := g.Launch(h.stream); err != nil {
		return err
	}
	return h.d.Wait(h.stream)
}

// Fuse is Queue.Fuse.
func (h *Hosted) Fuse(op *kernel.FuseOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
	graph, validate := h.graph, op.Validate
	for i := range op.Series {
		h.graph = h.graph && op.Series[i].Rule.Edge != kernel.ErrorEdge // what waits is not captured
	}
	op.Validate = validate && !h.graph
	err := h.run(op.Tensors(), func() error { return h.d.On(h.stream).Fuse(op) })
	h.graph, op.Validate = graph, validate
	return err
}

// FuseGrad is Queue.FuseGrad, after times were proved, as the host does: a device trusts that the forward did.
func (h *Hosted) FuseGrad(op *kernel.FuseGradOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
	s, out := op.Series, op.Out
	s.Epilogue, s.Rule.Quats = kernel.Epilogue{}, nil
	s.Values = kernel.Tensor{DType: s.Values.DType, Shape: append(append([]int{}, s.Values.Shape[:len(s.Values.Shape)-1]...), 0)}
	out = kernel.Tensor{DType: out.DType, Shape: []int{out.Shape[0], out.Shape[1], 0}}
	if err := (kernel.Reference{}).Fuse(&kernel.FuseOp{Series: []kernel.Series{s}, Targets: op.Targets, Out: out, Clock: op.Clock, Epsilon: op.Epsilon}); err != nil {
		return err
	}
	return h.run(op.Tensors(), func() error { return h.d.On(h.stream).FuseGrad(op) })
}

// Apply is Queue.Apply.
func (h *Hosted) Apply(op *kernel.ApplyOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
	return h.run(op.Tensors(), func() error { return h.d.On(h.stream).Apply(op) })
}

// Voxelize is Queue.Voxelize; it brings the scratch memory that the op wants.
func (h *Hosted) Voxelize(op *kernel.VoxelOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
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
	graph := h.graph
	h.graph = graph && op.Outside != kernel.FailOutside
	err := h.run(op.Tensors(), func() error { return h.d.On(h.stream).Voxelize(op) })
	h.graph = graph
	return err
}

// Images is Queue.Images.
func (h *Hosted) Images(op *kernel.ImageOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
	return h.run(op.Tensors(), func() error { return h.d.On(h.stream).Images(op) })
}

// Unproject is Queue.Unproject.
func (h *Hosted) Unproject(op *kernel.DepthOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
	return h.run(op.Tensors(), func() error { return h.d.On(h.stream).Unproject(op) })
}

// Integrate is Queue.Integrate.
func (h *Hosted) Integrate(op *kernel.TSDFOp) error {
	if err := op.CheckHost(); err != nil {
		return err
	}
	return h.run(op.Tensors(), func() error { return h.d.On(h.stream).Integrate(op) })
}
