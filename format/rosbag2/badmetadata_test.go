package rosbag2_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestUnusableMetadata checks that an empty or broken metadata.yaml does not hide the bag in its
// folder.
func TestUnusableMetadata(t *testing.T) {
	for _, variant := range []string{"empty", "tabs"} {
		ds, err := robocache.Open(
			t.Context(),
			cases.Make(t, "M02", variant, "bag"),
			robocache.OpenOptions{},
		)
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
			t.Errorf(
				"%s: %s, %d episodes, %d frames, %v",
				variant,
				info.Format,
				info.Episodes,
				info.Frames,
				info.Findings,
			)
		}
	}
}

// TestWrongMetadataTypes checks that a value of a wrong type is a finding, and that the bag is
// read.
func TestWrongMetadataTypes(t *testing.T) {
	bag := cases.Make(t, "M02", "empty", "bag")
	text := "rosbag2_bagfile_information:\n  version: 5\n  relative_file_paths: bag_0.db3\n"
	if err := os.WriteFile(filepath.Join(bag, "metadata.yaml"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	ds, err := robocache.Open(t.Context(), bag, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	said := slices.ContainsFunc(robocache.Findings(ds), func(f robocache.Finding) bool {
		return f.Code == "bad-metadata" && f.Where["file"] == "metadata.yaml" &&
			f.Message == `metadata.yaml: line 3: expected a list, found "bag_0.db3": the value is not read`
	})
	if ds.Info().Frames != 20 || !said {
		t.Errorf("%d frames, %v", ds.Info().Frames, robocache.Findings(ds))
	}
}
