package verbs

import (
	"os"
	"path/filepath"
	"testing"

	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/quality"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// The table of a dataset in RLDS is in the folder of its version, where expressions read it.
func TestQualityTableOfVersion(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "set")
	if err := os.CopyFS(
		folder,
		os.DirFS(realdata.Path(t, "bridge_rlds/bridge_dataset")),
	); err != nil {
		t.Fatal(err)
	}
	r := &QualityRequest{URI: folder, Frames: "none"}
	if _, err := MeasureQuality(t.Context(), r, Observer{}); err != nil {
		t.Fatal(err)
	}
	request := &FindRequest{URI: folder, Search: Search{Expression: "q.duration > 0"}}
	if found, err := Find(t.Context(), request, Observer{}); err != nil || len(found.Ranges) == 0 {
		t.Error(found, err)
	}
}

// A camera that was left out when the dataset was opened is a finding.
func TestQualityOfLostCamera(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "set")
	if err := os.CopyFS(folder, os.DirFS(realdata.Path(t, "g1_h264_v30"))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(folder, "videos")); err != nil {
		t.Fatal(err)
	}
	q, err := MeasureQuality(t.Context(), &QualityRequest{URI: folder}, Observer{})
	if err != nil || !q.HasFindings() {
		t.Error(q, err)
	}
}

// The median of an even number of values is the mean of the middle ones.
func TestQualityMedian(t *testing.T) {
	table := &quality.Table{
		Episodes: []int64{0, 1, 2, 3}, Tasks: make([]string, 4), Lengths: make([]int64, 4),
		Errors: make([]string, 4), Columns: map[string][]float64{"idle": {4, 1, 2, 8}},
	}
	for _, m := range NewQuality(table).Metrics {
		if m.Name == "idle" && (*m.Median != 3 || *m.Min != 1 || *m.Max != 8) {
			t.Error(*m.Min, *m.Median, *m.Max)
		}
	}
}
