package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// A file that no format recognizes by its content is opened by the reader for its name, or rejected
// by name.
func TestFilesThatAreNotWhatTheySay(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]int{
		"a.h5":       11,
		"a.HDF5":     11,
		"a.zarr.zip": 11,
		"a.db3":      11,
		"a.mcap":     11,
		"a.npy":      12,
		"a.txt":      12,
	} {
		for _, text := range []string{"", strings.Repeat("no dataset ", 200)} {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, errs := call(t, "inspect", path)
			if code != want || !strings.Contains(errs, name) ||
				strings.Contains(errs, "a folder, found") {
				t.Errorf("%s of %d bytes: exit %d, want %d: %s", name, len(text), code, want, errs)
			}
		}
	}
}

// For a recording with several clocks, the rate of each, the size and statistics are shown.
func TestRecordingOfSeveralClocks(t *testing.T) {
	path := filepath.Join(realdata.Path(t, "mcap_robot"), "recording_zstd.mcap")
	code, out, errs := call(t, "inspect", path)
	for _, want := range []string{
		"~30 Hz",
		"~332.9 Hz",
		"~100 Hz",
		"~10 Hz",
		"(about 2.7 s)",
		"1.4 MB in 1 files",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("inspect (exit %d, %s) does not show %q", code, errs, want)
		}
	}
	if strings.Contains(out, " 0 Hz") {
		t.Error("inspect shows a rate of 0 Hz")
	}
	code, out, errs = call(t, "stats", path, "--frames", "none", "--json")
	if code != exitDone || !strings.Contains(out, `"imu.data.angular_velocity"`) ||
		!strings.Contains(out, `"points"`) {
		t.Errorf("stats: exit %d: %s", code, errs)
	}
}

// A note (float depth has no statistics) is not a finding that a script must handle: the exit code
// is 0, as for doctor.
func TestStatsNotesAreNoFindings(t *testing.T) {
	path := realdata.Path(t, "calvin_like")
	code, _, errs := call(t, "stats", path, "--keys", "action,observation.depth_gripper")
	if code != exitDone || !strings.Contains(errs, "no-image-statistics") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A broken recording in a folder stops stats and convert with its name. With --skip-bad they
// continue and report it.
func TestLostFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.mcap", "b.mcap"} {
		if code, _, errs := call(t, "synth", filepath.Join(dir, name), "--format", "mcap",
			"--episodes", "1", "--seconds", "1", "--cameras", "0", "--rates", "joints=20"); code !=
			exitDone {
			t.Fatal(errs)
		}
	}
	if err := os.Symlink("nowhere/c.mcap", filepath.Join(dir, "c.mcap")); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for _, args := range [][]string{
		{"stats", dir},
		{"convert", dir, filepath.Join(out, "lerobot")},
		{"convert", dir, filepath.Join(out, "zarr"), "--to", "zarr"},
		{"convert", dir, filepath.Join(out, "mcap"), "--to", "mcap"},
		{"convert", dir, filepath.Join(out, "rlds"), "--to", "rlds"},
		{"convert", dir, filepath.Join(out, "r.hdf5"), "--to", "robomimic"},
	} {
		if code, _, errs := call(
			t,
			args...); code != exitMalformed || !strings.Contains(errs, "c.mcap") ||
			!strings.Contains(errs, "--skip-bad") {
			t.Errorf("%q: exit %d: %s", args, code, errs)
		}
		if code, text, errs := call(
			t,
			append(args, "--skip-bad")...); code != exitFindings ||
			!strings.Contains(text+errs, "c.mcap") {
			t.Errorf("%q --skip-bad: exit %d: %s%s", args, code, errs, text)
		}
	}
	if code, text,
		errs := call(t, "convert", dir, filepath.Join(out, "whole"), "--episodes", "0,1"); code !=
		exitFindings || !strings.Contains(text, "2 episodes") {
		t.Errorf("whole episodes: exit %d: %s%s", code, errs, text)
	}
}

// In files of arrays of several lengths without times, every array is a stream. Its values are
// checked and counted, and only timestamps need a rate. Both files also hold arrays that cannot be
// read. doctor names them, with exit code 3.
func TestArraysWithoutTime(t *testing.T) {
	for name, code := range map[string]string{
		"hdf5_features/latest.hdf5": "unsupported-stream",
		"zarr/v3/data.zarr":         "array-skipped",
	} {
		path := realdata.Path(t, name)
		for _, verb := range []string{"inspect", "stats"} {
			if code, out, errs := call(t, verb, path); code != exitDone {
				t.Errorf("%s %s: exit %d: %s%s", verb, name, code, errs, out)
			}
		}
		exit, out, errs := call(t, "doctor", path, "--json")
		var d struct{ Findings []robocache.Finding }
		if err := json.Unmarshal([]byte(out), &d); err != nil || exit != exitFindings {
			t.Errorf("doctor %s: exit %d, %v: %s", name, exit, err, errs)
		}
		for _, f := range d.Findings {
			if f.Severity != robocache.SeverityInfo && (f.Code != code || f.NotDelivered == "") {
				t.Errorf("doctor %s: %+v", name, f)
			}
		}
	}
}

// Datasets in every written format open again, also with text in each row (RLDS to Zarr). hdf5 has
// robomimic's layout.
func TestConvertedSetsOpenAgain(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "rlds")
	if code, _, errs := call(t, "synth", src, "--format", "rlds", "--episodes", "2", "--seconds",
		"0.5", "--cameras", "0"); code != exitDone {
		t.Fatal(errs)
	}
	for _, to := range []string{"zarr", "hdf5", "mcap", "rlds"} {
		dst := filepath.Join(dir, "to-"+to)
		args := []string{"convert", src, dst, "--to", to}
		if to == "hdf5" {
			args = append(args, "--scale-actions") // otherwise actions beyond [-1, 1] are a warning
		}
		if code, _, errs := call(t, args...); code != exitDone {
			t.Errorf("%s: exit %d: %s", to, code, errs)
			continue
		}
		if code, out, errs := call(t, "doctor", dst); code != exitDone {
			t.Errorf("doctor of %s: exit %d: %s%s", to, code, out, errs)
		}
	}
}
