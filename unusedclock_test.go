package robocache_test

import (
	"errors"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestNamesClock checks which names are those of the timestamps of the rows.
func TestNamesClock(t *testing.T) {
	for name, want := range map[string]bool{
		"timestamp":  true,
		"timestamps": true, "time": true, "t": true, "stamp": true, "Timestamp": true,
		"obs/timestamp":         true,
		"observation.timestamp": true, "observations/t": true, "timestamp_ns": true,
		"obs/timestamp_ms": true, "times": true,
		"":                      false,
		"state":                 false,
		"obs/vision_timestamps": false, "cam/timestamp": false, "next_obs/timestamp": false,
		"timeout": false, "dt": false, "runtime": false,
	} {
		if got := robocache.NamesClock(name); got != want {
			t.Errorf("NamesClock(%q) is %v, want %v", name, got, want)
		}
	}
}

// TestClockFault checks the description of values that are no timestamps.
func TestClockFault(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{7}, ""},
		{[]float64{0, 0.1, 0.1, 0.2}, ""},
		{[]float64{0, math.NaN()}, "is NaN at row 1"},
		{[]float64{math.Inf(1), 2}, "is +Inf at row 0"},
		{
			[]float64{1700000000, 1700000001, 1700000000.5},
			"steps back from 1700000001 to 1700000000.5 at row 2",
		},
		{[]float64{0, 0}, "is 0 in all 2 rows"},
	} {
		if got := robocache.ClockFault(c.values); got != c.want {
			t.Errorf("ClockFault(%v) is %q, want %q", c.values, got, c.want)
		}
	}
	if got := robocache.ClockLengthFault(1, 99); got != "has 1 value for 99 rows" {
		t.Error(got)
	}
}

// TestAddUnusedClock checks that the faults of one column are one finding, whose first fault is
// described, and what an error of rows without a clock says.
func TestAddUnusedClock(t *testing.T) {
	info := &robocache.Info{}
	if err := info.NoClock("open", nil, "the table has no column timestamp"); err.Error() !=
		robocache.NoClock("open", nil, "the table has no column timestamp").Error() {
		t.Error(err)
	}
	for _, episode := range []int{3, 5} {
		info.AddUnusedClock(robocache.UnusedClock{
			Stream: "obs/timestamp",
			Where:  robocache.Where{"episode": episode},
			Reason: robocache.ClockLengthFault(98, 99),
		})
	}
	const want = "obs/timestamp has 98 values for 99 rows in episode 3, and cannot be used in 2 " +
		"episodes"
	if len(info.Findings) != 1 || len(info.UnusedClocks) != 1 {
		t.Fatal(info.Findings, info.UnusedClocks)
	}
	f := info.Findings[0]
	if f.Code != robocache.ClockUnusable || f.Message != want || f.Count != 2 ||
		f.Where["episode"] != 3 ||
		f.Where["stream"] != "obs/timestamp" ||
		f.Severity != robocache.SeverityWarning {
		t.Errorf("%+v", f)
	}
	err := info.NoClock("open", nil, "the table has no column timestamp")
	if !errors.Is(err, robocache.ErrNoClock) || !errors.Is(err, robocache.ErrMisuse) {
		t.Error("the class is another: ", err)
	}
	const text = "misuse: open: " + want + " (the clock of the rows cannot be used, and nothing " +
		"says their rate); " +
		"hint: Write obs/timestamp again with one number for each row that is finite and " +
		"ascends, " +
		"or state the rate of the rows: OpenOptions.HZ: 10"
	if err.Error() != text {
		t.Errorf("%v, want\n%s", err, text)
	}
}
