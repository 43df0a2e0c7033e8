package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// --hz of convert resamples to a rate. --rows-hz states the rate of rows without a clock. --fps
// declares another rate without resampling. If no rate is stated, the steady clock of the
// recording's main stream gives it.
func TestConvertRates(t *testing.T) {
	path := func(set, name string) string { return filepath.Join(realdata.Path(t, set), name) }
	plan := func(want int, args ...string) (frames, fps float64, errs string) {
		t.Helper()
		code, out, errs := call(
			t,
			append(
				[]string{"convert"},
				append(
					args,
					filepath.Join(t.TempDir(), "out"),
					"--dry-run",
					"--json",
					"--frames",
					"none",
				)...)...)
		if code != want {
			t.Fatalf("%v: exit %d, want %d: %s", args, code, want, errs)
		}
		var r struct {
			Frames float64 `json:"num_frames"`
			FPS    float64 `json:"fps"`
		}
		if code != exitMisuse && json.Unmarshal([]byte(out), &r) != nil {
			t.Fatalf("%v: %s", args, out)
		}
		return r.Frames, r.FPS, errs
	}
	for _, c := range []struct {
		name string
		uri  string
		hz   string
		fps  float64 // the source's own rate; 0 = unknown
	}{
		{"RLDS, a rate of the table", path("bridge_rlds", "bridge_dataset"), "10", 5},
		// a split is lost
		{"robomimic, control_freq", path("robomimic_like", "earliest_gzip.hdf5"), "10", 5},
		{"Zarr without a clock", path("diffusion_policy_zarr", "replay_buffer.zarr"), "20", 0},
	} {
		rows, own := 0.0, 0.0
		if c.fps > 0 {
			code := exitDone
			if strings.HasSuffix(c.uri, ".hdf5") {
				code = exitFindings
			}
			if rows, own, _ = plan(code, c.uri); own != c.fps {
				t.Fatalf("%s: %v Hz", c.name, own)
			}
			// every second frame is repeated
			twice, at, _ := plan(exitFindings, c.uri, "--hz", c.hz)
			if at != 2*own || twice < 1.7*rows || twice > 2*rows {
				t.Errorf(
					"%s: --hz %s gives %v rows at %v Hz of %v at %v",
					c.name,
					c.hz,
					twice,
					at,
					rows,
					own,
				)
			}
			if same, at, _ := plan(code, c.uri, "--fps", c.hz); same != rows || at != 2*own {
				t.Errorf("%s: --fps %s gives %v rows at %v Hz of %v", c.name, c.hz, same, at, rows)
			}
		} else {
			first, at, _ := plan(exitDone, c.uri, "--rows-hz", c.hz)
			again, other, _ := plan(exitDone, c.uri, "--rows-hz", "7")
			if twice, at, _ := plan(exitFindings, c.uri, "--rows-hz", "7", "--hz", "14"); at !=
				14 || twice < 1.7*first || twice > 2*first {
				t.Errorf(
					"%s: rows at 7 Hz resampled to 14 are %v at %v Hz of %v",
					c.name,
					twice,
					at,
					first,
				)
			}
			if _, _,
				errs := plan(exitMisuse, c.uri, "--hz", c.hz); !strings.Contains(errs, "--rows-hz "+
				c.hz) {
				t.Errorf("%s: --hz alone: %s", c.name, errs)
			}
			if named, at, _ := plan(exitDone, c.uri, "--fps", "7"); named != first || at != 7 {
				t.Errorf("%s: --fps 7 gives %v rows at %v Hz", c.name, named, at)
			}
			if _, _, errs := plan(exitMisuse, c.uri); !strings.Contains(errs, "--rows-hz") {
				t.Errorf("%s: without a rate: %s", c.name, errs)
			}
			if first != again || at != 20 || other != 7 {
				t.Errorf("%s: %v rows at %v Hz, %v at %v", c.name, first, at, again, other)
			}
		}
		if _, _, errs := plan(exitMisuse, c.uri, "--hz", "10", "--fps",
			"12"); !strings.Contains(errs, "--fps") {
			t.Errorf("%s: %s", c.name, errs)
		}
	}
	rows, fps, told := plan(exitFindings, path("mcap_robot", "recording_zstd.mcap"))
	if fps != 30 || rows < 50 || !strings.Contains(told, "30 Hz") ||
		!strings.Contains(told, "--hz") {
		t.Errorf("the recording: %v rows at %v Hz, told %q", rows, fps, told)
	}
	more, fps, told := plan(exitFindings, path("mcap_robot", "recording_zstd.mcap"), "--hz", "60")
	if fps != 60 || more < 1.9*rows || strings.Contains(told, "measured") {
		t.Errorf("the recording at 60 Hz: %v rows at %v Hz, told %q", more, fps, told)
	}
}

// Two rates are rejected instead of ignoring one of them.
func TestConvertOneRate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "align.json")
	if err := os.WriteFile(file, []byte(`{"hz": 50}`), 0o666); err != nil {
		t.Fatal(err)
	}
	recording := filepath.Join(realdata.Path(t, "mcap_robot"), "recording_zstd.mcap")
	demos := filepath.Join(realdata.Path(t, "robomimic_like"), "earliest_gzip.hdf5")
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitMisuse, []string{recording, "--align", file, "--hz", "30"}},
		{exitMisuse, []string{recording, "--fps", "15"}},
		{exitMisuse, []string{demos, "--align", file, "--fps", "15"}},
		{exitFindings, []string{recording, "--align", file, "--hz", "50"}}, // frames are repeated,
	} {
		code, _, errs := call(
			t,
			append(
				append([]string{"convert"}, c.args...),
				filepath.Join(t.TempDir(), "out"),
				"--dry-run",
				"--frames",
				"none",
			)...)
		if code != c.want || code == exitMisuse && !strings.Contains(errs, "--hz") {
			t.Errorf("%v: exit %d: %s", c.args, code, errs)
		}
	}
}

// An option that the writer does not have is rejected, not ignored. --hz of synth sets the grid in
// LeRobot too.
func TestWriterChoices(t *testing.T) {
	demos := filepath.Join(realdata.Path(t, "robomimic_like"), "earliest_gzip.hdf5")
	for _, args := range [][]string{
		{"--to", "mcap", "--video-codec", "h264"},
		{"--to", "zarr", "--frames", "all"},
		{"--to", "hdf5", "--gop", "8"},
		{"--to", "rlds", "--copy-only"},
		{"--write-option", "pictures=raw"},
		{"--to", "zarr", "--write-option", "pictures=raw"},
		{"--to", "mcap", "--write-option", "shards=3"},
	} {
		dst := filepath.Join(t.TempDir(), "out")
		if code, _, errs := call(
			t,
			append([]string{"convert", demos, dst}, args...)...); code != exitMisuse ||
			!strings.Contains(errs, "option") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
		if _, err := os.Stat(dst); err == nil {
			t.Errorf("%v: refused, and something is written", args)
		}
	}
	dst := filepath.Join(t.TempDir(), "arm")
	if code, _, errs := call(t, "synth", dst, "--hz", "15", "--codec", "png", "--episodes", "1",
		"--cameras", "1"); code != exitDone {
		t.Fatalf("synth --hz: exit %d: %s", code, errs)
	}
	if _, out, _ := call(t, "inspect", dst); !strings.Contains(out, "at 15 fps") {
		t.Errorf("synth --hz 15 wrote\n%s", out)
	}
}

// A dataset without a clock can be inspected without a rate. Rates are unknown, and one note says
// so.
func TestNoClock(t *testing.T) {
	for _, uri := range []string{
		filepath.Join(realdata.Path(t, "diffusion_policy_zarr"), "replay_buffer.zarr"),
		filepath.Join(realdata.Path(t, "hdf5_features"), "latest.hdf5"),
	} {
		for _, verb := range [][]string{
			{"inspect"},
			{"inspect", "--episode", "0"},
			{"doctor"},
			{"stats", "--frames", "none"},
		} {
			code, out, errs := call(t, append(verb, uri)...)
			if verb[0] == "doctor" && code == exitFindings &&
				strings.Contains(uri, "hdf5_features") &&
				!strings.Contains(out+errs, "unreadable-timestamps") {
				code = exitDone // it has other, intended faults
			}
			if code != exitDone {
				t.Errorf("%v %s: exit %d: %s", verb, uri, code, errs)
			}
			if len(verb) > 1 && verb[1] == "--episode" &&
				(strings.Contains(out, "0.000") || !strings.Contains(out, "–")) {
				t.Errorf("%s: of time nothing is known, and the episode says\n%s", uri, out)
			}
			if verb[0] == "doctor" && strings.Count(out, "no-rate") != 1 {
				t.Errorf("%s: doctor says %s", uri, out)
			}
		}
	}
}

// Every verb that opens a dataset has --rows-hz. --hz resamples. If the times of rows are unknown,
// it is rejected with a hint to --rows-hz.
func TestRowsHZ(t *testing.T) {
	none := filepath.Join(realdata.Path(t, "diffusion_policy_zarr"), "replay_buffer.zarr")
	for _, verb := range [][]string{
		{"inspect"},
		{"inspect", "--episode", "0"},
		{"stats", "--frames", "none"},
		{"doctor"},
		{"convert"},
	} {
		args := append(verb, none, "--hz", "10")
		if verb[0] == "convert" {
			args = append(args, filepath.Join(t.TempDir(), "out"))
		}
		code, _, errs := call(t, args...)
		if code != exitMisuse || !strings.Contains(errs, "--rows-hz") {
			t.Errorf("%v --hz 10 of rows without a clock: exit %d: %s", verb, code, errs)
		}
	}
	var r struct {
		Frames float64 `json:"num_frames"`
		FPS    float64 `json:"fps"`
	}
	look := func(args ...string) {
		t.Helper()
		code, out, errs := call(t, append([]string{"inspect", "--json"}, args...)...)
		r.Frames, r.FPS = 0, 0
		if code != exitDone || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatalf("%v: exit %d: %s", args, code, errs)
		}
	}
	look(none, "--rows-hz", "10")
	rows := r.Frames
	if r.FPS != 10 || rows == 0 {
		t.Errorf("--rows-hz 10: %v", r)
	}
	look(none, "--rows-hz", "10", "--hz", "20")
	if r.FPS != 20 || r.Frames < 1.7*rows {
		t.Errorf("%v rows at 10 Hz resampled to 20: %v", rows, r)
	}
	look(filepath.Join(realdata.Path(t, "mcap_robot"), "recording_zstd.mcap"), "--hz", "25")
	if r.FPS != 25 {
		t.Errorf("a recording on a grid of 25 Hz: %v", r)
	}
	// A rate that a format only assumes is not used as the recorded one.
	assumed := realdata.Path(t, "aloha_like")
	if code, _, errs := call(t, "stats", assumed, "--frames", "none", "--hz", "30"); code !=
		exitMisuse || !strings.Contains(errs, "assumed") ||
		!strings.Contains(errs, "--rows-hz 30") {
		t.Errorf("an assumed rate: exit %d: %s", code, errs)
	}
	if code, _, errs := call(t, "stats", none, "--rows-hz", "10", "--hz", "20", "--write"); code !=
		exitMisuse || !strings.Contains(errs, "--out") {
		t.Errorf("stats of a grid into the dataset: exit %d: %s", code, errs)
	}
}

// Every verb has --split. inspect lists the splits with their episodes.
func TestSplit(t *testing.T) {
	demos := filepath.Join(realdata.Path(t, "robomimic_like"), "earliest_gzip.hdf5")
	if _, out, _ := call(t, "inspect", demos); !strings.Contains(out, "train 2, valid 1") {
		t.Errorf("inspect says\n%s", out)
	}
	for _, verb := range [][]string{
		{"inspect", "--json"},
		{"doctor", "--json"},
		{"convert", "--dry-run", "--json", "--frames", "none"},
	} {
		args := append(verb, demos, "--split", "train")
		if verb[0] == "convert" {
			args = append(args, filepath.Join(t.TempDir(), "out"))
		}
		var r struct {
			Episodes json.Number `json:"num_episodes"`
		}
		if code, out, errs := call(
			t,
			args...); code != exitDone || json.Unmarshal([]byte(out), &r) != nil ||
			r.Episodes != "2" {
			t.Errorf("%v: exit %d, %s episodes: %s", verb, code, r.Episodes, errs)
		}
		args[len(verb)+2] = "test"
		if code, _, errs := call(
			t,
			args...); code != exitMisuse || !strings.Contains(errs, "train") ||
			!strings.Contains(errs, "valid") {
			t.Errorf("%v of an unknown split: exit %d: %s", verb, code, errs)
		}
	}
	if code, _,
		errs := call(t, "stats", demos, "--frames", "none", "--split", "train", "--write"); code !=
		exitMisuse || !strings.Contains(errs, "--out") {
		t.Errorf("stats of a split into the dataset: exit %d: %s", code, errs)
	}
}

// If rows have timestamps, --rows-hz and a mapping's hz would be ignored, so every verb rejects
// them.
func TestRowsWithTimestamps(t *testing.T) {
	dir := t.TempDir()
	m := filepath.Join(dir, "map.yaml")
	if err := os.WriteFile(m, []byte("hz: 30\nstreams: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"mcap", "lerobot", "rosbag2"} {
		uri := filepath.Join(dir, format)
		if format == "rosbag2" {
			uri = realdata.Path(t, "mcap_robot/recording_db3")
		} else if code, _, errs := call(t, "synth", uri, "--format", format, "--episodes", "1",
			"--seconds", "1", "--cameras", "0"); code != exitDone {
			t.Fatal(format, errs)
		}
		for _, c := range [][]string{{"--rows-hz", "30"}, {"--map", m}} {
			for _, verb := range [][]string{
				{"inspect"},
				{"stats", "--frames", "none"},
				{"doctor"},
				{"convert"},
			} {
				args := append(append(verb, uri), c...)
				if verb[0] == "convert" {
					args = append(args, filepath.Join(dir, "out"))
				}
				if code, _, errs := call(
					t,
					args...); code != exitMisuse || !strings.Contains(errs, "have timestamps") ||
					!strings.Contains(errs, "--fps") {
					t.Errorf("%s: %v: exit %d: %s", format, args, code, errs)
				}
			}
		}
	}
}
