package verbs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/synth"
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

// measuredArm returns a small dataset with its quality table.
func measuredArm(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "set")
	opt := synth.Options{Episodes: 3, Cameras: -1, Seconds: 1}
	if _, err := synth.Write(t.Context(), folder, opt); err != nil {
		t.Fatal(err)
	}
	if _, err := MeasureQuality(t.Context(), &QualityRequest{URI: folder}, Observer{}); err != nil {
		t.Fatal(err)
	}
	return folder
}

// rewriteData changes the data files of a LeRobot dataset without changing their sizes.
func rewriteData(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "data", "*", "*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	later := time.Now().Add(time.Minute)
	for _, name := range files {
		if err := os.Chtimes(name, later, later); err != nil {
			t.Fatal(err)
		}
	}
}

// A table of other data is not used, although the lengths of the episodes are equal.
func TestStaleQualityTable(t *testing.T) {
	folder := measuredArm(t)
	search := func(hz string) error {
		r := &FindRequest{URI: folder, HZ: hz, Search: Search{Expression: "q.duration > 0.5"}}
		found, err := Find(t.Context(), r, Observer{})
		if err == nil && len(found.Episodes) != 3 {
			t.Errorf("hz %q: %v", hz, found.Episodes)
		}
		return err
	}
	// A report and a search index are no part of the state. A view has the table of its dataset.
	report := &QualityRequest{URI: folder, HTML: filepath.Join(folder, "meta", "report.html")}
	if _, err := MeasureQuality(t.Context(), report, Observer{}); err != nil {
		t.Fatal(err)
	}
	index := &FindRequest{URI: folder, Search: Search{Index: true}}
	if _, err := Find(t.Context(), index, Observer{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(search(""), search("10")); err != nil {
		t.Fatal(err)
	}
	rewriteData(t, folder)
	for _, hz := range []string{"", "10"} {
		err := search(hz)
		if !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "another state") ||
			!strings.Contains(err.Error(), "robocache quality") {
			t.Errorf("hz %q: %v", hz, err)
		}
	}
	if _, err := MeasureQuality(t.Context(), report, Observer{}); err != nil {
		t.Fatal(err)
	}
	if err := search(""); err != nil {
		t.Error(err)
	}
}

// A table that cannot be written is an error before the episodes are measured.
func TestQualityCannotBeWritten(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(folder, "file", "q.parquet")
	r := &QualityRequest{URI: "synth://heterogeneous?episodes=2&cap=5", Out: out}
	_, err := MeasureQuality(t.Context(), r, Observer{})
	if !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "Name a file in another folder") {
		t.Error(err)
	}
}

// A search of resampled streams has an index of its own, and both stay current.
func TestIndexOfResampledStreams(t *testing.T) {
	folder := measuredArm(t)
	find := func(hz string, build bool) *Found {
		t.Helper()
		var notes []string
		o := Observer{Note: func(text string) { notes = append(notes, text) }}
		found, err := Find(t.Context(), &FindRequest{URI: folder, HZ: hz, Search: Search{
			Expression: "length > 0", Index: build,
		}}, o)
		if err != nil || len(notes) > 0 {
			t.Fatal(notes, err)
		}
		return found
	}
	if find("", true); find("10", false).Index != nil {
		t.Error("the index of the recorded rows is used for others")
	}
	if x := find("10", true).Index; filepath.Base(x.File) != "10hz.search.index" {
		t.Error(x.File)
	}
	if x := find("", false).Index; x == nil || x.Built {
		t.Errorf("%+v", x)
	}
}
