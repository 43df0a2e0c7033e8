package bench

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Σ samples ÷ common window, from the last window that opened to the first that closed.
func TestCommonWindow(t *testing.T) {
	a := Outcome{
		OpenUnixNS:  1e9,
		ArrivalsUS:  []int64{1e6, 2e6, 3e6, 4e6},
		ArrivalRows: []int{8, 8, 8, 8},
		Samples:     32,
		Seconds:     4,
	}
	b := Outcome{
		OpenUnixNS:  2e9,
		ArrivalsUS:  []int64{2e6, 4e6},
		ArrivalRows: []int{8, 4},
		Samples:     12,
		Seconds:     4,
	}
	c, err := commonWindow([]Outcome{a, b})
	if err != nil {
		t.Fatal(err)
	}
	// Common: 2 s to 5 s. a: its arrivals at 3, 4, 5 s; b: the one at 4 s.
	if c.Seconds != 3 || c.Samples != 32 || c.Slowest != 1 ||
		!slices.Equal(c.Rates, []float64{8, 8.0 / 3}) {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.Gaps, []float64{125, 125, 125, 250}) {
		t.Errorf("gaps %v", c.Gaps)
	}
	b.OpenUnixNS = 6e9
	if _, err := commonWindow([]Outcome{a, b}); err == nil {
		t.Error("windows that do not overlap have a rate")
	}
	if _, err := commonWindow([]Outcome{a, {}}); err == nil {
		t.Error("a rank without arrivals has a rate")
	}
}

func TestCoverageOverRanks(t *testing.T) {
	// Seven samples, batch 2, two ranks: two steps of four, the last filled up from the start.
	whole := [][][]int64{{{6, 5, 2, 1}, {0, 1}}, {{4, 3, 0, 6}}}
	c := coverageOf(whole, 7)
	if c.finished != 1 || c.low != 1 || c.high != 2 || c.missing != 0 || c.extra != 1 ||
		c.orderSamples != 8 {
		t.Errorf("%+v", c)
	}
	for _, c := range []struct {
		total        int64
		world        int
		dropLast     bool
		wraps, drops int64
	}{{7, 2, false, 1, 0}, {8, 2, false, 0, 0}, {7, 1, false, 0, 0}, {7, 2, true, 0, 3}} {
		if wraps, drops := atEnd(c.total, 2, c.world, c.dropLast); wraps != c.wraps ||
			drops != c.drops {
			t.Errorf("%+v: %d wrap, %d are dropped", c, wraps, drops)
		}
	}
	// One rank alone has the same order hash as a tally's.
	tl := newTally(3, 1, 2)
	tl.add([]int64{2, 0}, []int32{0, 0})
	tl.add([]int64{1}, []int32{0})
	if one := coverageOf([][][]int64{{{2, 0, 1}}}, 3); one.sum() != tl.sum() {
		t.Error("the merged order of one rank is another")
	}
	if c := coverageOf([][][]int64{{{0, 1}}, {{1, 3}}}, 5); c.missing != 2 || c.low != 0 ||
		c.extra != 1 {
		t.Errorf("%+v", c)
	}
}

// What a runner writes comes back: epochs for the merge over ranks, and the whole window for the
// tally. A file that was cut off is an error.
func TestOrderFile(t *testing.T) {
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	w := orderWriter(out)
	for i := range 3 {
		if i == 1 {
			w(markOpen, nil, nil)
		}
		w(2, []int64{2, 0}, []int32{0, 0})
		w(1, []int64{1}, []int32{0})
		w(markEpoch, nil, nil)
	}
	w(markClose, nil, nil)
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), "order")
	if err := os.WriteFile(p, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tl := newTally(3, 1, 2)
	tl.whole = true
	if done, err := epochsOf(p); err != nil || len(done) != 3 ||
		!slices.Equal(done[1], []int64{2, 0, 1}) {
		t.Errorf("%v %v", done, err)
	}
	if err := replay(p, tl.take); err != nil {
		t.Error(err)
	}
	if tl.finished != 2 || tl.orderSamples != 6 || tl.low != 1 || tl.high != 1 || tl.full != 2 {
		t.Errorf("%+v", tl)
	}
	if err := os.WriteFile(p, append(b.Bytes(), 3, 0, 0, 0, 0, 0, 0, 0, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := epochsOf(p); err == nil {
		t.Error("a file that was cut off passed")
	}
}

func TestMergedRow(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	p := &point{
		scenario: Scenario{Name: "s", Loader: "streaming"},
		work:     Workload{BatchSize: 8, World: 2},
	}
	outs := []Outcome{
		{
			OpenUnixNS:   1e9,
			ArrivalsUS:   []int64{1e6, 2e6},
			ArrivalRows:  []int{8, 8},
			Samples:      16,
			Seconds:      2,
			CPUSeconds:   1,
			RSSPeakMB:    100,
			PSSPeakMB:    90,
			FirstBatchS:  1,
			WaitPct:      f(1),
			DistinctFrac: 0.5,
			IdealFrac:    0.8,
			SingleProc:   f(3),
		},
		{
			OpenUnixNS:   1e9,
			ArrivalsUS:   []int64{2e6},
			ArrivalRows:  []int{8},
			Samples:      8,
			Seconds:      2,
			CPUSeconds:   2,
			RSSPeakMB:    100,
			PSSPeakMB:    90,
			FirstBatchS:  3,
			WaitPct:      f(5),
			DistinctFrac: 0.3,
			IdealFrac:    0.8,
		},
	}
	order := filepath.Join(t.TempDir(), "order")
	if err := os.WriteFile(order, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := together(
		outs,
		slices.Repeat([]Runner{{Job: &Workload{OrderOut: order, BatchSize: 8}}}, 2),
		100,
	)
	if err != nil {
		t.Fatal(err)
	}
	p.Runs = []Outcome{o}
	result, err := (&Suite{ref: &reference{}}).result(p)
	if err != nil {
		t.Fatal(err)
	}
	k := result.Merged
	if k.SamplesPerS != 12 || k.SamplesMeasured != 24 || k.CPUPerSample != 3.0/24 ||
		k.FirstBatchLatencyS != 3 ||
		*k.SlowestRank != 1 ||
		*k.SlowestSamplesPerS != 4 ||
		*k.WaitPct != 5 {
		t.Errorf("%+v", k)
	}
	if math.Abs(k.PeakRSSGB-200*(1<<20)/1e9) > 1e-12 ||
		math.Abs(*k.RandomnessVsIdeal-0.5) > 1e-12 ||
		k.SingleProcSamplesPerS != nil {
		t.Errorf("%+v", k)
	}
}
