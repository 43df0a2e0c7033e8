package ops

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
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
	dev    *cuda.Device
	flow   *cuda.Flow
	launch *cuda.Launch
	op     *kernel.FuseOp // of a piece
	w      *Work
	host   [][]byte // of the ring: values, times, targets, out
	rows   []int    // bytes of a trajectory in each
}

func newFeeder(dev *cuda.Device, w *Work) (*feeder, error) {
	s := w.Streams[0]
	f := &feeder{dev: dev, w: w, rows: []int{s.S * s.D * elementSize(w.DType), s.S * 8, w.T * 8, w.T * s.D * elementSize(w.Out)}}
	piece, ring := change(*w, func(w *Work) { w.B = flowPiece }), change(*w, func(w *Work) { w.B = flowRing })
	part, err := newInputs(&piece)
	if err != nil {
		return f, err
	}
	c, err := part.call(&piece)
	if err != nil {
		return f, err
	}
	f.op = c.onDevice().fuse
	in, err := newInputs(&ring)
	if err != nil {
		return f, err
	}
	var sizes []int
	for i, src := range [][]byte{in.values[0].Data, bytesOf(in.times[0]), bytesOf(in.targets), nil} {
		b, err := dev.HostAlloc(f.rows[i] * flowRing)
		if err != nil {
			return f, err
		}
		copy(b, src)
		f.host, sizes = append(f.host, b), append(sizes, f.rows[i]*flowPiece)
	}
	if f.launch, err = dev.Prepare(f.op); err == nil {
		f.flow, err = dev.NewFlow(flowSlots, sizes...)
	}
	return f, err
}

func (f *feeder) close() {
	if f.flow != nil {
		f.flow.Close()
	}
	for _, b := range f.host {
		f.dev.HostFree(b)
	}
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

func nothing([]uintptr, uintptr) error { return nil }

// check looks at some trajectories that came back.
func (f *feeder) check() error {
	clear(f.host[3])
	if err := f.whole(); err != nil {
		return err
	}
	s := f.w.Streams[0]
	for _, i := range []int{0, 1, flowPiece, flowRing / 3, flowRing - 1} {
		op, one := *f.op, f.op.Series[0]
		one.Values, one.Times = *host(one.Values.DType, f.at(0, i, 1), 1, s.S, s.D), *host(robocache.Int64, f.at(1, i, 1), 1, s.S)
		op.Series = []kernel.Series{one}
		op.Targets, op.Out = *host(robocache.Int64, f.at(2, i, 1), 1, f.w.T), *blank(f.op.Out.DType, 1, f.w.T, s.D)
		if err := (kernel.Reference{}).Fuse(&op); err != nil {
			return err
		}
		if string(op.Out.Data) != string(f.at(3, i, 1)) {
			return fmt.Errorf("trajectory %d is not what the reference gives", i)
		}
	}
	return nil
}

// together is work that devices do at once, timed by the clock; or each alone, and the slowest counts: what is expected of all at once.
type together struct {
	work  []func() error // a device each
	calls float64        // in one of them
	alone bool
}

func (a together) time(float64, bool) ([]float64, error) {
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
		if err := g.Wait(); err != nil {
			return nil, err
		}
		worst = max(worst, float64(time.Since(begin).Nanoseconds())/1e3/a.calls)
	}
	return []float64{worst}, nil
}

// flowRow measures a million trajectories over PCIe.
func (s *session) flowRow(res *Result) ([]*candidate, func(), error) {
	f, err := newFeeder(s.gpu.dev, &res.Work)
	if err == nil {
		err = f.check()
	}
	res.Checked = "5 trajectories equal the reference's"
	one := func(name, setting string, run func([]uintptr, uintptr) error, oneWay bool) *candidate {
		return &candidate{Runner{Name: name, Setting: setting}, together{work: []func() error{func() error { return f.pass(run, oneWay) }}, calls: 1}}
	}
	if err != nil {
		return nil, f.close, err
	}
	return []*candidate{
		one(Ours, fmt.Sprintf("pieces of %d from page-locked memory, %d at once; copies and kernels overlap", flowPiece, flowSlots), f.launch.Run, false),
		one("pcie go", "the same copies without the kernel", nothing, false),
		one("pcie-in go", "the copies to the device alone", nothing, true),
	}, f.close, nil
}

const shardCalls = 100

// shardRow measures two devices against one: each holds the row's work, or is fed with it from the host.
func (s *session) shardRow(row *rowRun) (field []*candidate, done func(), err error) {
	var undo []func()
	done = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	all := together{calls: shardCalls}
	for i := range 2 {
		if row.res.Work.Kind == "shards-host" {
			all.calls = 1
			dev, err := cuda.Open(i)
			if err != nil {
				return nil, done, err
			}
			f, err := newFeeder(dev, &row.res.Work)
			undo = append(undo, f.close)
			if err == nil {
				err = f.check()
			}
			if err != nil {
				return nil, done, err
			}
			all.work = append(all.work, f.whole)
			row.res.Checked = "5 trajectories of each device equal the reference's"
			continue
		}
		g, err := openGPU(i)
		if err != nil {
			return nil, done, err
		}
		undo = append(undo, g.close)
		a, err := g.newRunner(row.call, 1)
		undo = append(undo, a.close)
		if err == nil {
			err = a.once(row.call)
		}
		if err == nil {
			err = row.truth.compare(row.call.results())
		}
		if err != nil {
			return nil, done, err
		}
		row.res.Checked = row.truth.words() + " on each device"
		all.work = append(all.work, func() error {
			for range shardCalls {
				if err := a.launch.Run(a.sets[0], g.stream); err != nil {
					return err
				}
			}
			return g.dev.Wait(g.stream)
		})
	}
	linear := all
	linear.alone = true
	return []*candidate{
		{Runner{Name: Ours, Setting: "two devices at once, a goroutine and a stream each"}, all},
		{Runner{Name: "linear", Setting: "one device alone: the slower of the two"}, linear},
	}, done, nil
}
