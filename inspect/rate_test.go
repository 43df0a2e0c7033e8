package inspect_test

import (
	"math"
	"testing"

	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/synth"
)

// For a stream with its own clock, the rate of its timestamps is shown, whatever gaps it has.
func TestRatesAreMeasured(t *testing.T) {
	ds, err := synth.New(
		synth.Options{
			Episodes: 2,
			Seconds:  2,
			Cameras:  -1,
			Rates:    map[string]float64{"camera": 30, "joints": 100, "force": 333, "cloud": 10},
			Dropout:  400e6,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	info := ds.Info()
	clocks := 0
	for i := range info.Features { // like a bag, which declares no rates
		if info.Features[i].Clock != "" {
			clocks++
			info.Features[i].FPS.Num = 0
		}
	}
	r, err := inspect.Dataset(t.Context(), ds)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range r.Streams {
		if s.Clock == "" {
			continue
		}
		seen++
		best := math.Inf(1)
		for _, hz := range []float64{10, 100, 333} {
			best = min(best, math.Abs(s.RateHz/hz-1))
		}
		if !s.Measured || best > 0.01 {
			t.Errorf("%s: %g Hz, measured %v", s.Key, s.RateHz, s.Measured)
		}
	}
	if seen == 0 || seen != clocks {
		t.Fatalf("%d streams on their own clocks, %d expected", seen, clocks)
	}
}
