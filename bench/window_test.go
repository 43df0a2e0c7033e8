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

// fakeSource gives the epochs listed, over and over; every batch takes as long as made says from
// the end of the one before.
type fakeSource struct {
	epochs [][]taken
	made   time.Duration
	ready  time.Time // when the batch under way is done
	e, i   int
	given  int
}

func (f *fakeSource) Next(context.Context) (taken, error) {
	if f.i == len(f.epochs[f.e]) {
		f.i, f.e = 0, (f.e+1)%len(f.epochs)
		return taken{}, io.EOF
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

func batchOf(episode int32, samples ...int64) taken {
	e := make([]int32, len(samples))
	for i := range e {
		e[i] = episode
	}
	return taken{Samples: samples, Episodes: e}
}

// Both ends of the window are arrivals: it opens with batch number Warmup, and that batch is not
// counted.
func TestWindowEnds(t *testing.T) { synctest.Test(t, testWindowEnds) }

func testWindowEnds(t *testing.T) {
	began := time.Now() // of the bubble: time moves where all sleep
	src := &fakeSource{
		made:   10 * time.Millisecond,
		epochs: [][]taken{{batchOf(0, 0, 1), batchOf(1, 2, 3), batchOf(1, 4)}},
	}
	tl := newTally(5, 2, 2)
	opened, closed := 0, 0
	var s Outcome
	err := (&consumer{src: src, sink: tl.take}).window(
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
	// Batches 0…5 come before; then 10 more until 95 ms have gone: 100 ms.
	if opened != 6 || closed != 16 || len(s.ArrivalsUS) != 10 || s.Seconds != 0.1 ||
		s.FirstBatchS != 0.01 {
		t.Errorf("opened after %d, closed after %d: %+v", opened, closed, s)
	}
	if s.ArrivalsUS[0] != 10_000 || s.ArrivalsUS[9] != 100_000 ||
		s.OpenUnixNS != began.Add(60*time.Millisecond).UnixNano() {
		t.Errorf("%+v", s)
	}
	// Epochs of 2, 2, 1: the window has 3 of them and one batch more.
	if s.Samples != 17 || s.WaitS != 0.1 {
		t.Errorf("%d samples, waited %v", s.Samples, s.WaitS)
	}
	if tl.finished != 5 || tl.low != 1 || tl.high != 1 || tl.missing != 0 || tl.extra != 0 {
		t.Errorf("%+v", tl)
	}
}

// A window of whole epochs begins and ends with one; as many follow as fill the seconds.
func TestWindowOfEpochs(t *testing.T) { synctest.Test(t, testWindowOfEpochs) }

func testWindowOfEpochs(t *testing.T) {
	for seconds, want := range map[float64]int{0: 2, 0.1: 4} {
		src := &fakeSource{
			made:   10 * time.Millisecond,
			epochs: [][]taken{{batchOf(0, 0, 1), batchOf(1, 2, 3), batchOf(1, 4)}},
		}
		tl := newTally(5, 2, 2)
		tl.whole = true
		opened := 0
		var s Outcome
		err := (&consumer{src: src, sink: tl.take}).window(
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
			tl.finished != want ||
			tl.low != 1 ||
			tl.high != 1 {
			t.Errorf("opened after %d: %+v %v %+v", opened, s, err, tl)
		}
	}
}

// A consumer of 8 ms at a loader of 10 ms waits 2 of 10 ms; at one of 5 ms it does not wait.
func TestWait(t *testing.T) { synctest.Test(t, testWait) }

func testWait(t *testing.T) {
	for made, want := range map[time.Duration]float64{
		10 * time.Millisecond: 20,
		5 * time.Millisecond:  0,
	} {
		src := &fakeSource{
			made:   made,
			ready:  time.Now(),
			epochs: [][]taken{{batchOf(0, 0), batchOf(0, 1)}},
		}
		got, err := (&consumer{src: src, sink: newTally(2, 1, 1).take}).wait(
			t.Context(),
			8*time.Millisecond,
			40,
		)
		if err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("made in %v: waits %v %%, want %v (%v)", made, got, want, err)
		}
	}
	if n := waitBatches(time.Minute, 1000, 100*time.Millisecond); n != 150 {
		t.Errorf("%d batches", n)
	}
	if n := waitBatches(time.Second, 2, time.Hour); n != 3 {
		t.Errorf("%d batches", n)
	}
}

func TestWindowPassesErrorsOn(t *testing.T) { synctest.Test(t, testWindowPassesErrorsOn) }

func testWindowPassesErrorsOn(t *testing.T) {
	if err := (&consumer{
		src:  &fakeSource{epochs: [][]taken{nil}},
		sink: newTally(1, 1, 1).take,
	}).window(
		t.Context(),
		&Workload{Duration: 1},
		&Outcome{},
		func(bool) {},
	); err == nil {
		t.Error("an empty epoch is not noticed: the loop would be endless")
	}
	want := errors.New("no")
	if err := (&consumer{src: failingSource{want}, sink: newTally(1, 1, 1).take}).window(
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

func (f failingSource) Next(context.Context) (taken, error) { return taken{}, f.err }

// Nearest rank: sorted[round(p(n−1))]. Gaps are divided by the batch's samples.
func TestLatencies(t *testing.T) {
	g := gaps([]int64{4000, 6000, 16000, 17000}, []int{2, 2, 2, 1})
	if !slices.Equal(g, []float64{1, 1, 2, 5}) {
		t.Errorf("%v", g)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 2, 0.95: 5, 1: 5} {
		if got := quantile(g, p); got != want {
			t.Errorf("p%v: %v, want %v", p, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("no gaps")
	}
}

// A lost and a doubled sample show, in the epoch that had them.
func TestTallyFindsLostAndDoubled(t *testing.T) {
	tl := newTally(4, 2, 2)
	tl.add([]int64{0, 1}, []int32{0, 0})
	tl.add([]int64{2, 2}, []int32{1, 1}) // 3 is lost, 2 comes twice
	tl.endEpoch()
	tl.add([]int64{3, 2}, []int32{1, 1})
	tl.add([]int64{1, 0}, []int32{0, 0})
	tl.endEpoch()
	tl.add([]int64{3}, []int32{1}) // not finished: not counted
	if tl.finished != 2 || tl.low != 0 || tl.high != 2 || tl.missing != 1 || tl.extra != 1 {
		t.Errorf("%+v", tl)
	}
	if tl.orderSamples != 4 {
		t.Errorf("the order is over %d samples, not the first epoch's 4", tl.orderSamples)
	}
	tl.add([]int64{4}, []int32{1})
	if tl.err == nil {
		t.Error("a sample outside the dataset passed")
	}
}

// Randomness of the window alone: distinct episodes a full batch, and neighbours across batches
// too.
func TestTallyRandomness(t *testing.T) {
	tl := newTally(8, 4, 4)
	tl.add([]int64{0, 1, 2, 3}, []int32{0, 0, 0, 0}) // before the window
	tl.take(markOpen, nil, nil)
	tl.add([]int64{0, 1, 2, 3}, []int32{0, 1, 1, 2}) // 3 of 4; pair 1-1
	tl.add([]int64{4, 5, 6, 7}, []int32{2, 2, 2, 3}) // 2 of 4; pairs 2|2, 2-2, 2-2
	tl.add([]int64{4, 5}, []int32{0, 1})             // not full: only its pairs
	if tl.full != 2 || tl.distinct != 1.25 || tl.same != 4 || tl.pairs != 9 {
		t.Errorf("%+v", tl)
	}
}
