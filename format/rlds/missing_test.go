package rlds_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestMissingKey checks that a missing key of a record is an error of that stream only, and a finding.
func TestMissingKey(t *testing.T) {
	for variant, c := range map[string]struct {
		key      string
		episodes []int
	}{
		"missing_meta":  {"episode_metadata.episode_id", []int{0, 1}},
		"missing_state": {"observation.state", []int{1}},
	} {
		ds, err := robocache.Open(t.Context(), cases.Make(t, "R01", variant, "R01"), robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		for e := range 2 {
			rows := robocache.RowsOf(e, 0, 1)
			for i := range ds.Info().Features {
				f := &ds.Info().Features[i]
				switch f.Kind {
				case robocache.KindNumeric:
					err = ds.Gather(t.Context(), f.Key, rows, make([]byte, f.RowBytes()))
				case robocache.KindImage:
					err = ds.Frames(t.Context(), f.Key, rows, make([]robocache.FrameRef, 1))
				default:
					_, err = ds.Text(t.Context(), f.Key, rows)
				}
				if lacks := f.Key == c.key && slices.Contains(c.episodes, e); lacks != errors.Is(err, robocache.ErrMalformed) {
					t.Errorf("%s: %s of episode %d: %v", variant, f.Key, e, err)
				}
			}
		}
		found, err := ds.(robocache.Diagnoser).Diagnose(t.Context(), robocache.DiagnoseOptions{})
		n := 0
		for _, f := range found {
			if f.Code == robocache.LackingStream && f.Where["stream"] == c.key {
				n++
			}
		}
		if err != nil || n != len(c.episodes) {
			t.Errorf("%s: %v, %v", variant, found, err)
		}
	}
}
