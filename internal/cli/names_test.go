package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/hub"
)

// describe returns the output of inspect for a dataset.
func describe(t *testing.T, args ...string) (r struct {
	Format   string
	Clock    string
	Episodes int   `json:"num_episodes"`
	Frames   int64 `json:"num_frames"`
},
) {
	t.Helper()
	code, out, errs := call(t, append([]string{"inspect", "--json"}, args...)...)
	if code != exitDone && code != exitFindings || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
	}
	return r
}

// TestFilesWithoutEnding checks that MCAP, HDF5 and db3 files are recognized by their first bytes.
func TestFilesWithoutEnding(t *testing.T) {
	dir := t.TempDir()
	recordings, demos := filepath.Join(dir, "recordings"), filepath.Join(dir, "demos.hdf5")
	for _, args := range [][]string{
		{
			"synth",
			recordings,
			"--format",
			"mcap",
			"--episodes",
			"1",
			"--seconds",
			"1",
			"--cameras",
			"0",
		},
		{
			"synth",
			demos,
			"--format",
			"robomimic",
			"--episodes",
			"2",
			"--seconds",
			"1",
			"--cameras",
			"0",
		},
	} {
		if code, out, errs := call(t, args...); code != exitDone {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	bags, err := filepath.Glob("../../testdata/shared/rosbag2/*/*.db3")
	if err != nil || len(bags) == 0 {
		t.Fatal(bags, err)
	}
	for format, from := range map[string]string{
		"mcap":      filepath.Join(recordings, "episode_000000.mcap"),
		"robomimic": demos,
		"rosbag2":   bags[0],
	} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"recording", "recording.bak"} {
			to := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(to, b, 0o644); err != nil {
				t.Fatal(err)
			}
			want := describe(t, from)
			if got := describe(t, to); got != want || got.Format != format {
				t.Errorf("%s: %+v, want %+v", to, got, want)
			}
		}
	}
	text := filepath.Join(dir, "notes")
	if err := os.WriteFile(text, []byte("a note"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(t, "inspect", text); code == exitDone ||
		!strings.Contains(errs, "a file that no format knows") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestMappingNamesStreamsOfRecordings checks that clock: and task: of a mapping accept the new name
// of a stream and its name in the recordings.
func TestMappingNamesStreamsOfRecordings(t *testing.T) {
	dir := t.TempDir()
	src, file := filepath.Join(dir, "recordings"), filepath.Join(dir, "map.yaml")
	args := []string{
		"synth", src, "--format", "mcap", "--episodes", "1", "--seconds", "1", "--cameras", "1",
		"--rates", "camera=30,joints=100",
	}
	if code, out, errs := call(t, args...); code != exitDone {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	for _, name := range []string{"observation.joints", "joint_states"} {
		text := "clock: " + name + "\nstreams: {joint_states: {from: [observation.joints]}}\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := describe(t, src, "--map", file); r.Frames != 100 {
			t.Errorf("clock %s: %+v, want 100 rows", name, r)
		}
	}
}

// TestPushSummary checks that the summary of a push has no empty fields.
func TestPushSummary(t *testing.T) {
	for _, c := range []struct {
		pushed hub.Pushed
		want   string
	}{
		{
			hub.Pushed{
				Repo:   "me/set",
				Branch: "main",
				Tag:    "v3.0",
				Added:  []string{"a"},
				Bytes:  10,
				DryRun: true,
			},
			"would push to me/set (main): 1 files, 10 B, 0 deleted; tag v3.0",
		},
		{
			hub.Pushed{Repo: "me/set", Branch: "dev", DryRun: true},
			"would push to me/set (dev): 0 files, 0 B, 0 deleted",
		},
		{
			hub.Pushed{Repo: "me/set", Branch: "main", Commit: "0123456789abcdef", DryRun: true},
			"would push to me/set (main): 0 files, 0 B, 0 deleted; on top of commit 0123456789ab",
		},
		{
			hub.Pushed{Repo: "me/set", Branch: "main", Commit: "0123456789abcdef", Tag: "v3.0"},
			"pushed to me/set (main): 0 files, 0 B, 0 deleted; commit 0123456789ab, tag v3.0",
		},
	} {
		if got := pushSummary(&c.pushed); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
