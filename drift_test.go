package robocache_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestDriftFormula: timestamps made by Drift's own formula come back to within the rounding of
// both, far from zero as near it.
func TestDriftFormula(t *testing.T) {
	for _, ppm := range []float64{80, -80, 400, 1e5, -1e5} {
		for _, at := range []int64{0, 1_700_000_000_000_000_000, -5e9} {
			for _, fixed := range []bool{true, false} {
				var taken, timestamps []int64
				for k := range 5000 {
					dt := int64(k) * 333_333
					taken = append(taken, at+dt)
					timestamps = append(timestamps, at+int64(math.Round(float64(dt)*(1+ppm*1e-6))))
				}
				d := robocache.Drift{PPM: ppm, Fixed: fixed}
				if fixed {
					d.At = at
				}
				d.Correct(timestamps)
				for i := range timestamps {
					if e := timestamps[i] - taken[i]; e > 1 || e < -1 {
						t.Fatalf("%v ppm at %d: sample %d is %d ns off", ppm, at, i, e)
					}
				}
			}
		}
	}
	// A moment that is none of the timestamps': 10 s before the first, so 80 ppm have made 800 µs.
	s := []int64{10e9, 10e9, 11e9}
	robocache.Drift{PPM: 80, At: 0, Fixed: true}.Correct(s)
	if want := []int64{9_999_200_064, 9_999_200_064, 10_999_120_070}; !slices.Equal(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
}

func TestDriftJSON(t *testing.T) {
	for text, want := range map[string]robocache.Drift{
		"80":                  {PPM: 80},
		"-1.5e1":              {PPM: -15},
		`{"ppm": 3}`:          {PPM: 3},
		`{"ppm": 3, "at": 0}`: {PPM: 3, Fixed: true},
		`{"ppm": 3, "at": "1700000000000000001ns"}`: {
			PPM:   3,
			At:    1_700_000_000_000_000_001,
			Fixed: true,
		},
		`{"ppm": 3, "at": 1700000000}`: {
			PPM:   3,
			At:    1_700_000_000_000_000_000,
			Fixed: true,
		},
		`{"ppm": 3, "at": 1.5}`: {PPM: 3, At: 1_500_000_000, Fixed: true},
	} {
		var d robocache.Drift
		if err := json.Unmarshal([]byte(text), &d); err != nil || d != want {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
		b, err := json.Marshal(d)
		var again robocache.Drift
		if err != nil || json.Unmarshal(b, &again) != nil || again != d {
			t.Errorf("%s written as %s: %+v", text, b, again)
		}
	}
	for _, text := range []string{
		`"80"`,
		`{}`,
		`{"at": 3}`,
		`{"ppm": 1, "rate": 2}`,
		`{"ppm": 1, "at": 1e300}`,
		`{"ppm": 1, "at": 1700000000000000001}`,
		`[1]`,
	} {
		var d robocache.Drift
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s is read as %+v", text, d)
		}
	}
	for _, d := range []robocache.Drift{
		{PPM: 2e5},
		{PPM: math.NaN()},
		{PPM: math.Inf(-1)},
		{PPM: 1, At: math.MinInt64, Fixed: true},
	} {
		if err := d.Check(); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}
