package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

// Node is this process's place where each rank of a scenario runs on a machine of its own (Slurm:
// RANK and WORLD_SIZE).
type Node struct {
	Rank, World int
	Dir         string // a folder that all nodes see, of this run alone
}

// turn is the folder of one run of one point.
func (n *Node) turn(p *point) (string, error) {
	dir := filepath.Join(
		n.Dir,
		fmt.Sprintf("%s_bs%d_%s_%d", p.scenario.Name, p.batch, p.runner, len(p.Runs)),
	)
	if exists(n.outcome(dir, n.Rank)) {
		return "", robocache.Misuse(
			"load",
			robocache.Where{"file": dir},
			"a run of this rank was here before",
		).
			WithHint("give each run an --out of its own")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func (n *Node) outcome(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("outcome%d.json", rank))
}

// exchange leaves this rank's outcome for the others, and waits for theirs.
func (n *Node) exchange(
	ctx context.Context,
	dir string,
	own Outcome,
	failed error,
) ([]Outcome, error) {
	if failed != nil {
		own.Error = failed.Error()
	}
	// Named last: who sees it, sees all of it.
	part := n.outcome(dir, n.Rank) + ".part"
	if err := report.WriteJSON(part, own); err != nil {
		return nil, err
	}
	if err := os.Rename(part, n.outcome(dir, n.Rank)); err != nil {
		return nil, err
	}
	outs := make([]Outcome, n.World)
	for r := range outs {
		b, err := await(
			ctx,
			n.outcome(dir, r),
			20*time.Millisecond,
			fmt.Sprintf("rank %d left no outcome", r),
		)
		if err != nil {
			return nil, err
		}
		if err := robocache.At(json.Unmarshal(b, &outs[r]),
			robocache.Where{"file": n.outcome(dir, r)}); err != nil {
			return nil, err
		}
		if outs[r].Error != "" {
			return nil, fmt.Errorf("rank %d: %s", r, outs[r].Error)
		}
	}
	return outs, nil
}

// meet waits until every rank has come to the barrier: a folder that all of them see.
// runners/robocache_bench/common.py does the same.
func meet(ctx context.Context, w *Workload) error {
	if w.Barrier == "" || w.World < 2 {
		return nil
	}
	name := func(rank int) string { return filepath.Join(w.Barrier, fmt.Sprintf("rank%d", rank)) }
	if err := report.WriteFile(name(w.Rank), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for r := range w.World {
		if _, err := await(ctx, name(r), 2*time.Millisecond,
			fmt.Sprintf("rank %d did not come to the barrier", r)); err != nil {
			return err
		}
	}
	return nil
}

// await reads a file as soon as it is there.
func await(ctx context.Context, path string, each time.Duration, what string) ([]byte, error) {
	for {
		b, err := os.ReadFile(path)
		if !errors.Is(err, os.ErrNotExist) {
			return b, robocache.At(err, robocache.Where{"file": path})
		}
		select {
		case <-ctx.Done():
			return nil, robocache.Temporary("load", nil, "%s", what).WithCause(ctx.Err())
		case <-time.After(each):
		}
	}
}

// common is the stretch in which every rank's window was open, and what came in it.
type common struct {
	Seconds float64
	Samples int64
	Gaps    []float64 // ms a sample, ascending, over all ranks
	Rates   []float64 // samples/s, a rank each
	Slowest int
}

// commonWindow lays the ranks' arrivals on one clock: from the last window that opened to the first
// that closed. Both ends are arrivals of one of the ranks.
func commonWindow(ranks []Outcome) (common, error) {
	var c common
	open, end := int64(0), int64(0)
	for i, o := range ranks {
		if len(o.ArrivalsUS) == 0 {
			return c, fmt.Errorf("rank %d says no arrivals", i)
		}
		last := o.OpenUnixNS + 1000*o.ArrivalsUS[len(o.ArrivalsUS)-1]
		open = max(open, o.OpenUnixNS)
		if i == 0 || last < end {
			end = last
		}
	}
	if end <= open {
		return c, fmt.Errorf(
			"the ranks' windows do not overlap: the last opened %.3f s after the first closed",
			float64(open-end)/1e9,
		)
	}
	c.Seconds = float64(end-open) / 1e9
	for i, o := range ranks {
		var n int64
		before := o.OpenUnixNS
		for k, a := range o.ArrivalsUS {
			at := o.OpenUnixNS + 1000*a
			if at > open && at <= end {
				n += int64(o.ArrivalRows[k])
				c.Gaps = append(c.Gaps, float64(at-before)/1e6/float64(o.ArrivalRows[k]))
			}
			before = at
		}
		c.Samples += n
		c.Rates = append(c.Rates, float64(n)/c.Seconds)
		if c.Rates[i] < c.Rates[c.Slowest] {
			c.Slowest = i
		}
	}
	slices.Sort(c.Gaps)
	return c, nil
}

// coverageOf is how often samples came in the epochs that every rank has finished. Samples are
// known by number; an epoch has total of them.
func coverageOf(ranks [][][]int64, total int64) *tally {
	t, done := newTally(total, 0, 0), math.MaxInt
	t.limit = math.MaxInt64
	for _, r := range ranks {
		done = min(done, len(r))
	}
	for e := 0; e < done && len(ranks) > 0; e++ {
		for _, r := range ranks {
			t.add(r[e], nil)
		}
		t.endEpoch()
	}
	return t
}

// together is what ranks did in the time in which all their windows were open.
func together(outs []Outcome, field []Runner, total int64) (Outcome, error) {
	c, err := commonWindow(outs)
	if err != nil {
		return Outcome{}, err
	}
	o, samples := outs[0], int64(0)
	o.Ranks, o.common, o.Samples, o.Seconds = outs, &c, c.Samples, c.Seconds
	o.CPUSeconds, o.PSSPeakMB, o.DeviceReadBytes, o.OrderSHA256, o.OrderSamples, o.EpochsFinished, o.SamplesLost, o.SamplesDoubled = 0, 0, 0, "", 0, 0, 0, 0
	var orders [][][]int64
	for i, x := range outs {
		samples, o.CPUSeconds, o.PSSPeakMB, o.DeviceReadBytes = samples+x.Samples, o.CPUSeconds+
			x.CPUSeconds, o.PSSPeakMB+x.PSSPeakMB, o.DeviceReadBytes+x.DeviceReadBytes
		o.FirstBatchS, o.Compared = max(o.FirstBatchS, x.FirstBatchS), o.Compared || x.Compared
		if i > 0 {
			o.FramesChecked, o.WrongFrames, o.WrongWhere, o.Note = o.FramesChecked+
				x.FramesChecked, o.WrongFrames+x.WrongFrames, append(
				o.WrongWhere,
				x.WrongWhere...), cmp.Or(
				o.Note,
				x.Note,
			)
		}
		epochs, err := epochsOf(field[i].Job.OrderOut)
		if err != nil {
			return Outcome{}, err
		}
		orders = append(orders, epochs)
	}
	o.CPUSeconds *= float64(c.Samples) / float64(samples)
	if t := coverageOf(orders, total); t.finished > 0 {
		t.into(&o)
	}
	return o, nil
}

// atEnd is how many samples an epoch gives twice by rule, since with several ranks its last step is
// filled up from its start; and how many it leaves out.
func atEnd(total int64, batch, world int, dropLast bool) (wraps, drops int64) {
	g := int64(batch) * int64(max(world, 1))
	switch {
	case dropLast:
		return 0, total % g
	case world > 1:
		return (g - total%g) % g, 0
	}
	return 0, 0
}
