package stats_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
)

// TestStreamsOnTheirOwnClocks covers stats.S3: streams on their own clocks count their own rows,
// and a point cloud counts its points.
func TestStreamsOnTheirOwnClocks(t *testing.T) {
	ds, err := synth.New(
		synth.Options{
			Episodes: 2,
			Seconds:  1,
			Cameras:  -1,
			Points:   40,
			Rates:    map[string]float64{"camera": 30, "joints": 100, "force": 333, "cloud": 10},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	for _, budget := range []int64{0, 1} { // held, and read again for the quantiles
		got, err := stats.Compute(
			t.Context(),
			ds,
			stats.Options{Budget: budget, Frames: stats.NoFrames},
		)
		if err != nil {
			t.Fatal(err)
		}
		own := 0
		for _, f := range ds.Info().Features {
			fs := got[f.Key]
			if fs == nil {
				if f.Kind == robocache.KindNumeric || f.Kind == robocache.KindPointCloud {
					t.Errorf("%s has no statistics", f.Key)
				}
				continue
			}
			var want int64
			low := math.Inf(1)
			for e := range 2 {
				times, err := ds.Times(t.Context(), e, f.Key)
				if err != nil {
					t.Fatal(err)
				}
				if !f.Ragged() {
					want += int64(len(times))
					continue
				}
				rows := make([]robocache.Row, len(times))
				for k := range rows {
					rows[k] = robocache.Row{Episode: e, Index: k}
				}
				data, counts, err := ds.GatherRagged(t.Context(), f.Key, rows)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range counts {
					want += int64(n)
				}
				for ; len(data) > 0; data = data[f.Elements()*f.DType.Size():] {
					low = min(low, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))))
				}
			}
			if f.Clock != "" {
				own++
			}
			if fs.Count != want {
				t.Errorf("%s: %d rows counted, there are %d", f.Key, fs.Count, want)
			}
			if f.Ragged() && fs.Min[0] != low {
				t.Errorf("%s: least x %g, want %g", f.Key, fs.Min[0], low)
			}
		}
		if own < 3 {
			t.Fatalf("%d streams on their own clocks: the test shows nothing", own)
		}
	}
}
