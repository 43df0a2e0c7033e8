package clouds_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestUnusedClock checks that a list without times, or with the same time for every scan, is a
// finding that is named in the error of a grid. Other faults of a list are errors of Open.
func TestUnusedClock(t *testing.T) {
	for _, fault := range []string{"short", "strings", "nan", "backwards", "twodim"} {
		_, err := robocache.Open(
			t.Context(),
			cases.Make(t, "T01", "clouds."+fault, "t01"),
			robocache.OpenOptions{},
		)
		if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), "times.txt") {
			t.Errorf("%s: %v, want malformed input that names times.txt", fault, err)
		}
	}
	blank := folder(t, map[string][]byte{
		"velodyne/000000.bin": make(
			[]byte,
			16,
		),
		"velodyne/000001.bin": make([]byte, 16),
		"times.txt":           []byte("\n\n"),
	})
	for uri, want := range map[string]string{
		cases.Make(
			t,
			"T01",
			"clouds.constant",
			"t01",
		): "times.txt has one time in all 9 lines in episode 0",
		blank: "times.txt has 0 values for 2 scans in episode 0",
	} {
		d, err := robocache.Open(t.Context(), uri, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		at := slices.IndexFunc(
			d.Info().Findings,
			func(f robocache.Finding) bool { return f.Code == robocache.ClockUnusable },
		)
		if at < 0 || d.Info().Findings[at].Message != want ||
			d.Info().Findings[at].Severity != robocache.SeverityWarning {
			t.Errorf("%+v, want %q", d.Info().Findings, want)
		}
		err = robocache.CheckGrid(t.Context(), d, robocache.Rate{Num: 5, Den: 1})
		if err == nil || !strings.Contains(err.Error(),
			"the clock of the rows cannot be used, and 10 Hz is only assumed: "+want) {
			t.Error(err)
		}
	}
}
