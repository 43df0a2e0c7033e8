package lerobot

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"

	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func diagnose(t *testing.T, path string, opt robocache.DiagnoseOptions) []robocache.Finding {
	t.Helper()
	d, err := Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	found, err := d.Diagnose(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func pick(found []robocache.Finding, code string) *robocache.Finding {
	for i := range found {
		if found[i].Code == code {
			return &found[i]
		}
	}
	return nil
}

// A sound dataset has no finding, also when every frame is decoded.
func TestDoctorFindsNothingOnCleanSets(t *testing.T) {
	for _, name := range []string{"g1_v21", "g1_v30_exact", "g1_h264_v30"} {
		for _, f := range diagnose(t, realdata.Path(t, name),
			robocache.DiagnoseOptions{Decode: name == "g1_h264_v30"}) {
			t.Errorf("%s: %s %s: %s", name, f.Code, f.Where, f.Message)
		}
	}
}

// The oracle of each drifting dataset states how many frames a lookup by time gets wrong.
func TestDoctorMeasuresDrift(t *testing.T) {
	for name, want := range map[string]struct {
		count int64
		says  string
		sev   robocache.Severity
	}{
		"g1_h264_v30_bigdrift": {778, "43.359 ms (1.30 frames)", robocache.SeverityError},
		"g1_v30_drift":         {1968, "2.995 ms", robocache.SeverityWarning},
	} {
		f := pick(
			diagnose(t, realdata.Path(t, name), robocache.DiagnoseOptions{}),
			"timestamp-drift",
		)
		if f == nil || f.Count != want.count || f.Severity != want.sev ||
			!strings.Contains(f.Message, want.says) {
			t.Errorf("%s: %+v, want %+v", name, f, want)
		}
	}
}

func TestDoctorOnGR00T(t *testing.T) {
	found := diagnose(t, realdata.Path(t, "gr00t_picknplace_v20"), robocache.DiagnoseOptions{})
	for _, code := range []string{
		"path-template",
		"feature-dropped",
		"split-differs",
		"timestamp-offset",
	} {
		if pick(found, code) == nil {
			t.Errorf("no %s among %v", code, found)
		}
	}
}

// The folder of each altered copy has the name of its expected finding, possibly with a suffix.
func TestDoctorFindsWhatWasAltered(t *testing.T) {
	clean := realdata.Path(t, "g1_h264_v30")
	python := os.Getenv("ROBOCACHE_PYTHON")
	if python == "" {
		python = filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	}
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skipf("no pyarrow to alter tables with: %v (make test installs it)", err)
	}
	out := filepath.Join(t.TempDir(), "altered")
	if b, err := exec.Command(python, "testdata/alter.py", clean, out).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	dirs, err := os.ReadDir(out)
	if err != nil || len(dirs) < 25 {
		t.Fatalf("%d copies, %v", len(dirs), err)
	}
	for _, e := range dirs {
		t.Run(e.Name(), func(t *testing.T) {
			found := diagnose(t, filepath.Join(out, e.Name()), robocache.DiagnoseOptions{})
			if e.Name() == "clean" {
				if len(found) != 0 {
					t.Errorf("the copy itself has findings: %v", found)
				}
				return
			}
			for _, f := range found {
				if strings.HasPrefix(e.Name(), f.Code) && f.Severity != robocache.SeverityInfo &&
					f.Hint != "" &&
					len(f.Where) > 0 {
					return
				}
			}
			t.Errorf("not found: %v", found)
		})
	}
}

func TestDoctorListsPlacesWithinReason(t *testing.T) {
	doc := &doctor{positions: map[string]int{}}
	for i := range 500 {
		doc.recordFault(robocache.SeverityError, "x", robocache.Where{"file": i}, "", "m")
	}
	total := int64(0)
	for _, f := range doc.findings {
		total += f.Count
	}
	if len(doc.findings) != maxPlaces || total != 500 {
		t.Errorf("%d findings that count %d", len(doc.findings), total)
	}
}

// A fault of one file, or of one that was not requested, is not a fault of the following files.
func TestDoctorOfSomeFiles(t *testing.T) {
	for _, name := range []string{"g1_v21", "g1_v30_exact"} {
		for _, f := range diagnose(t, realdata.Path(t, name),
			robocache.DiagnoseOptions{Episodes: []int{2, 4}}) {
			t.Errorf("%s: %s %s: %s", name, f.Code, f.Where, f.Message)
		}
	}
	dir := copySet(t, "g1_v21")
	if err := os.Truncate(filepath.Join(dir, "data/chunk-000/episode_000002.parquet"), 5000); err !=
		nil {
		t.Fatal(err)
	}
	for _, f := range diagnose(t, dir, robocache.DiagnoseOptions{}) {
		if f.Code != "unreadable-file" ||
			f.Where["episode"] != int64(2) && f.Where["episodes"] != "2" {
			t.Errorf("%s %s: %s", f.Code, f.Where, f.Message)
		}
	}
}
