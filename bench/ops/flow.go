package ops

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// flowPiece and flowSlots are how trajectories go over PCIe: pieces of 4,096 keep both directions at their rate, three of them all engines busy.
const (
	flowPiece = 4096
	flowSlots = 3
	flowRing  = 1 << 16 // trajectories of host memory; they go round
)

// feeder sends a row's trajectories from page-locked memory through a device and back, with or without the kernel.
type feeder struct {
	flow   *cuda.Flow
	launch *cuda.Launch
	op     *kernel.FuseOp // of a piece
	w      *Work
	host   [][]byte // of the ring: values, times, targets, out
	rows   []int    // bytes of a trajectory in each
}

// newFeeder makes one, and looks at some trajectories that came back.
func newFeeder(dev *cuda.Device, w *Work, u *undo) *feeder {
	s := w.Streams[0]
	f := &feeder{w: w, rows: []int{s.S * s.D * elementSize(w.DType), s.S * 8, w.T * 8, w.T * s.D * elementSize(w.Out)}}
	piece, ring := change(*w, func(w *Work) { w.B = flowPiece }), change(*w, func(w *Work) { w.B = flowRing })
	f.op = guard.Must(guard.Must(newInputs(&piece)).call(&piece)).onDevice().fuse
	in := guard.Must(newInputs(&ring))
	var sizes []int
	for i, src := range [][]byte{in.values[0].Data, bytesOf(in.times[0]), bytesOf(in.targets), nil} {
		b := guard.Must(dev.HostAlloc(f.rows[i] * flowRing))
		u.add(func() { dev.HostFree(b) })
		copy(b, src)
		f.host, sizes = append(f.host, b), append(sizes, f.rows[i]*flowPiece)
	}
	f.launch = guard.Must(dev.Prepare(f.op))
	f.flow = guard.Must(dev.NewFlow(flowSlots, sizes...))
	u.add(f.flow.Close)
	clear(f.host[3])
	guard.Check(f.whole())
	for _, i := range []int{0, 1, flowPiece, flowRing / 3, flowRing - 1} {
		op, one := *f.op, f.op.Series[0]
		one.Values, one.Times = *host(one.Values.DType, f.at(0, i, 1), 1, s.S, s.D), *host(robocache.Int64, f.at(1, i, 1), 1, s.S)
		op.Series = []kernel.Series{one}
		op.Targets, op.Out = *host(robocache.Int64, f.at(2, i, 1), 1, f.w.T), *blank(f.op.Out.DType, 1, f.w.T, s.D)
		guard.Check((kernel.Reference{}).Fuse(&op))
		if string(op.Out.Data) != string(f.at(3, i, 1)) {
			guard.Fail(fmt.Errorf("trajectory %d is not what the reference gives", i))
		}
	}
	return f
}

// at is trajectory i's part of a buffer, and of the n-1 that follow.
func (f *feeder) at(k, i, n int) []byte { return f.host[k][i*f.rows[k] : (i+n)*f.rows[k]] }

// pass sends all through once.
func (f *feeder) pass(run func(addrs []uintptr, stream uintptr) error, oneWay bool) error {
	in, out := make([][]byte, 4), make([][]byte, 4)
	for at := 0; at < f.w.B; at += flowPiece {
		for k := range 3 {
			in[k] = f.at(k, at%flowRing, flowPiece)
		}
		if !oneWay {
			out[3] = f.at(3, at%flowRing, flowPiece)
		}
		if err := f.flow.Do(in, out, run); err != nil {
			return err
		}
	}
	return f.flow.Wait()
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
	f := newFeeder(s.gpu.dev, &row.res.Work, &row.undo)
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
			all.work = append(all.work, newFeeder(guard.Must(cuda.Open(i)), &row.res.Work, &row.undo).whole)
			row.res.Checked = "5 trajectories of each device equal the reference's"
			continue
		}
		g := openGPU(i, &row.undo)
		a := g.newRunner(row.call, 1, &row.undo)
		a.once(row.call)
		guard.Check(row.truth.compare(row.call.results()))
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
