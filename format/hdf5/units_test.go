package hdf5_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestTimestampUnits checks that an unknown unit of timestamps is inferred from their magnitude,
// with a finding. If the magnitude does not determine it, the error names the option.
func TestTimestampUnits(t *testing.T) {
	const period = 33_333_333
	for variant, want := range map[string]int64{
		"ns_epoch": period,
		"us_epoch": 33_333_000, "ms_epoch": 33e6, "ms_rel": 33e6, "us_rel": 33_333_000,
		"ns_rel":     period,
		"s_epoch_f8": period, "ms_epoch_f8": period, "ms_rel_f8": period, "frames": 0,
	} {
		path := cases.Make(t, "H10", variant, "t.h5")
		ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(variant, err)
		}
		defer ds.Close()
		said := slices.ContainsFunc(
			ds.Info().Findings,
			func(f robocache.Finding) bool { return f.Code == "timestamp-unit" },
		)
		if said != !strings.HasPrefix(variant, "s_") {
			t.Errorf("%s: a finding is there: %v", variant, said)
		}
		times, err := ds.Times(t.Context(), 0, "")
		if want == 0 {
			if !errors.Is(err, robocache.ErrMisuse) ||
				!strings.Contains(err.Error(), `Options: {"timestamp_unit": `) {
				t.Errorf("%s: %v", variant, err)
			}
			continue
		}
		if err != nil || len(times) != 30 {
			t.Errorf("%s: %d times, %v", variant, len(times), err)
			continue
		}
		if got := robocache.Period(times); got < want-300 || got > want+300 {
			t.Errorf("%s: a period of %d ns, want %d", variant, got, want)
		}
	}
	ds, err := robocache.Open(
		t.Context(),
		cases.Make(t, "H10", "frames", "t.h5"),
		robocache.OpenOptions{Options: map[string]string{"timestamp_unit": "s"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if times, err := ds.Times(t.Context(), 0, ""); err != nil || times[29] != 29e9 {
		t.Errorf("a stated unit: %v, %v", times, err)
	}
}
