package rosbag2_test

import (
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestUnusableMetadata: an empty or broken metadata.yaml does not hide the bag beside it.
func TestUnusableMetadata(t *testing.T) {
	for _, variant := range []string{"empty", "tabs"} {
		ds, err := robocache.Open(t.Context(), cases.Make(t, "M02", variant, "bag"), robocache.OpenOptions{})
		if err != nil {
			t.Errorf("%s: %v", variant, err)
			continue
		}
		defer ds.Close()
		info := ds.Info()
		said := slices.ContainsFunc(robocache.Findings(ds), func(f robocache.Finding) bool {
			return f.Code == "no-metadata" && f.Severity == robocache.SeverityWarning
		})
		if info.Format != "rosbag2" || info.Episodes != 1 || info.Frames != 20 || !said {
			t.Errorf("%s: %s, %d episodes, %d frames, %v", variant, info.Format, info.Episodes, info.Frames, info.Findings)
		}
	}
}
