package zarr

import (
	"errors"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestUnusedClock checks that an unusable array of timestamps causes a finding with the array, the
// episode and the reason. Errors of rows without a clock must name the array.
func TestUnusedClock(t *testing.T) {
	for fault, c := range map[string]struct {
		reason string
		class  error // class of the error of Times for the last episode
	}{
		"short":   {"has 8 values for 9 rows in episode 2", robocache.ErrMalformed},
		"strings": {"holds text and no numbers", robocache.ErrNoClock},
		"nan":     {"is NaN at row 5 in episode 2", robocache.ErrMalformed},
		// reported by doctor as timestamps-backwards
		"backwards": {"steps back from 0.4 to 0.2 at row 5 in episode 2", nil},
		"constant": {"is 0 in all 9 rows in episode 0, and cannot be used in 3 " +
			"episodes", robocache.ErrNoClock},
		"twodim": {"has 2 values for each row", robocache.ErrNoClock},
		"sound":  {"", nil},
	} {
		open := func(opt robocache.OpenOptions) robocache.Dataset {
			d, err := robocache.Open(
				t.Context(),
				cases.Make(t, "T01", "zarr."+fault, "t01.zarr"),
				opt,
			)
			if err != nil {
				t.Fatal(fault, err)
			}
			t.Cleanup(func() { d.Close() })
			return d
		}
		d := open(robocache.OpenOptions{})
		want := "data/timestamp " + c.reason
		at := slices.IndexFunc(
			d.Info().Findings,
			func(f robocache.Finding) bool { return f.Code == robocache.ClockUnusable },
		)
		switch {
		case (at < 0) != (c.reason == ""):
			t.Errorf("%s: %+v", fault, d.Info().Findings)
		case at >= 0:
			if f := d.Info().Findings[at]; f.Message != want ||
				f.Severity != robocache.SeverityWarning {
				t.Errorf("%s: %+v, want %q", fault, f, want)
			}
		}
		_, err := d.Times(t.Context(), 2, "")
		if !errors.Is(err, c.class) || (err == nil) != (c.class == nil) {
			t.Errorf("%s: %v, want %v", fault, err, c.class)
		}
		if c.class != robocache.ErrNoClock {
			continue
		}
		want = "misuse: zarr times: stream : " + want + " (the clock of the rows cannot be " +
			"used, and nothing says their rate); " +
			"hint: Write data/timestamp again with one number for each row that is finite and " +
			"ascends, " +
			"or state the rate of the rows: OpenOptions.HZ: 10"
		if err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", fault, err, want)
		}
		stated := open(robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}})
		if times, err := stated.Times(t.Context(), 2, ""); err != nil || times[1] != 1e8 ||
			stated.Info().UnusedClocks != nil {
			t.Errorf(
				"%s with a stated rate: %v %v %v",
				fault,
				times,
				err,
				stated.Info().UnusedClocks,
			)
		}
	}
}
