package ops

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// gpu is the device that rows are measured on: one stream, and the buffers of the copy that is the limit.
type gpu struct {
	dev      *cuda.Device
	stream   uintptr
	from, to *cuda.Event
	src, dst uintptr
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
		g.src, err = dev.Alloc(bigCopy)
	}
	if err == nil {
		g.dst, err = dev.Alloc(bigCopy)
	}
	if err == nil {
		err = dev.Clear(g.src, bigCopy)
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
	for _, a := range []uintptr{g.src, g.dst} {
		if a != 0 {
			g.dev.Free(a)
		}
	}
	g.dev.FreeStream(g.stream)
}

// describe says what the figures are of.
func (g *gpu) describe() *Device {
	return &Device{Name: g.dev.Name(), Driver: fmt.Sprintf("CUDA %d.%d", g.dev.Driver()/1000, g.dev.Driver()%1000/10), Image: g.dev.Image(), L2: 64 << 20}
}

// between is how long n calls on the stream take, µs a call.
func (g *gpu) between(n int, call func(i int) error) (float64, error) {
	err := g.from.Record(g.stream)
	for i := 0; err == nil && i < n; i++ {
		err = call(i)
	}
	if err == nil {
		err = g.to.Record(g.stream)
	}
	if err == nil {
		err = g.to.Wait()
	}
	if err != nil {
		return 0, err
	}
	us, err := g.to.Since(g.from)
	return us / float64(n), err
}

// gpuCopy gives what copying the row's bytes takes at the rate of a copy of two gigabytes, measured each round.
type gpuCopy struct {
	g     *gpu
	bytes int64
}

func (a gpuCopy) time(float64, bool) ([]float64, error) {
	var out []float64
	for range 4 {
		us, err := a.g.between(3, func(int) error { return a.g.dev.CopyAsync(a.g.dst, a.g.src, bigCopy, a.g.stream) })
		if err != nil {
			return nil, err
		}
		out = append(out, us*float64(a.bytes)/(2*bigCopy))
	}
	return out[1:], nil
}

// gpuRunner is ours on a row: graphs of calls on one set of buffers (hot) and on sets that go round (cold).
type gpuRunner struct {
	g      *gpu
	launch *cuda.Launch
	sets   [][]uintptr
	sizes  []int
	graphs map[bool]*gpuGraph // cold, hot
	copies int
}

type gpuGraph struct {
	*cuda.Graph
	calls int
}

// newRunner puts the call's tensors on the device and prepares the launch.
func (g *gpu) newRunner(c *opCall, copies int) (*gpuRunner, error) {
	a := &gpuRunner{g: g, copies: copies, graphs: map[bool]*gpuGraph{}}
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
	for _, h := range c.tensors() {
		a.sizes = append(a.sizes, max(len(h.Data), h.Len()*h.DType.Size(), 1))
	}
	if err := a.newSet(func(i int, addr uintptr) error {
		d.tensors()[i].Addr = addr
		if h := c.tensors()[i]; h.Data != nil {
			return g.dev.CopyIn(addr, h.Data)
		}
		return nil
	}); err != nil {
		return a, err
	}
	var err error
	if d.voxel != nil {
		a.launch, err = g.dev.Prepare(d.voxel)
	} else {
		a.launch, err = g.dev.Prepare(d.fuse)
	}
	return a, err
}

// newSet allocates buffers for a call's tensors.
func (a *gpuRunner) newSet(fill func(i int, addr uintptr) error) error {
	a.sets = append(a.sets, nil)
	set := &a.sets[len(a.sets)-1]
	for i, n := range a.sizes {
		addr, err := a.g.dev.Alloc(n)
		if err != nil {
			return err
		}
		*set = append(*set, addr)
		if err := fill(i, addr); err != nil {
			return err
		}
	}
	return nil
}

// onDevice is the call with tensors that have no host memory.
func (c *opCall) onDevice() *opCall {
	return c.mapped(func(t *kernel.Tensor) { t.Data = nil })
}

// once runs the call and brings its results to the host, into the call's own tensors. Before, they hold ones: what is not written shows.
func (a *gpuRunner) once(c *opCall) error {
	dev := a.g.dev
	at := map[*kernel.Tensor]uintptr{}
	for i, t := range c.tensors() {
		at[t] = a.sets[0][i]
	}
	for _, t := range c.results() {
		for i := range t.Data {
			t.Data[i] = 0xff
		}
		if err := dev.CopyIn(at[t], t.Data); err != nil {
			return err
		}
	}
	for range 2 { // the second finds what the first left
		if err := a.launch.Run(a.sets[0], a.g.stream); err != nil {
			return err
		}
	}
	err := dev.Wait(a.g.stream)
	for _, t := range c.results() {
		if err == nil {
			err = dev.CopyOut(t.Data, at[t])
		}
	}
	return err
}

// graph captures calls that go round the first n sets.
func (a *gpuRunner) graph(n int) (*gpuGraph, error) {
	for len(a.sets) < n {
		if err := a.newSet(func(i int, addr uintptr) error {
			return a.g.dev.CopyAsync(addr, a.sets[0][i], a.sizes[i], a.g.stream)
		}); err != nil {
			return nil, err
		}
	}
	if err := a.g.dev.Wait(a.g.stream); err != nil {
		return nil, err
	}
	call := func(i int) error { return a.launch.Run(a.sets[i%n], a.g.stream) }
	us, err := a.g.between(4, call)
	if err != nil {
		return nil, err
	}
	// About half a millisecond in a graph, whole turns of the sets.
	calls := int(min(200, max(4, 500/max(us, 1))))
	calls = (calls + n - 1) / n * n
	graph, err := a.g.dev.Capture(a.g.stream, func() error {
		for i := range calls {
			if err := call(i); err != nil {
				return err
			}
		}
		return nil
	})
	return &gpuGraph{graph, calls}, err
}

func (a *gpuRunner) time(seconds float64, cold bool) ([]float64, error) {
	if a.graphs[cold] == nil {
		n := 1
		if cold {
			n = a.copies
		}
		g, err := a.graph(n)
		if err != nil {
			return nil, err
		}
		a.graphs[cold] = g
	}
	g := a.graphs[cold]
	var out []float64
	total := 0.0
	for len(out) < 7 || total < seconds*1e6 && len(out) < 400 {
		us, err := a.g.between(1, func(int) error { return g.Launch(a.g.stream) })
		if err != nil {
			return nil, err
		}
		out = append(out, us/float64(g.calls))
		total += us
	}
	return out[2:], nil
}

func (a *gpuRunner) close() {
	for _, g := range a.graphs {
		g.Free()
	}
	for _, set := range a.sets {
		for _, p := range set {
			a.g.dev.Free(p)
		}
	}
}

// gpuRow is ours, checked, and the copy.
func (s *session) gpuRow(row *rowRun) ([]*candidate, func()) {
	ours := &candidate{runner: Runner{Name: Ours, Setting: "kernel/cuda, in a CUDA graph"}}
	runner, err := s.gpu.newRunner(row.call, row.copies)
	if err == nil {
		err = runner.once(row.call)
	}
	s.proven(row, ours, err)
	ours.c = runner
	return []*candidate{ours, {Runner{Name: "copy go", Setting: "stream copy of 2 GiB, scaled to the row's bytes"}, gpuCopy{s.gpu, row.res.Bytes}}}, runner.close
}
