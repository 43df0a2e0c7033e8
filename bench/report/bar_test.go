package report

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func TestBarTexts(t *testing.T) {
	for text, want := range map[string]Bar{
		"≤ 2.6 µs": {Value: 2.6, Unit: "µs"},
		"≥ 97 % of copy": {
			Least: true,
			Value: 0.97,
			Unit:  "share",
			Than:  "copy",
		},
		"≥ 2.5× torch.compile": {
			Least: true,
			Value: 2.5,
			Unit:  "times",
			Than:  "torch.compile",
		},
		"≤ 1.1× row fuse3-4": {Value: 1.1, Unit: "times", Row: "fuse3-4"},
		"≥ 90 % of memcpy, cold": {
			Least: true,
			Value: 0.9,
			Unit:  "share",
			Than:  "memcpy",
			Cold:  true,
		},
		"robocache-pool ≥ 2.1× pyav-pool above decode": {
			Ours:  "robocache-pool",
			Least: true,
			Value: 2.1,
			Unit:  "times",
			Than:  "pyav-pool",
			Floor: "decode",
		},
		"robocache rate ≥ 0.8× robocache-http": {
			Metric: "rate",
			Least:  true,
			Value:  0.8,
			Unit:   "times",
			Than:   "robocache-http",
		},
		"robocache memory ≤ 1000 MB": {Metric: "memory", Value: 1000, Unit: "MB"},
		"robocache randomness ≥ 0.97": {
			Metric: "randomness",
			Least:  true,
			Value:  0.97,
		},
		"robocache cpu ≤ 1.15× decode-floor": {
			Metric: "cpu",
			Value:  1.15,
			Unit:   "times",
			Than:   "decode-floor",
		},
	} {
		if want.Text = text; want.Ours == "" {
			want.Ours = "robocache"
		}
		if want.Metric == "" {
			want.Metric = "us"
		}
		if got, err := ParseBar(text, "us"); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"",
		"2.6 µs",
		"≤ µs",
		"≥ 3 µs",
		"≥ 3",
		"≥ 3×",
		"≥ 3× ",
		"≤ 3× torch",
		"≥ 90 % memcpy",
		"≤ 1.1× row ",
		"≥ 1..2× torch",
		"lerobot cpu ≤ 3",
	} {
		if _, err := ParseBar(text, "us"); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
