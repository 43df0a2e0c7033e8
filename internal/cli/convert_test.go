package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestConvertCutRecording: a truncated recording converts to every format. The report, the dataset
// and exit code 3 say so.
func TestConvertCutRecording(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.mcap")
	if code, _, errs := call(t, "synth", whole, "--format", "mcap", "--episodes", "1", "--seconds",
		"3", "--cameras", "0", "--rates", "camera=30,joints=100", "--write-option",
		"chunk=4096"); code != exitDone {
		t.Fatal(code, errs)
	}
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.mcap")
	if err := os.WriteFile(cut, b[:len(b)*3/5], 0o644); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"lerobot", "mcap", "zarr", "rlds", "robomimic"} {
		args := []string{
			"convert",
			whole,
			filepath.Join(dir, "whole_"+to, "1.0.0"),
			"--to",
			to,
			"--hz",
			"30",
		}
		if to == "robomimic" {
			args = append(args, "--scale-actions") // otherwise actions beyond [-1, 1] are a warning
		}
		if code, out, errs := call(t, args...); code != exitDone {
			t.Errorf("%s of a whole recording: exit %d: %s%s", to, code, out, errs)
		}
		code, out, errs := call(
			t,
			"convert",
			cut,
			filepath.Join(dir, "cut_"+to, "1.0.0"),
			"--to",
			to,
			"--hz",
			"30",
			"--json",
		)
		var r struct{ Findings []struct{ Code string } }
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFindings ||
			!strings.Contains(out, `"cut-file"`) || len(r.Findings) == 0 {
			t.Errorf("%s: exit %d: %s%s", to, code, out, errs)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cut_lerobot", "1.0.0", "meta",
		"conversion.json")); err != nil || !strings.Contains(string(b), `"cut-file"`) {
		t.Errorf("%v: %s", err, b)
	}
}

// TestConvertForLeRobot: a recording of a camera and joints becomes a dataset with lerobot's names.
// Its action is the state one row later.
func TestConvertForLeRobot(t *testing.T) {
	recording := filepath.Join(realdata.Path(t, "mcap_robot"), "recording_zstd.mcap")
	dir := t.TempDir()
	if code, out, errs := call(t, "convert", recording, filepath.Join(dir, "as-it-is"), "--images",
		"images"); code != exitFindings || !strings.Contains(out, "no-action") ||
		!strings.Contains(out, "no-state") || !strings.Contains(out,
		`{"observation.state": {"from": ["joint_states.position"]}}`) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	dst := filepath.Join(dir, "set")
	code, out, errs := call(
		t,
		"convert",
		recording,
		dst,
		"--images",
		"images",
		"--preset",
		"lerobot",
	)
	if strings.Contains(out, "no-action") || strings.Contains(out, "no-state") ||
		!strings.Contains(errs, "one row later") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	ds, err := robocache.Open(t.Context(), dst)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	values := map[string][]float64{}
	for _, key := range []string{"action", "observation.state"} {
		f := ds.Info().Feature(key)
		if f == nil || f.DType != robocache.Float32 {
			t.Fatalf("%s: %+v", key, f)
		}
		raw := make([]byte, ds.Len(0)*f.RowBytes())
		if err := ds.Gather(t.Context(), key, robocache.RowsOf(0, 0, ds.Len(0)), raw); err != nil {
			t.Fatal(err)
		}
		values[key] = robocache.Float64s(nil, f.DType, raw)
	}
	width := len(values["action"]) / ds.Len(0)
	for i, v := range values["action"][:(ds.Len(0)-1)*width] {
		if next := values["observation.state"][i+width]; math.Abs(v-next) > 1e-4 {
			t.Fatalf("row %d: an action of %v, the next state is %v", i/width, v, next)
		}
	}
	if ds.Info().Feature("observation.images.camera") == nil || len(ds.Info().Features) != 8 {
		t.Errorf("%v", ds.Info().Keys())
	}
}

// TestLinkedRecording: a link to a recording opens like the recording.
func TestLinkedRecording(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "store", "a.mcap")
	if code, _, errs := call(t, "synth", file, "--format", "mcap", "--episodes", "1", "--seconds",
		"1", "--cameras", "0", "--rates", "camera=30,joints=100"); code != exitDone {
		t.Fatal(code, errs)
	}
	link := filepath.Join(dir, "link.mcap")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := call(t, "inspect", link); code != exitDone ||
		!strings.Contains(out, "1 episodes, 30 frames") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestProvenanceOfLeRobotSource checks that an episode converted or edited from a LeRobot dataset
// names its data file with a checksum.
func TestProvenanceOfLeRobotSource(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "set")
	for _, args := range [][]string{
		{
			"synth",
			src,
			"--format",
			"lerobot",
			"--episodes",
			"3",
			"--seconds",
			"1",
			"--cameras",
			"0",
		},
		{"convert", src, filepath.Join(dir, "converted"), "--episodes", "1-2"},
		{"edit", "delete", src, filepath.Join(dir, "edited"), "--episodes", "0"},
	} {
		if code, out, errs := call(t, args...); code != exitDone {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	const file = "data/chunk-000/file-000.parquet"
	b, err := os.ReadFile(filepath.Join(src, file))
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(b))
	want := robocache.Origin{Dataset: src, Format: "lerobot", File: file, Episode: 1, Checksum: sum}
	for _, set := range []string{"converted", "edited"} {
		_, out, errs := call(t, "inspect", filepath.Join(dir, set), "--episode", "0", "--json")
		var r struct{ Origin robocache.Origin }
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Origin != want {
			t.Errorf("%s: %v %+v, want %+v %s", set, err, r.Origin, want, errs)
		}
	}
}

// TestProvenance: an episode names the recording from which it was made, with its checksum. Edits
// and conversions keep that.
func TestProvenance(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "recordings")
	if code, _, errs := call(t, "synth", src, "--format", "mcap", "--episodes", "3", "--seconds",
		"1", "--cameras", "0", "--rates", "camera=30,joints=100"); code != exitDone {
		t.Fatal(code, errs)
	}
	files, err := filepath.Glob(filepath.Join(src, "*.mcap"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) {
		t.Helper()
		if code, out, errs := call(t, args...); code != exitDone {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	check := func(set string, episode, recording int) {
		t.Helper()
		_, out, errs := call(t, "inspect", set, "--episode", strconv.Itoa(episode), "--json")
		var r struct{ Origin robocache.Origin }
		b, err := os.ReadFile(files[recording])
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatal(err, out, errs)
		}
		want := robocache.Origin{
			Dataset:  src,
			Format:   "mcap",
			File:     filepath.Base(files[recording]),
			Episode:  int64(recording),
			Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256(b)),
		}
		if r.Origin != want {
			t.Errorf("episode %d of %s: %+v, want %+v", episode, set, r.Origin, want)
		}
	}
	run("convert", src, in("set"), "--hz", "30")
	check(in("set"), 2, 2)
	for _, format := range []string{"mcap", "zarr", "rlds", "delta"} {
		run("convert", src, in(format), "--hz", "30", "--to", format)
		check(in(format), 2, 2)
		run("edit", "delete", in(format), in(format+"_fewer"), "--episodes", "0")
		check(in(format+"_fewer"), 0, 1)
	}
	run("convert", src, in("demos.hdf5"), "--hz", "30", "--to", "robomimic", "--scale-actions")
	check(in("demos.hdf5"), 2, 2)
	run("convert", in("zarr"), in("back"), "--rows-hz", "30")
	check(in("back"), 1, 1)
	run("edit", "delete", in("set"), in("fewer"), "--episodes", "0")
	check(in("fewer"), 0, 1)
	run("edit", "merge", in("fewer"), in("set"), in("merged"))
	check(in("merged"), 1, 2)
	check(in("merged"), 2, 0)
	run("edit", "delete", in("merged"), "--episodes", "0", "--in-place")
	check(in("merged"), 0, 2)
	run("convert", in("merged"), in("again"))
	check(in("again"), 1, 0)
	run(
		"plan",
		"convert",
		src,
		in("sharded"),
		"--hz",
		"30",
		"--shards",
		"2",
		"--manifest",
		in("plan.json"),
	)
	run("run", "--manifest", in("plan.json"), "--shard", "0")
	run("run", "--manifest", in("plan.json"), "--shard", "1")
	run("commit", "--manifest", in("plan.json"))
	check(in("sharded"), 1, 1)
	for _, format := range []string{"zarr", "rlds", "delta"} {
		dst, manifest := in("shards_"+format), in(format+".json")
		run(
			"plan",
			"convert",
			src,
			dst,
			"--to",
			format,
			"--hz",
			"30",
			"--shards",
			"2",
			"--manifest",
			manifest,
		)
		run("run", "--manifest", manifest, "--shard", "0")
		run("run", "--manifest", manifest, "--shard", "1")
		run("commit", "--manifest", manifest)
		check(dst, 2, 2)
	}
}

// An edit in place of a dataset without known origins does not name the dataset itself as the
// source, because its path now holds another dataset.
func TestProvenanceInPlace(t *testing.T) {
	set := filepath.Join(t.TempDir(), "set")
	if code, _, errs := call(t, "synth", set, "--codec", "png", "--episodes", "3", "--seconds",
		"1"); code != exitDone {
		t.Fatal(code, errs)
	}
	report := filepath.Join(set, "meta", "conversion.json")
	if err := os.Remove(report); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if code, out, errs := call(t, "edit", "delete", set, "--episodes", "0", "--in-place"); code !=
		exitDone {
		t.Fatal(code, out, errs)
	}
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Episodes []struct{ Source *robocache.Origin }
	}
	if err := json.Unmarshal(b, &r); err != nil || len(r.Episodes) != 2 {
		t.Fatal(err, string(b))
	}
	for i, e := range r.Episodes {
		if e.Source != nil {
			t.Errorf("episode %d comes from %+v", i, e.Source)
		}
	}
}

// TestDoctorSummary: of many findings of one code, a few are listed and the rest counted. --verbose
// lists all.
func TestDoctorSummary(t *testing.T) {
	src := filepath.Join(t.TempDir(), "a")
	if code, _, errs := call(t, "synth", src, "--format", "mcap", "--episodes", "8", "--seconds",
		"3", "--cameras", "0", "--rates", "camera=30,joints=100", "--dropout", "1s"); code !=
		exitDone {
		t.Fatal(code, errs)
	}
	code, out, _ := call(t, "doctor", src)
	if code != exitFindings || strings.Count(out, "warning  gap:") != 3 ||
		!strings.Contains(out, "8 in all in 8 episodes") {
		t.Errorf("exit %d: %s", code, out)
	}
	if _, out, _ := call(t, "doctor", src, "-v"); strings.Count(out, "warning  gap:") != 8 {
		t.Error(out)
	}
}

// TestPushPlanned: a dry run of push needs neither the Hub nor Python.
func TestPushPlanned(t *testing.T) {
	src := filepath.Join(t.TempDir(), "a")
	if code, _, errs := call(t, "synth", src, "--codec", "png", "--episodes", "1", "--seconds",
		"0.5"); code != exitDone {
		t.Fatal(code, errs)
	}
	code, out, errs := call(
		t,
		"push",
		src,
		"me/set",
		"--dry-run",
		"--python",
		"/no/such/python",
		"--json",
	)
	if code != exitDone || !strings.Contains(out, "meta/info.json") ||
		!strings.Contains(out, "the Hub was not asked") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// TestAlignInline: --align accepts a file, and JSON as doctor prints it.
func TestAlignInline(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "a.mcap")
	if code, _, errs := call(t, "synth", src, "--format", "mcap", "--episodes", "1", "--seconds",
		"1", "--cameras", "0", "--rates", "camera=30,joints=100"); code != exitDone {
		t.Fatal(code, errs)
	}
	frames := func(name, text string) float64 {
		t.Helper()
		code, out, errs := call(
			t,
			"convert",
			src,
			filepath.Join(dir, name),
			"--align",
			text,
			"--json",
		)
		var r map[string]any
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
			t.Fatalf("%s: exit %d: %s%s", text, code, out, errs)
		}
		return r["num_frames"].(float64)
	}
	file := filepath.Join(dir, "align.json")
	const text = `{"hz": 20, "offset": {"observation.joints": 0.25}}`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := frames("file", file)
	for i, same := range []string{text, " \n" + text, "align=" + text} {
		if got := frames("inline"+string(rune('0'+i)), same); got != want {
			t.Errorf("%q: %v rows, the file gives %v", same, got, want)
		}
	}
	if got := frames("other", `{"hz": 20}`); got == want {
		t.Error("the offset changes nothing")
	}
	for _, bad := range []string{`{"hz": 20`, `{"hzz": 20}`, `{}x`} {
		if code, _,
			errs := call(t, "convert", src, filepath.Join(dir, "bad"), "--align", bad); code !=
			exitMisuse || !strings.Contains(errs, "--align") {
			t.Errorf("%s: exit %d: %s", bad, code, errs)
		}
	}
}
