package bench

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSource delivers the listed epochs repeatedly. Making a batch takes the time made, counted
// from the end of the previous one.
type fakeSource struct {
	epochs [][]deliveredBatch
	made   time.Duration
	ready  time.Time // when the batch in progress is ready
	e, i   int
	given  int
}

func (f *fakeSource) Next(context.Context) (deliveredBatch, error) {
	if f.i == len(f.epochs[f.e]) {
		f.i, f.e = 0, (f.e+1)%len(f.epochs)
		return deliveredBatch{}, io.EOF
	}
	if f.ready.IsZero() {
		f.ready = time.Now()
	}
	f.ready = f.ready.Add(f.made)
	time.Sleep(time.Until(f.ready))
	f.i++
	f.given++
	b := f.epochs[f.e][f.i-1]
	b.Release = func() {}
	return b, nil
}

func batchOf(episode int32, samples ...int64) deliveredBatch {
	e := make([]int32, len(samples))
	for i := range e {
		e[i] = episode
	}
	return deliveredBatch{Samples: samples, Episodes: e}
}

// The window opens and closes with an arrival. It opens with batch number Warmup, which is not
// counted.
func TestWindowEnds(t *testing.T) { synctest.Test(t, testWindowEnds) }

func testWindowEnds(t *testing.T) {
	// the clock of the synctest bubble, which advances when all goroutines sleep
	began := time.Now()
	src := &fakeSource{
		made:   10 * time.Millisecond,
		epochs: [][]deliveredBatch{{batchOf(0, 0, 1), batchOf(1, 2, 3), batchOf(1, 4)}},
	}
	tl := newOrderTally(5, 2, 2)
	opened, closed := 0, 0
	var s Outcome
	err := (&consumer{source: src, sink: tl.recordEvent}).measureWindow(
		t.Context(),
		&Workload{Warmup: 5, Duration: 0.095},
		&s,
		func(open bool) {
			if open {
				opened = src.given
			} else {
				closed = src.given
			}
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	// Batches 0 to 5 come before the window. Ten more fill 95 ms; they take 100 ms.
	if opened != 6 || closed != 16 || len(s.ArrivalsUS) != 10 || s.Seconds != 0.1 ||
		s.FirstBatchS != 0.01 {
		t.Errorf("opened after %d, closed after %d: %+v", opened, closed, s)
	}
	if s.ArrivalsUS[0] != 10_000 || s.ArrivalsUS[9] != 100_000 ||
		s.OpenUnixNS != began.Add(60*time.Millisecond).UnixNano() {
		t.Errorf("%+v", s)
	}
	// An epoch has batches of 2, 2 and 1 samples. The window contains 3 epochs and one more batch.
	if s.Samples != 17 || s.WaitS != 0.1 {
		t.Errorf("%d samples, waited %v", s.Samples, s.WaitS)
	}
	if tl.finishedEpochs != 5 || tl.minDeliveries != 1 || tl.maxDeliveries != 1 ||
		tl.lostSamples != 0 ||
		tl.doubledSamples != 0 {
		t.Errorf("%+v", tl)
	}
}

// A window of whole epochs begins and ends with an epoch. It has as many epochs as needed to fill
// the seconds.
func TestWindowOfEpochs(t *testing.T) { synctest.Test(t, testWindowOfEpochs) }

func testWindowOfEpochs(t *testing.T) {
	for seconds, want := range map[float64]int{0: 2, 0.1: 4} {
		src := &fakeSource{
			made:   10 * time.Millisecond,
			epochs: [][]deliveredBatch{{batchOf(0, 0, 1), batchOf(1, 2, 3), batchOf(1, 4)}},
		}
		tl := newOrderTally(5, 2, 2)
		tl.wholeEpochs = true
		opened := 0
		var s Outcome
		err := (&consumer{source: src, sink: tl.recordEvent}).measureWindow(
			t.Context(),
			&Workload{Warm: 2, Epochs: 2, Seconds: seconds},
			&s,
			func(open bool) {
				if open {
					opened = src.given
				}
			},
		)
		if err != nil || opened != 6 || s.Epochs != want || s.Samples != int64(5*want) ||
			math.Abs(s.Seconds-float64(want)*0.03) > 1e-9 ||
			tl.finishedEpochs != want ||
			tl.minDeliveries != 1 ||
			tl.maxDeliveries != 1 {
			t.Errorf("opened after %d: %+v %v %+v", opened, s, err, tl)
		}
	}
}

// With a loader that needs 10 ms, a consumer of 8 ms waits 2 of 10 ms. With a loader that needs 5
// ms, it does not wait.
func TestWait(t *testing.T) { synctest.Test(t, testWait) }

func testWait(t *testing.T) {
	for made, want := range map[time.Duration]float64{
		10 * time.Millisecond: 20,
		5 * time.Millisecond:  0,
	} {
		src := &fakeSource{
			made:   made,
			ready:  time.Now(),
			epochs: [][]deliveredBatch{{batchOf(0, 0), batchOf(0, 1)}},
		}
		got, err := (&consumer{source: src, sink: newOrderTally(2, 1, 1).recordEvent}).measureWait(
			t.Context(),
			8*time.Millisecond,
			40,
		)
		if err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("made in %v: waits %v %%, want %v (%v)", made, got, want, err)
		}
	}
	if n := waitBatchCount(time.Minute, 1000, 100*time.Millisecond); n != 150 {
		t.Errorf("%d batches", n)
	}
	if n := waitBatchCount(time.Second, 2, time.Hour); n != 3 {
		t.Errorf("%d batches", n)
	}
}

func TestWindowPassesErrorsOn(t *testing.T) { synctest.Test(t, testWindowPassesErrorsOn) }

func testWindowPassesErrorsOn(t *testing.T) {
	if err := (&consumer{
		source: &fakeSource{epochs: [][]deliveredBatch{nil}},
		sink:   newOrderTally(1, 1, 1).recordEvent,
	}).measureWindow(
		t.Context(),
		&Workload{Duration: 1},
		&Outcome{},
		func(bool) {},
	); err == nil {
		t.Error("an empty epoch is not noticed: the loop would be endless")
	}
	want := errors.New("no")
	if err := (&consumer{
		source: failingSource{want},
		sink:   newOrderTally(1, 1, 1).recordEvent,
	}).measureWindow(
		t.Context(),
		&Workload{Duration: 1},
		&Outcome{},
		func(bool) {},
	); !errors.Is(
		err,
		want,
	) {
		t.Errorf("%v", err)
	}
}

type failingSource struct{ err error }

func (f failingSource) Next(
	context.Context,
) (deliveredBatch, error) {
	return deliveredBatch{}, f.err
}

// Quantiles are sorted[round(p(n−1))]. Gaps are divided by the samples of the batch.
func TestLatencies(t *testing.T) {
	g := arrivalGaps([]int64{4000, 6000, 16000, 17000}, []int{2, 2, 2, 1})
	if !slices.Equal(g, []float64{1, 1, 2, 5}) {
		t.Errorf("%v", g)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 2, 0.95: 5, 1: 5} {
		if got := nearestQuantile(g, p); got != want {
			t.Errorf("p%v: %v, want %v", p, got, want)
		}
	}
	if nearestQuantile(nil, 0.5) != 0 {
		t.Error("no gaps")
	}
}

// A lost and a doubled sample are found in their epoch.
func TestTallyFindsLostAndDoubled(t *testing.T) {
	tl := newOrderTally(4, 2, 2)
	tl.countBatch([]int64{0, 1}, []int32{0, 0})
	tl.countBatch([]int64{2, 2}, []int32{1, 1}) // 3 is lost, 2 is doubled
	tl.endEpoch()
	tl.countBatch([]int64{3, 2}, []int32{1, 1})
	tl.countBatch([]int64{1, 0}, []int32{0, 0})
	tl.endEpoch()
	tl.countBatch([]int64{3}, []int32{1}) // an unfinished epoch, not counted
	if tl.finishedEpochs != 2 || tl.minDeliveries != 0 || tl.maxDeliveries != 2 ||
		tl.lostSamples != 1 ||
		tl.doubledSamples != 1 {
		t.Errorf("%+v", tl)
	}
	if tl.orderSamples != 4 {
		t.Errorf("the order is over %d samples, not the first epoch's 4", tl.orderSamples)
	}
	tl.countBatch([]int64{4}, []int32{1})
	if tl.err == nil {
		t.Error("a sample outside the dataset passed")
	}
}

// Randomness covers only the window: distinct episodes in full batches, and neighbors within and
// across batches.
func TestTallyRandomness(t *testing.T) {
	tl := newOrderTally(8, 4, 4)
	tl.countBatch([]int64{0, 1, 2, 3}, []int32{0, 0, 0, 0}) // before the window opens
	tl.recordEvent(markOpen, nil, nil)
	tl.countBatch([]int64{0, 1, 2, 3}, []int32{0, 1, 1, 2}) // 3 of 4; pair 1-1
	tl.countBatch([]int64{4, 5, 6, 7}, []int32{2, 2, 2, 3}) // 2 of 4; pairs 2|2, 2-2, 2-2
	tl.countBatch([]int64{4, 5}, []int32{0, 1})             // not full: only its pairs count
	if tl.fullBatches != 2 || tl.distinctSum != 1.25 || tl.sameEpisodePairs != 4 || tl.pairs != 9 {
		t.Errorf("%+v", tl)
	}
}
