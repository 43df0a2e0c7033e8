package diagnose_test

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/synth"
)

// mendOf returns the option align from the hint of a finding.
func mendOf(t *testing.T, f robocache.Finding) align.Config {
	t.Helper()
	_, text, ok := strings.Cut(f.Hint, "Align: ")
	end := strings.LastIndex(text, "}")
	if !ok || end < 0 {
		t.Fatalf("no align in %q", f.Hint)
	}
	cfg, err := align.ParseConfig([]byte(text[:end+1]))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return cfg
}

// TestMendCloses: the align option that doctor prints corrects the stream. synth reports how its
// times were distorted, and where its samples were taken.
func TestHintCloses(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		opt := synth.Options{
			Episodes: 1,
			Seconds:  60,
			Cameras:  -1,
			Rates:    map[string]float64{"camera": 30, "joints": 100},
			Offset:   60 * time.Millisecond,
			Skew:     800,
			Seed:     seed,
		}
		bent, err := synth.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		opt.Offset, opt.Skew, opt.Jitter = 0, 0, 1 // its own clock, which is right
		right, err := synth.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		truth, err := bent.Truth(0, "observation.joints")
		if err != nil {
			t.Fatal(err)
		}
		all, err := diagnose.Run(t.Context(), bent, robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var told []robocache.Finding
		for _, f := range all {
			if f.Code == "stream-drift" {
				told = append(told, f)
			}
		}
		if len(told) != 1 {
			t.Fatalf("seed %d: %d drifts of %+v: %v", seed, len(told), truth, all)
		}
		cfg := mendOf(t, told[0])
		if d := cfg.Drift["observation.joints"].PPM - truth.Skew; math.Abs(d) > 2 {
			t.Errorf("seed %d: drift %v, it is %v", seed, cfg.Drift, truth.Skew)
		}
		times := func(ds robocache.Dataset, c align.Config) []int64 {
			timestamps, err := c.Timestamps(context.Background(), ds, 0, "observation.joints")
			if err != nil {
				t.Fatal(err)
			}
			shift, _ := c.Shift("observation.joints")
			for i := range timestamps {
				timestamps[i] += shift
			}
			return timestamps
		}
		var worst, before float64
		fixed, raw := times(bent, cfg), times(bent, align.Config{})
		taken := times(right, align.Config{})
		for i := range taken {
			worst, before = max(worst, math.Abs(float64(fixed[i]-taken[i]))),
				max(before, math.Abs(float64(raw[i]-taken[i])))
		}
		t.Logf(
			"seed %d: %+.3f ms and %.1f ppm: off by %.3f ms, fixed by %.3f ms",
			seed,
			float64(truth.Offset)/1e6,
			truth.Skew,
			before/1e6,
			worst/1e6,
		)
		if worst > 0.1e6 || before < 20*worst {
			t.Errorf(
				"seed %d: timestamps are off by %.3f ms after the correction, %.3f before",
				seed,
				worst/1e6,
				before/1e6,
			)
		}
		// Also compare the values on a grid of 50 Hz with those of the correct clock.
		value := func(ds robocache.Dataset, c align.Config) ([]int64, []byte) {
			c.HZ, c.Extent, c.Keys = robocache.Rate{
				Num: 50,
				Den: 1,
			}, "observation.state", []string{
				"observation.joints",
			}
			got, err := align.Episode(context.Background(), ds, 0, c)
			if err != nil {
				t.Fatal(err)
			}
			return got.Times, got.Streams[0].Data
		}
		at, got := value(bent, cfg)
		_, want := value(right, align.Config{})
		_, wrong := value(bent, align.Config{})
		off := func(a, b []byte) (worst float64) {
			width := len(a) / len(at) / 4
			for i := 50; i < len(at)-50; i++ { // the ends have no samples
				for k := range 2 { // angles
					x := func(b []byte) float64 {
						return float64(
							math.Float32frombits(binary.LittleEndian.Uint32(b[4*(i*width+k):])),
						)
					}
					worst = max(worst, math.Abs(x(a)-x(b)))
				}
			}
			return worst
		}
		// Angles change by at most 3 rad/s.
		if e := off(got, want); e > 3*worst/1e9+1e-4 || e > off(wrong, want)/20 {
			t.Errorf("seed %d: angles are off by %.5f rad, before %.5f", seed, e, off(wrong, want))
		}
	}
}

// The other clock of the same stream: header timestamps are converted to the recorder's clock by
// the finding of diagnose.D3.
func TestClockHint(t *testing.T) {
	p := newPair(60, 0, 0)
	f := found(t, p)["clock-drift"]
	if len(f) != 1 {
		t.Fatalf("%+v", f)
	}
	cfg := mendOf(t, f[0])
	header, err := cfg.Timestamps(context.Background(), p, 0, "imu")
	if err != nil {
		t.Fatal(err)
	}
	shift, _ := cfg.Shift("imu")
	log, _ := p.TimesBy(context.Background(), 0, "imu", "log")
	for i := range log {
		// the recorder's timestamps vary by 0.6 ms
		if d := math.Abs(float64(header[i] + shift - log[i])); d > 0.5e6 {
			t.Fatalf("row %d: %v ms beside the recorder's clock (%s)", i, d/1e6, f[0].Hint)
		}
	}
}
