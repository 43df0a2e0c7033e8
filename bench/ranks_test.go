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

// The rate of all ranks is the number of samples in the common window, from the last opening to the
// first closing, divided by its length.
func TestCommonWindow(t *testing.T) {
	a := Outcome{
		Samples: 32,
		Seconds: 4,
		WindowFigures: WindowFigures{
			OpenUnixNS:  1e9,
			ArrivalsUS:  []int64{1e6, 2e6, 3e6, 4e6},
			ArrivalRows: []int{8, 8, 8, 8},
		},
	}
	b := Outcome{
		Samples: 12,
		Seconds: 4,
		WindowFigures: WindowFigures{
			OpenUnixNS:  2e9,
			ArrivalsUS:  []int64{2e6, 4e6},
			ArrivalRows: []int{8, 4},
		},
	}
	c, err := intersectWindows([]Outcome{a, b})
	if err != nil {
		t.Fatal(err)
	}
	// The common window is 2 s to 5 s. It contains the arrivals of a at 3, 4 and 5 s, and of b at 4
	// s.
	if c.Seconds != 3 || c.Samples != 32 || c.Slowest != 1 ||
		!slices.Equal(c.Rates, []float64{8, 8.0 / 3}) {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.Gaps, []float64{125, 125, 125, 250}) {
		t.Errorf("gaps %v", c.Gaps)
	}
	b.OpenUnixNS = 6e9
	if _, err := intersectWindows([]Outcome{a, b}); err == nil {
		t.Error("windows that do not overlap have a rate")
	}
	if _, err := intersectWindows([]Outcome{a, {}}); err == nil {
		t.Error("a rank without arrivals has a rate")
	}
}

func TestCoverageOverRanks(t *testing.T) {
	// Seven samples, batch 2 and two ranks give two steps of four samples. The last step is filled
	// with samples from the start.
	whole := [][][]int64{{{6, 5, 2, 1}, {0, 1}}, {{4, 3, 0, 6}}}
	c := coverageOfRanks(whole, 7)
	if c.finishedEpochs != 1 || c.minDeliveries != 1 || c.maxDeliveries != 2 ||
		c.lostSamples != 0 ||
		c.doubledSamples != 1 ||
		c.orderSamples != 8 {
		t.Errorf("%+v", c)
	}
	for _, c := range []struct {
		total        int64
		world        int
		dropLast     bool
		wraps, drops int64
	}{{7, 2, false, 1, 0}, {8, 2, false, 0, 0}, {7, 1, false, 0, 0}, {7, 2, true, 0, 3}} {
		if wraps, drops := epochRemainder(c.total, 2, c.world, c.dropLast); wraps != c.wraps ||
			drops != c.drops {
			t.Errorf("%+v: %d wrap, %d are dropped", c, wraps, drops)
		}
	}
	// A single rank has the same order hash as an orderTally.
	tl := newOrderTally(3, 1, 2)
	tl.countBatch([]int64{2, 0}, []int32{0, 0})
	tl.countBatch([]int64{1}, []int32{0})
	if one := coverageOfRanks([][][]int64{{{2, 0, 1}}}, 3); one.orderHash() != tl.orderHash() {
		t.Error("the merged order of one rank is another")
	}
	if c := coverageOfRanks([][][]int64{{{0, 1}}, {{1, 3}}}, 5); c.lostSamples != 2 ||
		c.minDeliveries != 0 || c.doubledSamples != 1 {
		t.Errorf("%+v", c)
	}
}

// A written order file is read back: the epochs for combining ranks, and the whole window for the
// tally. A truncated file is an error.
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
	tl := newOrderTally(3, 1, 2)
	tl.wholeEpochs = true
	if done, err := finishedEpochs(p); err != nil || len(done) != 3 ||
		!slices.Equal(done[1], []int64{2, 0, 1}) {
		t.Errorf("%v %v", done, err)
	}
	if err := replayOrder(p, tl.recordEvent); err != nil {
		t.Error(err)
	}
	if tl.finishedEpochs != 2 || tl.orderSamples != 6 || tl.minDeliveries != 1 ||
		tl.maxDeliveries != 1 ||
		tl.fullBatches != 2 {
		t.Errorf("%+v", tl)
	}
	if err := os.WriteFile(p, append(b.Bytes(), 3, 0, 0, 0, 0, 0, 0, 0, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := finishedEpochs(p); err == nil {
		t.Error("a file that was cut off passed")
	}
}

func TestMergedRow(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	p := &measuredPoint{
		scenario: Scenario{Name: "s", Loader: "streaming"},
		workload: Workload{BatchSize: 8, World: 2},
	}
	outs := []Outcome{
		{
			Samples:    16,
			Seconds:    2,
			CPUSeconds: 1,
			WindowFigures: WindowFigures{
				OpenUnixNS:  1e9,
				ArrivalsUS:  []int64{1e6, 2e6},
				ArrivalRows: []int{8, 8},
			},
			MemoryFigures: MemoryFigures{
				RSSPeakMB: 100,
				PSSPeakMB: 90,
			},
			OpeningFigures: OpeningFigures{FirstBatchS: 1},
			ConsumerFigures: ConsumerFigures{
				WaitPct:    f(1),
				SingleProc: f(3),
			},
			OrderFigures: OrderFigures{
				DistinctFrac: 0.5,
				IdealFrac:    0.8,
			},
		},
		{
			Samples:    8,
			Seconds:    2,
			CPUSeconds: 2,
			WindowFigures: WindowFigures{
				OpenUnixNS:  1e9,
				ArrivalsUS:  []int64{2e6},
				ArrivalRows: []int{8},
			},
			MemoryFigures: MemoryFigures{
				RSSPeakMB: 100,
				PSSPeakMB: 90,
			},
			OpeningFigures:  OpeningFigures{FirstBatchS: 3},
			ConsumerFigures: ConsumerFigures{WaitPct: f(5)},
			OrderFigures: OrderFigures{
				DistinctFrac: 0.3,
				IdealFrac:    0.8,
			},
		},
	}
	order := filepath.Join(t.TempDir(), "order")
	if err := os.WriteFile(order, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := combineRanks(
		outs,
		slices.Repeat([]Runner{{Job: &Workload{OrderOut: order, BatchSize: 8}}}, 2),
		100,
	)
	if err != nil {
		t.Fatal(err)
	}
	p.Runs = []Outcome{o}
	result, err := (&Suite{reference: &reference{}}).pointResult(p)
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
