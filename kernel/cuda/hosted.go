package cuda

import (
	"sort"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
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
	defer guard.Into(&err)
	list := regions(tensors)
	defer func() {
		for _, r := range list {
			h.d.Free(r.addr)
		}
	}()
	for _, r := range list {
		r.addr = guard.Must(h.d.Alloc(len(r.data)))
		guard.Check(h.d.CopyIn(r.addr, r.data))
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

func (h *Hosted) launch(f func() error) (err error) {
	defer guard.Into(&err)
	if !h.graph || h.d.gpu == nil {
		return f()
	}
	g := guard.Must(h.d.Capture(h.stream, f))
	defer g.Free()
	guard.Check(g.Launch(h.stream))
	return h.d.Wait(h.stream)
}

// do runs an op of host memory on the device. What waits for a check is not captured.
func (h *Hosted) do(op kernel.Op, waits bool) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	return h.checked(op, waits)
}

func (h *Hosted) checked(op kernel.Op, waits bool) error {
	graph := h.graph
	h.graph = graph && !waits
	err := h.run(op.Tensors(), func() error { return h.d.Run(op, h.stream) })
	h.graph = graph
	return err
}

// Fuse resamples. A check of the order of times is left out where a graph is captured.
func (h *Hosted) Fuse(op *kernel.FuseOp) error {
	validate, waits := op.Validate, false
	for i := range op.Series {
		waits = waits || op.Series[i].Rule.Edge == kernel.ErrorEdge
	}
	op.Validate = validate && (waits || !h.graph)
	err := h.do(op, waits)
	op.Validate = validate
	return err
}

// FuseGrad is the backward, after times were proved, as the host does: a device trusts that the forward did.
func (h *Hosted) FuseGrad(op *kernel.FuseGradOp) (err error) {
	defer guard.Into(&err)
	guard.Check(kernel.CheckHost(op))
	s, out := op.Series, op.Out
	s.Epilogue, s.Rule.Quats = kernel.Epilogue{}, nil
	s.Values = kernel.Tensor{DType: s.Values.DType, Shape: append(append([]int{}, s.Values.Shape[:len(s.Values.Shape)-1]...), 0)}
	out = kernel.Tensor{DType: out.DType, Shape: []int{out.Shape[0], out.Shape[1], 0}}
	guard.Check((kernel.Reference{}).Fuse(&kernel.FuseOp{Series: []kernel.Series{s}, Targets: op.Targets, Out: out, Clock: op.Clock, Epsilon: op.Epsilon}))
	return h.do(op, false)
}

// Voxelize brings the scratch memory that the op wants.
func (h *Hosted) Voxelize(op *kernel.VoxelOp) (err error) {
	defer guard.Into(&err)
	guard.Check(kernel.CheckHost(op))
	if op.Scratch == nil {
		n := guard.Must(h.d.VoxelScratch(op))
		addr := guard.Must(h.d.Alloc(n))
		defer h.d.Free(addr)
		op.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}, Addr: addr}
		defer func() { op.Scratch = nil }()
	}
	return h.checked(op, op.Outside == kernel.FailOutside)
}

// Apply makes rows by plans.
func (h *Hosted) Apply(op *kernel.ApplyOp) error { return h.do(op, false) }

// Images augments images.
func (h *Hosted) Images(op *kernel.ImageOp) error { return h.do(op, false) }

// Unproject makes points of a depth image.
func (h *Hosted) Unproject(op *kernel.DepthOp) error { return h.do(op, false) }

// Integrate updates a TSDF.
func (h *Hosted) Integrate(op *kernel.TSDFOp) error { return h.do(op, false) }
