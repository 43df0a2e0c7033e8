package ops

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// undo frees what was taken, last first.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

func (u *undo) all() {
	for ; len(*u) > 0; *u = (*u)[:len(*u)-1] {
		(*u)[len(*u)-1]()
	}
}

// gpu is the device that rows are measured on: one stream, and the buffers of the copy that is the limit.
type gpu struct {
	dev      *cuda.Device
	stream   uintptr
	src, dst uintptr
}

// bigCopy is what a copy reads, and writes: far beyond the caches, so that its rate is the memory's. A stream copy: as the node of a graph the
// same copy runs at two thirds of it.
const bigCopy = 1 << 30

func openGPU(number int, u *undo) *gpu {
	g := &gpu{dev: guard.Must(cuda.Open(number))}
	g.stream = guard.Must(g.dev.NewStream())
	u.add(func() { g.dev.FreeStream(g.stream) })
	g.src, g.dst = g.alloc(bigCopy, u), g.alloc(bigCopy, u)
	guard.Check(g.dev.Clear(g.src, bigCopy))
	return g
}

func (g *gpu) alloc(n int, u *undo) uintptr {
	addr := guard.Must(g.dev.Alloc(n))
	u.add(func() { g.dev.Free(addr) })
	return addr
}

// describe says what the figures are of.
func (g *gpu) describe() *Device {
	return &Device{Name: g.dev.Name(), Driver: fmt.Sprintf("CUDA %d.%d", g.dev.Driver()/1000, g.dev.Driver()%1000/10), Image: g.dev.Image(), L2: 64 << 20}
}

// between is how long n calls on the stream take, µs a call.
func (g *gpu) between(n int, call func(i int) error) float64 {
	return guard.Must(g.dev.Elapsed(g.stream, func() error {
		return guard.Try(func() {
			for i := range n {
				guard.Check(call(i))
			}
		})
	})) / float64(n)
}

// gpuCopy gives what copying the row's bytes takes at the rate of a copy of two gigabytes, measured each round.
type gpuCopy struct {
	g     *gpu
	bytes int64
}

func (a gpuCopy) time(float64, bool) (out []float64) {
	for range 4 {
		us := a.g.between(3, func(int) error { return a.g.dev.CopyAsync(a.g.dst, a.g.src, bigCopy, a.g.stream) })
		out = append(out, us*float64(a.bytes)/(2*bigCopy))
	}
	return out[1:]
}

// gpuRunner is ours on a row: graphs of calls on one set of buffers (hot) and on sets that go round (cold).
type gpuRunner struct {
	g      *gpu
	launch *cuda.Launch
	sets   [][]uintptr
	sizes  []int
	graphs map[bool]*gpuGraph // cold, hot
	copies int
	undo   *undo
}

type gpuGraph struct {
	*cuda.Graph
	calls int
}

// newRunner puts the row's tensors on the device and prepares the launch.
func (g *gpu) newRunner(row *rowRun, copies int) *gpuRunner {
	a := &gpuRunner{g: g, copies: copies, graphs: map[bool]*gpuGraph{}, undo: &row.undo}
	c, d := row.call, row.in.onDevice(&row.res.Work)
	if v, ok := c.(*kernel.VoxelOp); ok {
		if n := guard.Must(g.dev.VoxelScratch(v)); n > 0 {
			v.Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}}
			d.(*kernel.VoxelOp).Scratch = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{n}}
		}
	}
	for _, h := range c.Tensors() {
		a.sizes = append(a.sizes, max(len(h.Data), h.Len()*h.DType.Size(), 1))
	}
	a.newSet(func(i int, addr uintptr) error {
		d.Tensors()[i].Addr = addr
		if h := c.Tensors()[i]; h.Data != nil {
			return g.dev.CopyIn(addr, h.Data)
		}
		return nil
	})
	a.launch = guard.Must(g.dev.Prepare(d))
	return a
}

// newSet allocates buffers for a call's tensors.
func (a *gpuRunner) newSet(fill func(i int, addr uintptr) error) {
	var set []uintptr
	for i, n := range a.sizes {
		set = append(set, a.g.alloc(n, a.undo))
		guard.Check(fill(i, set[i]))
	}
	a.sets = append(a.sets, set)
}

// once runs the call and brings its results to the host, into the call's own tensors. Before, they hold ones: what is not written shows.
func (a *gpuRunner) once(c kernel.Op) {
	dev, at := a.g.dev, map[*kernel.Tensor]uintptr{}
	for i, t := range c.Tensors() {
		at[t] = a.sets[0][i]
	}
	for _, t := range kernel.Results(c) {
		for i := range t.Data {
			t.Data[i] = 0xff
		}
		guard.Check(dev.CopyIn(at[t], t.Data))
	}
	for range 2 { // the second finds what the first left
		guard.Check(a.launch.Run(a.sets[0], a.g.stream))
	}
	guard.Check(dev.Wait(a.g.stream))
	for _, t := range kernel.Results(c) {
		guard.Check(dev.CopyOut(t.Data, at[t]))
	}
}

// graph captures calls that go round the first n sets.
func (a *gpuRunner) graph(n int) *gpuGraph {
	for len(a.sets) < n {
		a.newSet(func(i int, addr uintptr) error { return a.g.dev.CopyAsync(addr, a.sets[0][i], a.sizes[i], a.g.stream) })
	}
	guard.Check(a.g.dev.Wait(a.g.stream))
	call := func(i int) error { return a.launch.Run(a.sets[i%n], a.g.stream) }
	// About half a millisecond in a graph, whole turns of the sets.
	calls := int(min(200, max(4, 500/max(a.g.between(4, call), 1))))
	calls = (calls + n - 1) / n * n
	graph := guard.Must(a.g.dev.Capture(a.g.stream, func() error {
		return guard.Try(func() {
			for i := range calls {
				guard.Check(call(i))
			}
		})
	}))
	a.undo.add(graph.Free)
	return &gpuGraph{graph, calls}
}

func (a *gpuRunner) time(seconds float64, cold bool) (out []float64) {
	g := a.graphs[cold]
	if g == nil {
		g = a.graph(map[bool]int{true: a.copies, false: 1}[cold])
		a.graphs[cold] = g
	}
	for total := 0.0; len(out) < 7 || total < seconds*1e6 && len(out) < 400; {
		us := a.g.between(1, func(int) error { return g.Launch(a.g.stream) })
		out = append(out, us/float64(g.calls))
		total += us
	}
	return out[2:]
}

// gpuRow is ours, checked, and the copy.
func (s *session) gpuRow(row *rowRun) []*candidate {
	ours := &candidate{runner: Runner{Name: Ours, Setting: "kernel/cuda, in a CUDA graph"}}
	s.proven(row, ours, guard.Try(func() {
		a := s.gpu.newRunner(row, row.copies)
		a.once(row.call)
		ours.c = a
	}))
	return []*candidate{ours, {Runner{Name: "copy go", Setting: "stream copy of 2 GiB, scaled to the row's bytes"}, gpuCopy{s.gpu, row.res.Bytes}}}
}

// flowPiece and flowSlots are how trajectories go over PCIe: pieces of 4,096 keep both directions at their rate, three of them all engines busy.
const (
	flowPiece = 4096
	flowSlots = 3
	flowRing  = 1 << 16 // trajectories of host memory; they go round
)

// feeder sends a row's trajectories from page-locked memory through a device and back, with or without the kernel: several pieces are on their way at
// once, each on a stream and in device memory of its own, so that the copies of one overlap with the kernel of another and with the copies the other way.
type feeder struct {
	dev interface { // a *cuda.Device
		Wait(stream uintptr) error
		CopyInAsync(to uintptr, b []byte, stream uintptr) error
		CopyOutAsync(b []byte, from uintptr, stream uintptr) error
	}
	launch *cuda.Launch
	op     *kernel.FuseOp // of a piece
	w      *Work
	host   [][]byte // of the ring: values, times, targets, out
	rows   []int    // bytes of a trajectory in each
	slots  [flowSlots]struct {
		stream uintptr
		addrs  []uintptr // of a piece in each
	}
}

// newFeeder makes one, and looks at some trajectories that came back.
func newFeeder(number int, w *Work, u *undo) *feeder {
	dev, locked := guard.Must(cuda.Open(number)), guard.Must(cudahost.Open(number))
	u.add(locked.Close)
	s := w.Streams[0]
	f := &feeder{dev: dev, w: w, rows: []int{s.S * s.D * elementSize(w.DType), s.S * 8, w.T * 8, w.T * s.D * elementSize(w.Out)}}
	piece, ring := change(*w, func(w *Work) { w.B = flowPiece }), change(*w, func(w *Work) { w.B = flowRing })
	f.op = guard.Must(newInputs(&piece)).onDevice(&piece).(*kernel.FuseOp)
	in := guard.Must(newInputs(&ring))
	for i, src := range [][]byte{in.values[0].Data, bytesOf(in.times[0]), bytesOf(in.targets), nil} {
		b := guard.Must(locked.Alloc(f.rows[i] * flowRing))
		u.add(func() { locked.Free(b) })
		copy(b, src)
		f.host = append(f.host, b)
	}
	f.launch = guard.Must(dev.Prepare(f.op))
	for i := range f.slots {
		slot := &f.slots[i]
		slot.stream = guard.Must(dev.NewStream())
		u.add(func() { dev.FreeStream(slot.stream) })
		for _, n := range f.rows {
			addr := guard.Must(dev.Alloc(n * flowPiece))
			u.add(func() { dev.Free(addr) })
			slot.addrs = append(slot.addrs, addr)
		}
	}
	u.add(func() { _ = f.wait() })
	guard.Check(f.whole())
	for _, i := range []int{0, 1, flowPiece, flowRing / 3, flowRing - 1} {
		op, one := *f.op, f.op.Series[0]
		one.Values, one.Times = *host(one.Values.DType, f.at(0, i, 1), 1, s.S, s.D), *host(robocache.Int64, f.at(1, i, 1), 1, s.S)
		op.Series = []kernel.Series{one}
		op.Targets, op.Out = *host(robocache.Int64, f.at(2, i, 1), 1, f.w.T), *blank(f.op.Out.DType, 1, f.w.T, s.D)
		guard.Check((kernel.Reference{}).Run(&op))
		if string(op.Out.Data) != string(f.at(3, i, 1)) {
			guard.Fail(fmt.Errorf("trajectory %d is not what the reference gives", i))
		}
	}
	return f
}

// at is trajectory i's part of a buffer, and of the n-1 that follow.
func (f *feeder) at(k, i, n int) []byte { return f.host[k][i*f.rows[k] : (i+n)*f.rows[k]] }

// pass sends all through once. A piece waits for the earlier one whose slot it takes.
func (f *feeder) pass(run func(addrs []uintptr, stream uintptr) error, oneWay bool) error {
	return guard.Try(func() {
		for at := 0; at < f.w.B; at += flowPiece {
			s := &f.slots[at/flowPiece%flowSlots]
			guard.Check(f.dev.Wait(s.stream))
			for k := range 3 {
				guard.Check(f.dev.CopyInAsync(s.addrs[k], f.at(k, at%flowRing, flowPiece), s.stream))
			}
			guard.Check(run(s.addrs, s.stream))
			if !oneWay {
				guard.Check(f.dev.CopyOutAsync(f.at(3, at%flowRing, flowPiece), s.addrs[3], s.stream))
			}
		}
		guard.Check(f.wait())
	})
}

// wait returns when all pieces have come back.
func (f *feeder) wait() (err error) {
	for i := range f.slots {
		err = errors.Join(err, f.dev.Wait(f.slots[i].stream))
	}
	return err
}

// whole is a pass with the kernel.
func (f *feeder) whole() error { return f.pass(f.launch.Run, false) }

// together is work that devices do at once, timed by the clock; or each alone, and the slowest counts: what is expected of all at once.
type together struct {
	work  []func() error // a device each
	calls float64        // in one of them
	alone bool
}

func (a together) time(float64, bool) []float64 {
	n := len(a.work)
	if a.alone {
		n = 1
	}
	worst := 0.0
	for group := range slices.Chunk(a.work, n) {
		var g errgroup.Group
		begin := time.Now()
		for _, f := range group {
			g.Go(f)
		}
		guard.Check(g.Wait())
		worst = max(worst, float64(time.Since(begin).Nanoseconds())/1e3/a.calls)
	}
	return []float64{worst}
}

// flowRow measures a million trajectories over PCIe.
func (s *session) flowRow(row *rowRun) []*candidate {
	f := newFeeder(s.r.Ordinal, &row.res.Work, &row.undo)
	row.res.Checked = "5 trajectories equal the reference's"
	nothing := func([]uintptr, uintptr) error { return nil }
	one := func(name, setting string, run func([]uintptr, uintptr) error, oneWay bool) *candidate {
		return &candidate{Runner{Name: name, Setting: setting}, together{work: []func() error{func() error { return f.pass(run, oneWay) }}, calls: 1}}
	}
	return []*candidate{
		one(Ours, fmt.Sprintf("pieces of %d from page-locked memory, %d at once; copies and kernels overlap", flowPiece, flowSlots), f.launch.Run, false),
		one("pcie go", "the same copies without the kernel", nothing, false),
		one("pcie-in go", "the copies to the device alone", nothing, true),
	}
}

const shardCalls = 100

// shardRow measures two devices against one: each holds the row's work, or is fed with it from the host.
func (s *session) shardRow(row *rowRun) []*candidate {
	all := together{calls: shardCalls}
	for i := range 2 {
		if row.res.Work.Kind == "shards-host" {
			all.calls = 1
			all.work = append(all.work, newFeeder(i, &row.res.Work, &row.undo).whole)
			row.res.Checked = "5 trajectories of each device equal the reference's"
			continue
		}
		g := openGPU(i, &row.undo)
		a := g.newRunner(row, 1)
		a.once(row.call)
		guard.Check(row.truth.compare(row.call))
		row.res.Checked = row.truth.words() + " on each device"
		all.work = append(all.work, func() error {
			return guard.Try(func() {
				for range shardCalls {
					guard.Check(a.launch.Run(a.sets[0], g.stream))
				}
				guard.Check(g.dev.Wait(g.stream))
			})
		})
	}
	linear := all
	linear.alone = true
	return []*candidate{
		{Runner{Name: Ours, Setting: "two devices at once, a goroutine and a stream each"}, all},
		{Runner{Name: "linear", Setting: "one device alone: the slower of the two"}, linear},
	}
}
