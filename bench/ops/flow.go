package ops

import (
	"fmt"
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
	host   [][]byte       // of the ring: values, times, targets, out
	rows   []int          // bytes of a trajectory in each
	total  int
}

func newFeeder(dev *cuda.Device, w *Work, total int) (*feeder, error) {
	piece := *w
	piece.B = flowPiece
	ring := *w
	ring.B = flowRing
	in, err := newInputs(&ring)
	if err != nil {
		return nil, err
	}
	first := min(flowRing, flowPiece)
	_, part := in.part(&ring, 0, first)
	c, err := part.call(&piece)
	if err != nil {
		return nil, err
	}
	f := &feeder{dev: dev, op: c.onDevice().fuse, total: total}
	s := w.Streams[0]
	f.rows = []int{s.S * s.D * elementSize(w.DType), s.S * 8, w.T * 8, w.T * s.D * elementSize(w.Out)}
	for i, src := range [][]byte{in.values[0].Data, bytesOf(in.times[0]), bytesOf(in.targets), nil} {
		b, err := dev.HostAlloc(f.rows[i] * flowRing)
		if err != nil {
			f.close()
			return nil, err
		}
		copy(b, src)
		f.host = append(f.host, b)
	}
	if f.launch, err = dev.Prepare(f.op); err == nil {
		sizes := make([]int, len(f.rows))
		for i, n := range f.rows {
			sizes[i] = n * flowPiece
		}
		f.flow, err = dev.NewFlow(flowSlots, sizes...)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *feeder) close() {
	if f.flow != nil {
		f.flow.Close()
	}
	for _, b := range f.host {
		f.dev.HostFree(b)
	}
}

// pass sends all through once.
func (f *feeder) pass(run func(addrs []uintptr, stream uintptr) error, oneWay bool) error {
	in, out := make([][]byte, 4), make([][]byte, 4)
	for at := 0; at < f.total; at += flowPiece {
		i := at % flowRing
		for k := range 3 {
			in[k] = f.host[k][i*f.rows[k] : (i+flowPiece)*f.rows[k]]
		}
		if !oneWay {
			out[3] = f.host[3][i*f.rows[3] : (i+flowPiece)*f.rows[3]]
		}
		if err := f.flow.Do(in, out, run); err != nil {
			return err
		}
	}
	return f.flow.Wait()
}

// feedRunner is one pass, timed by the clock: with the kernel it is ours, without it is what PCIe allows.
type feedRunner struct {
	f   *feeder
	run func(addrs []uintptr, stream uintptr) error
	in  bool // nothing comes back
}

func (a feedRunner) time(float64, bool) ([]float64, error) {
	begin := time.Now()
	err := a.f.pass(a.run, a.in)
	return []float64{float64(time.Since(begin).Nanoseconds()) / 1e3}, err
}

func nothing([]uintptr, uintptr) error { return nil }

// check looks at some trajectories that came back.
func (f *feeder) check(w *Work) error {
	clear(f.host[3])
	if err := f.pass(f.launch.Run, false); err != nil {
		return err
	}
	one := *w
	one.B = 1
	for _, i := range []int{0, 1, flowPiece, flowRing / 3, flowRing - 1} {
		part := func(k int) []byte { return f.host[k][i*f.rows[k] : (i+1)*f.rows[k]] }
		op := *f.op
		s := f.op.Series[0]
		s.Values = host(s.Values.DType, part(0), 1, w.Streams[0].S, w.Streams[0].D)
		s.Times = host(robocache.Int64, part(1), 1, w.Streams[0].S)
		op.Series = []kernel.Series{s}
		op.Targets, op.Out = host(robocache.Int64, part(2), 1, w.T), blank(f.op.Out.DType, 1, w.T, w.Streams[0].D)
		if err := (kernel.Reference{}).Fuse(&op); err != nil {
			return err
		}
		if string(op.Out.Data) != string(part(3)) {
			return fmt.Errorf("trajectory %d is not what the reference gives", i)
		}
	}
	return nil
}

// flowRow measures a million trajectories over PCIe.
func (r *Run) flowRow(res *Result, g *gpu) ([]*candidate, func(), error) {
	f, err := newFeeder(g.dev, &res.Work, res.Work.B)
	if err != nil {
		return nil, func() {}, err
	}
	ours := &candidate{Runner{Name: Ours, Setting: fmt.Sprintf("pieces of %d from page-locked memory, %d at once; copies and kernels overlap", flowPiece, flowSlots)}, feedRunner{f, f.launch.Run, false}}
	if err := f.check(&res.Work); err != nil {
		ours.runner.Failed = err.Error()
	} else {
		res.Checked = "5 trajectories equal the reference's"
	}
	return []*candidate{ours,
		{Runner{Name: "pcie go", Setting: "the same copies without the kernel"}, feedRunner{f, nothing, false}},
		{Runner{Name: "pcie-in go", Setting: "the copies to the device alone"}, feedRunner{f, nothing, true}},
	}, f.close, nil
}

// shard is what one device holds of a sharded row.
type shard struct {
	gpu    *gpu
	runner *gpuRunner
}

// shardRunner runs some shards at once, from a goroutine each.
type shardRunner struct{ shards []shard }

const shardCalls = 100

func (a shardRunner) time(float64, bool) ([]float64, error) {
	var out []float64
	for range 3 {
		us, err := atOnce(a.shards, func(s shard) error {
			for range shardCalls {
				if err := s.runner.launch.Run(s.runner.sets[0], s.gpu.stream); err != nil {
					return err
				}
			}
			return s.gpu.dev.Wait(s.gpu.stream)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, us/shardCalls)
	}
	return out, nil
}

// atOnce does something with each from a goroutine of its own, and gives the µs until all are done.
func atOnce[T any](each []T, do func(T) error) (float64, error) {
	var g errgroup.Group
	begin := time.Now()
	for _, x := range each {
		g.Go(func() error { return do(x) })
	}
	err := g.Wait()
	return float64(time.Since(begin).Nanoseconds()) / 1e3, err
}

// slowest is what one device alone takes: the linear expectation of all at once is the slowest of them.
type slowest struct{ runners []shardRunner }

func (a slowest) time(seconds float64, cold bool) ([]float64, error) {
	var worst []float64
	for _, one := range a.runners {
		us, err := one.time(seconds, cold)
		if err != nil {
			return nil, err
		}
		if worst == nil || median(us) > median(worst) {
			worst = us
		}
	}
	return worst, nil
}

// feeders run a pass on several devices at once.
type feeders []*feeder

func (a feeders) time(float64, bool) ([]float64, error) {
	us, err := atOnce(a, func(f *feeder) error { return f.pass(f.launch.Run, false) })
	return []float64{us}, err
}

// shardRow measures two devices against one: each holds the row's work, or is fed with it from the host.
func (r *Run) shardRow(res *Result, in *inputs, truth *truth) (field []*candidate, done func(), err error) {
	var undo []func()
	done = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	ours := &candidate{runner: Runner{Name: Ours, Setting: "two devices at once, a goroutine and a stream each"}}
	linear := &candidate{runner: Runner{Name: "linear", Setting: "one device alone: the slower of the two"}}
	if res.Work.Kind == "shards-host" {
		var all feeders
		var alone []timer
		for i := range 2 {
			dev, err := cuda.Open(i)
			if err != nil {
				return nil, done, err
			}
			f, err := newFeeder(dev, &res.Work, res.Work.B)
			if err != nil {
				return nil, done, err
			}
			undo = append(undo, f.close)
			if err := f.check(&res.Work); err != nil {
				ours.runner.Failed = err.Error()
			}
			all, alone = append(all, f), append(alone, feeders{f})
		}
		res.Checked = "5 trajectories of each device equal the reference's"
		ours.c, linear.c = all, alone[0]
		linear.runner.Setting = "the first device alone"
		return []*candidate{ours, linear}, done, nil
	}
	var all shardRunner
	var alone slowest
	for i := range 2 {
		g, err := openGPU(i)
		if err != nil {
			return nil, done, err
		}
		undo = append(undo, g.close)
		c, err := in.call(&res.Work)
		if err != nil {
			return nil, done, err
		}
		a, err := g.newRunner(c, 1)
		undo = append(undo, a.close)
		if err == nil {
			err = a.once(c)
		}
		if err == nil {
			err = truth.compare(c.results())
		}
		if err != nil {
			ours.runner.Failed = err.Error()
			return []*candidate{ours}, done, nil
		}
		all.shards = append(all.shards, shard{g, a})
		alone.runners = append(alone.runners, shardRunner{[]shard{{g, a}}})
	}
	res.Checked = truth.words() + " on each device"
	ours.c, linear.c = all, alone
	return []*candidate{ours, linear}, done, nil
}
