package hdf5

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/aloha"
	_ "github.com/goatnote-inc/robocache/format/robomimic"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// clockFaults contains the faults of testdata/cases/T01.py and their descriptions, without the
// column.
var clockFaults = map[string]string{
	"short":     "has 8 values for 9 rows in episode 2",
	"strings":   "holds text and no numbers in episode 2",
	"nan":       "is NaN at row 5 in episode 2",
	"backwards": "steps back from 0.4 to 0.2 at row 5 in episode 2",
	"constant":  "is 0 in all 9 rows in episode 0, and cannot be used in 3 episodes",
	"twodim":    "has 2 values for each row in episode 2",
}

// openClock opens a case of T01.py.
func openClock(t *testing.T, layout, fault string, opt robocache.OpenOptions) robocache.Dataset {
	t.Helper()
	name := "t01"
	if layout != "aloha" {
		name += ".hdf5"
	}
	d, err := robocache.Open(t.Context(), cases.Make(t, "T01", layout+"."+fault, name), opt)
	if err != nil {
		t.Fatal(layout, fault, err)
	}
	t.Cleanup(func() { d.Close() })
	if d.Info().Format != layout {
		t.Fatalf("%s: the format is %s", layout, d.Info().Format)
	}
	return d
}

// unusable returns the finding of a clock that cannot be used.
func unusable(t *testing.T, d robocache.Dataset) robocache.Finding {
	t.Helper()
	var out []robocache.Finding
	for _, f := range d.Info().Findings {
		if f.Code == robocache.ClockUnusable {
			out = append(out, f)
		}
	}
	if len(out) != 1 {
		t.Fatalf("%d findings of clocks, want 1: %v", len(out), d.Info().Findings)
	}
	return out[0]
}

// TestUnusedClock checks that an unusable data set of timestamps causes a finding with the column,
// the episode and the reason. Errors of rows without a clock must name it.
func TestUnusedClock(t *testing.T) {
	hz := robocache.Rate{Num: 10, Den: 1}
	for layout, column := range map[string]string{
		"hdf5": "timestamp", "robomimic": "obs/timestamp", "aloha": "observations/timestamp",
	} {
		for fault, reason := range clockFaults {
			d := openClock(t, layout, fault, robocache.OpenOptions{})
			want := column + " " + reason
			if f := unusable(t, d); f.Message != want || f.Severity != robocache.SeverityWarning ||
				f.Where["stream"] != column || !strings.Contains(f.Hint, "Write "+column+" again") {
				t.Errorf("%s %s: %+v, want %q", layout, fault, f, want)
			}
			_, err := d.Times(t.Context(), 2, "")
			switch {
			case layout == "aloha": // 50 Hz is assumed
				if err != nil {
					t.Errorf("%s %s: %v", layout, fault, err)
				}
			case layout == "hdf5" && (fault == "short" || fault == "nan" || fault == "backwards"):
				if !errors.Is(err, robocache.ErrMalformed) {
					t.Errorf("%s %s: %v, want malformed input", layout, fault, err)
				}
			default:
				want := "misuse: " + layout + ": file t01.hdf5: " + want +
					" (the clock of the rows cannot be used, and nothing says their rate); " +
					"hint: Write " + column +
					" again with one number for each row that is finite and ascends" +
					", or state the rate of the rows: OpenOptions.HZ: 10"
				if !errors.Is(err, robocache.ErrNoClock) || err.Error() != want {
					t.Errorf("%s %s:\n%v, want\n%s", layout, fault, err, want)
				}
			}
			if layout == "hdf5" && fault != "constant" {
				continue // the other episodes have a clock
			}
			state := "nothing says their rate: "
			if layout == "aloha" {
				state = "50 Hz is only assumed: "
			}
			err = robocache.CheckGrid(t.Context(), d, hz)
			if err == nil ||
				!strings.Contains(err.Error(), "the clock of the rows cannot be used, and "+state+
					want+";") {
				t.Errorf("%s %s: %v", layout, fault, err)
			}
			stated := openClock(t, layout, fault, robocache.OpenOptions{HZ: hz})
			if err := robocache.CheckGrid(t.Context(), stated, hz); err != nil ||
				stated.Info().UnusedClocks != nil {
				t.Errorf(
					"%s %s with a stated rate: %v, %v",
					layout,
					fault,
					err,
					stated.Info().UnusedClocks,
				)
			}
		}
	}
}

// TestSoundClockNotTaken checks that usable timestamps are reported if the format ignores them, and
// that following the hint makes them the clock.
func TestSoundClockNotTaken(t *testing.T) {
	for layout, column := range map[string]string{
		"robomimic": "obs/timestamp",
		"aloha":     "observations/timestamp",
	} {
		d := openClock(t, layout, "sound", robocache.OpenOptions{})
		f := unusable(t, d)
		want := column + " is not taken as the clock of the rows by the format " + layout
		if f.Message != want || f.Severity != robocache.SeverityInfo {
			t.Errorf("%+v, want %q", f, want)
		}
		err := robocache.CheckGrid(t.Context(), d, robocache.Rate{Num: 10, Den: 1})
		if err == nil || !strings.Contains(err.Error(),
			"the clock of the rows is not used, and ") || !strings.Contains(err.Error(),
			`Open the files as Format: "hdf5" with Options: {"timestamps": "`+column+`"}`) {
			t.Error(err)
		}
		named, err := robocache.Open(
			t.Context(),
			cases.Make(t, "T01", layout+".sound", "t02.hdf5"),
			robocache.OpenOptions{
				Format: "hdf5", Options: map[string]string{"timestamps": column},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer named.Close()
		if times, err := named.Times(t.Context(), 2, ""); err != nil || len(times) != 9 ||
			times[8] != 800_000_000 {
			t.Error(times, err)
		}
	}
	if found := openClock(t, "hdf5", "sound", robocache.OpenOptions{}).Info().Findings; len(found) >
		0 {
		t.Error(found)
	}
}
