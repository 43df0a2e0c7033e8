package ops

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// opsGPU is the device that rows are measured on: one stream, and the buffers of the copy that is the limit.
type gpu struct {
	dev      *cuda.Device
	stream   uintptr
	from, to *cuda.Event
	copySrc  uintptr
	copyDst  uintptr
}

// bigCopy is what a copy reads, and writes: far beyond the caches, so that its rate is the memory's. A stream copy: as the node of a graph the
// same copy runs at two thirds of it.
const bigCopy = 1 << 30

func openGPU(ordinal int) (*gpu, error) {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return nil, err
	}
	g := &gpu{dev: dev}
	if g.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	if g.from, err = dev.NewEvent(); err == nil {
		g.to, err = dev.NewEvent()
	}
	if err == nil {
		g.copySrc, err = dev.Alloc(bigCopy)
	}
	if err == nil {
		g.copyDst, err = dev.Alloc(bigCopy)
	}
	if err == nil {
		err = dev.Clear(g.copySrc, bigCopy)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

func (g *gpu) close() {
	for _, e := range []*cuda.Event{g.from, g.to} {
		if e != nil {
			e.Free()
		}
	}
	for _, a := range []uintptr{g.copySrc, g.copyDst} {
		if a != 0 {
			g.dev.Free(a)
		}
	}
	g.dev.FreeStream(g.stream)
}

// between is how long what f puts on the stream takes, µs.
func (g *gpu) between(f func() error) (float64, error) {
	if err := g.from.Record(g.stream); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := g.to.Record(g.stream); err != nil {
		return 0, err
	}
	if err := g.to.Wait(); err != nil {
		return 0, err
	}
	return g.to.Since(g.from)
}

// gpuCopyRunner gives what copying the row's bytes takes at the rate of a copy of two gigabytes, measured each round.
type gpuCopyRunner struct {
	g     *gpu
	bytes int64
}

func (a gpuCopyRunner) time(float64, bool) ([]float64, error) {
	var out []float64
	for range 4 {
		const n = 3
		us, err := a.g.between(func() error {
			for range n {
				if err := a.g.dev.CopyAsync(a.g.copyDst, a.g.copySrc, bigCopy, a.g.stream); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, us/n*float64(a.bytes)/(2*bigCopy))
	}
	return out[1:], nil
}

// gpuRunner is ours on a row: graphs of calls on one set of buffers (hot) and on sets that go round (cold).
type gpuRunner struct {
	g      *gpu
	launch *cuda.Launch
	sets   [][]uintptr
	sizes  []int
	scrub  []uintptr // all that was allocated
	hot    *gpuGraph
	cold   *gpuGraph
	copies int
}

type gpuGraph struct {
	*cuda.Graph
	calls int
}

// newRunner puts the call's tensors on the device and prepares the launch.
func (g *gpu) newRunner(c *opCall, copies int) (*gpuRunner, error) {
	a := &gpuRunner{g: g, copies: copies}
	if v := c.voxel; v != nil {
		n, err := g.dev.VoxelScratch(v)
		if err != nil {
			return a, err
		}
		if n > 0 {
			v.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}}
		}
	}
	d := c.onDevice()
	var set []uintptr
	for i, t := range d.tensors() {
		h := c.tensors()[i]
		n := max(len(h.Data), h.Len()*h.DType.Size())
		addr, err := a.alloc(n)
		if err != nil {
			return a, err
		}
		if h.Data != nil {
			if err := g.dev.CopyIn(addr, h.Data); err != nil {
				return a, err
			}
		}
		t.Addr = addr
		set, a.sizes = append(set, addr), append(a.sizes, n)
	}
	a.sets = append(a.sets, set)
	var err error
	if d.voxel != nil {
		a.launch, err = g.dev.Prepare(d.voxel)
	} else {
		a.launch, err = g.dev.Prepare(d.fuse)
	}
	return a, err
}

func (a *gpuRunner) alloc(n int) (uintptr, error) {
	addr, err := a.g.dev.Alloc(max(n, 1))
	if err == nil {
		a.scrub = append(a.scrub, addr)
	}
	return addr, err
}

// onDevice is the call with tensors that have no host memory.
func (c *opCall) onDevice() *opCall {
	return c.mapped(func(t *kernel.Tensor) { t.Data = nil })
}

// once runs the call and brings its results to the host, into the call's own tensors. Before, they hold ones: what is not written shows.
func (a *gpuRunner) once(c *opCall) error {
	dev := a.g.dev
	results := c.results()
	at := func(t *kernel.Tensor) uintptr {
		for i, x := range c.tensors() {
			if x == t {
				return a.sets[0][i]
			}
		}
		return 0
	}
	for _, t := range results {
		for i := range t.Data {
			t.Data[i] = 0xff
		}
		if err := dev.CopyIn(at(t), t.Data); err != nil {
			return err
		}
	}
	for range 2 { // the second finds what the first left
		if err := a.launch.Run(a.sets[0], a.g.stream); err != nil {
			return err
		}
	}
	if err := dev.Wait(a.g.stream); err != nil {
		return err
	}
	for _, t := range results {
		if err := dev.CopyOut(t.Data, at(t)); err != nil {
			return err
		}
	}
	return nil
}

// graph captures calls that go round the first n sets.
func (a *gpuRunner) graph(n int) (*gpuGraph, error) {
	for len(a.sets) < n {
		var set []uintptr
		for i, size := range a.sizes {
			addr, err := a.alloc(size)
			if err != nil {
				return nil, err
			}
			if err := a.g.dev.CopyAsync(addr, a.sets[0][i], size, a.g.stream); err != nil {
				return nil, err
			}
			set = append(set, addr)
		}
		a.sets = append(a.sets, set)
	}
	if err := a.g.dev.Wait(a.g.stream); err != nil {
		return nil, err
	}
	// About half a millisecond in a graph, whole turns of the sets.
	us, err := a.g.between(func() error {
		for i := range 4 {
			if err := a.launch.Run(a.sets[i%n], a.g.stream); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	calls := int(min(200, max(4, 500/max(us/4, 1))))
	calls = (calls + n - 1) / n * n
	graph, err := a.g.dev.Capture(a.g.stream, func() error {
		for i := range calls {
			if err := a.launch.Run(a.sets[i%n], a.g.stream); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	g := &gpuGraph{graph, calls}
	return g, nil
}

func (a *gpuRunner) time(seconds float64, cold bool) ([]float64, error) {
	held, n := &a.hot, 1
	if cold {
		held, n = &a.cold, a.copies
	}
	if *held == nil {
		g, err := a.graph(n)
		if err != nil {
			return nil, err
		}
		*held = g
	}
	g := *held
	launch := func() error { return g.Launch(a.g.stream) }
	var out []float64
	total := 0.0
	for len(out) < 7 || total < seconds*1e6 && len(out) < 400 {
		us, err := a.g.between(launch)
		if err != nil {
			return nil, err
		}
		out = append(out, us/float64(g.calls))
		total += us
	}
	return out[2:], nil
}

func (a *gpuRunner) close() {
	for _, g := range []*gpuGraph{a.hot, a.cold} {
		if g != nil {
			g.Free()
		}
	}
	for _, p := range a.scrub {
		a.g.dev.Free(p)
	}
}

// describe says what the figures are of.
func (g *gpu) describe() *Device {
	d := &Device{Name: g.dev.Name(), Driver: fmt.Sprintf("CUDA %d.%d", g.dev.Driver()/1000, g.dev.Driver()%1000/10), Image: g.dev.Image(), L2: 64 << 20}
	return d
}
