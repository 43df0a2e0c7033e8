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

// Node describes this process in a run where each rank has its own machine (Slurm: RANK and
// WORLD_SIZE).
type Node struct {
	Rank, World int
	Dir         string // a folder of this run that all nodes share
}

// runFolder creates the folder for one run of one point.
func (n *Node) runFolder(p *measuredPoint) (string, error) {
	dir := filepath.Join(
		n.Dir,
		fmt.Sprintf("%s_bs%d_%s_%d", p.scenario.Name, p.batchSize, p.runnerName, len(p.Runs)),
	)
	if fileExists(n.outcomePath(dir, n.Rank)) {
		return "", robocache.Misuse(
			"load",
			robocache.Where{"file": dir},
			"a run of this rank was here before",
		).
			WithHint("give each run an --out of its own")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// outcomePath returns the file in which a rank saves its outcome.
func (n *Node) outcomePath(dir string, rank int) string {
	return filepath.Join(dir, fmt.Sprintf("outcome%d.json", rank))
}

// exchangeOutcomes saves the outcome of this rank, waits for those of the others, and returns all
// of them.
func (n *Node) exchangeOutcomes(
	ctx context.Context,
	dir string,
	own Outcome,
	failed error,
) ([]Outcome, error) {
	if failed != nil {
		own.Error = failed.Error()
	}
	// The file is renamed after it is complete, so that other ranks never read a part of it.
	part := n.outcomePath(dir, n.Rank) + ".part"
	if err := report.WriteJSON(part, own); err != nil {
		return nil, err
	}
	if err := os.Rename(part, n.outcomePath(dir, n.Rank)); err != nil {
		return nil, err
	}
	outs := make([]Outcome, n.World)
	for r := range outs {
		b, err := awaitFile(
			ctx,
			n.outcomePath(dir, r),
			20*time.Millisecond,
			fmt.Sprintf("rank %d left no outcome", r),
		)
		if err != nil {
			return nil, err
		}
		if err := robocache.At(json.Unmarshal(b, &outs[r]),
			robocache.Where{"file": n.outcomePath(dir, r)}); err != nil {
			return nil, err
		}
		if outs[r].Error != "" {
			return nil, fmt.Errorf("rank %d: %s", r, outs[r].Error)
		}
	}
	return outs, nil
}

// meetRanks blocks until every rank has reached the barrier, which is a shared folder.
// runners/robocache_bench/common.py uses the same protocol.
func meetRanks(ctx context.Context, w *Workload) error {
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
		if _, err := awaitFile(ctx, name(r), 2*time.Millisecond,
			fmt.Sprintf("rank %d did not come to the barrier", r)); err != nil {
			return err
		}
	}
	return nil
}

// awaitFile polls until the file exists, and returns its content.
func awaitFile(ctx context.Context, path string, each time.Duration, what string) ([]byte, error) {
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

// commonSpan describes the period in which the windows of all ranks were open.
type commonSpan struct {
	Seconds float64
	Samples int64
	Gaps    []float64 // ms per sample, ascending, over all ranks
	Rates   []float64 // samples/s of each rank
	Slowest int
}

// intersectWindows places the arrivals of all ranks on one clock. The span begins when the last
// window opens and ends when the first one closes. Both ends are arrivals of one of the ranks.
func intersectWindows(ranks []Outcome) (commonSpan, error) {
	var c commonSpan
	open, end := int64(0), int64(0)
	for i, o := range ranks {
		if len(o.ArrivalsUS) == 0 {
			return c, fmt.Errorf("rank %d reported no arrivals", i)
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

// coverageOfRanks counts the deliveries of each sample in the epochs that every rank has finished.
// total is the number of samples in an epoch.
func coverageOfRanks(ranks [][][]int64, total int64) *orderTally {
	t, done := newOrderTally(total, 0, 0), math.MaxInt
	t.sampleLimit = math.MaxInt64
	for _, r := range ranks {
		done = min(done, len(r))
	}
	for e := 0; e < done && len(ranks) > 0; e++ {
		for _, r := range ranks {
			t.countBatch(r[e], nil)
		}
		t.endEpoch()
	}
	return t
}

// combineRanks returns the outcome of all ranks for the period in which all windows were open.
func combineRanks(outs []Outcome, field []Runner, total int64) (Outcome, error) {
	c, err := intersectWindows(outs)
	if err != nil {
		return Outcome{}, err
	}
	o, samples := outs[0], int64(0)
	o.Ranks, o.commonSpan, o.Samples, o.Seconds = outs, &c, c.Samples, c.Seconds
	o.CPUSeconds, o.PSSPeakMB, o.DeviceReadBytes = 0, 0, 0
	o.OrderSHA256, o.OrderSamples = "", 0
	o.EpochsFinished, o.SamplesLost, o.SamplesDoubled = 0, 0, 0
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
		epochs, err := finishedEpochs(field[i].Job.OrderOut)
		if err != nil {
			return Outcome{}, err
		}
		orders = append(orders, epochs)
	}
	o.CPUSeconds *= float64(c.Samples) / float64(samples)
	if t := coverageOfRanks(orders, total); t.finishedEpochs > 0 {
		t.fillOrder(&o)
	}
	return o, nil
}

// epochRemainder returns how many samples an epoch delivers twice and how many it drops, by design.
// With several ranks, the last step is filled with samples from the start of the epoch.
func epochRemainder(total int64, batch, world int, dropLast bool) (wraps, drops int64) {
	g := int64(batch) * int64(max(world, 1))
	switch {
	case dropLast:
		return 0, total % g
	case world > 1:
		return (g - total%g) % g, 0
	}
	return 0, 0
}
