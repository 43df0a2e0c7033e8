package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/verbs"
)

// exitCodes are the exit codes of the error classes in docs/cli.md.
const (
	exitFailed        = 1
	exitNotFound      = 10
	exitMalformed     = 11
	exitUnsupported   = 12
	exitResourceLimit = 13
)

// call runs the CLI in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = runCommand(t.Context(), newRoot(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelpIsEnoughToBegin(t *testing.T) {
	code, out, _ := call(t, "--help")
	if code != exitDone {
		t.Fatalf("exit %d", code)
	}
	for _, verb := range []string{
		"inspect",
		"doctor",
		"stats",
		"convert",
		"synth",
		"submit",
		"cache",
		"self-test",
		"version",
		"completion",
	} {
		if !strings.Contains(out, "\n  "+verb) {
			t.Errorf("--help does not list %s", verb)
		}
		if verb == "completion" {
			continue
		}
		code, help, _ := call(t, verb, "--help")
		if code != exitDone {
			t.Errorf("%s --help: exit %d", verb, code)
		}
		if verb != "submit" &&
			(!strings.Contains(help, "Examples:") || !strings.Contains(help, "Exit codes:") ||
				!strings.Contains(help, "--json")) {
			t.Errorf("%s --help lacks an example, the exit codes or --json:\n%s", verb, help)
		}
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad", "meta")
	if err := os.MkdirAll(bad, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bad, "info.json"),
		[]byte(`{"codebase_version":"v3.0","fps":0}`), 0o644); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old", "meta")
	if err := os.MkdirAll(old, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "info.json"),
		[]byte(`{"codebase_version":"v1.6","fps":30}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"inspect"}, exitMisuse, "arg(s)"},
		{[]string{"nonsense"}, exitMisuse, "unknown command"},
		{[]string{"inspect", dir, "--no-such-flag"}, exitMisuse, "no-such-flag"},
		{[]string{"inspect", filepath.Join(dir, "nothing")}, exitNotFound, "nothing"},
		{[]string{"inspect", dir}, exitNotFound, "meta/info.json"},
		{[]string{"inspect", filepath.Join(dir, "bad")}, exitMalformed, "fps"},
		{[]string{"inspect", filepath.Join(dir, "old")}, exitUnsupported, "v1.6"},
		{[]string{"inspect", dir, "--memory-budget", "lots"}, exitMisuse, "lots"},
		{[]string{"inspect", "ftp://host/x"}, exitUnsupported, "ftp"},
		{[]string{"version"}, exitDone, ""},
	} {
		code, _, errs := call(t, c.args...)
		if code != c.want || !strings.Contains(errs, c.says) {
			t.Errorf(
				"%v: exit %d, want %d; stderr %q, want it to say %q",
				c.args,
				code,
				c.want,
				errs,
				c.says,
			)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := runCommand(ctx, newRoot(), []string{"doctor", realdata.Path(t, "g1_v30_exact")},
		&out, &errs); code != exitInterrupted {
		t.Errorf("exit %d, want %d: %s", code, exitInterrupted, errs.String())
	}
}

func TestInspectJSON(t *testing.T) {
	code, out, errs := call(t, "inspect", realdata.Path(t, "g1_h264_v30"), "--json")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"format":       "lerobot",
		"version":      "v3.0",
		"num_episodes": 5.0,
		"num_frames":   1305.0,
		"fps":          30.0,
	} {
		if r[key] != want {
			t.Errorf("%s is %v, want %v", key, r[key], want)
		}
	}
	found := false
	for _, s := range r["streams"].([]any) {
		m := s.(map[string]any)
		if m["key"] == "observation.images.cam_high" {
			found = true
			if m["codec"] != "h264" || m["width"] != 320.0 || m["height"] != 240.0 ||
				m["gop"].(float64) < 20 {
				t.Errorf("camera stream: %v", m)
			}
		}
	}
	if !found {
		t.Error("no camera stream")
	}
}

func TestDoctorExitCodes(t *testing.T) {
	if code, out, errs := call(t, "doctor", realdata.Path(t, "g1_v30_exact")); code != exitDone {
		t.Errorf("a clean set: exit %d\n%s%s", code, out, errs)
	}
	code, out, _ := call(t, "doctor", realdata.Path(t, "g1_h264_v30_bigdrift"), "--json")
	if code != exitFindings {
		t.Errorf("a drifting set: exit %d", code)
	}
	var d verbs.Diagnosis
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, f := range d.Findings {
		if f.Code == "timestamp-drift" {
			seen = true
			if f.Count != 778 {
				t.Errorf(
					"frames where a lookup by time gives another: %d, want 778 (the oracle's)",
					f.Count,
				)
			}
		}
	}
	if !seen {
		t.Errorf("no timestamp-drift among %v", d.Findings)
	}
}

func TestContactSheet(t *testing.T) {
	png := filepath.Join(t.TempDir(), "sheet.png")
	if code, _,
		errs := call(t, "inspect", realdata.Path(t, "g1_h264_v30"), "--contact-sheet", png); code !=
		exitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	st, err := os.Stat(png)
	if err != nil || st.Size() < 20_000 {
		t.Fatalf("no sheet worth looking at: %v %v", st, err)
	}
}

// The suffix is checked before the dataset is read.
func TestContactSheetSuffix(t *testing.T) {
	dir := t.TempDir()
	code, _, errs := call(
		t,
		"inspect",
		filepath.Join(dir, "nothing"),
		"--contact-sheet",
		filepath.Join(dir, "sheet.jpg"),
	)
	if code != exitMisuse || !strings.Contains(errs, ".png, .svg or .html") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// Every file that a verb writes has the permissions that the umask allows.
func TestFilesFollowTheUmask(t *testing.T) {
	old := syscall.Umask(0o026)
	defer syscall.Umask(old)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	steps := [][]string{
		{"synth", in("set"), "--codec", "png", "--episodes", "1", "--seconds", "0.5"},
		{"stats", in("set"), "--out", in("stats.json"), "--frames", "none"},
		{"inspect", in("set"), "--contact-sheet", in("sheet.png")},
	}
	for _, format := range convert.Formats() {
		steps = append(steps, []string{"convert", in("set"), in("out-" + format), "--to", format})
	}
	for _, args := range steps {
		if format := args[len(args)-1]; format == "lerobot" {
			args = append(args, "--images", "images") // needs no encoder
		} else if format == "robomimic" {
			args = append(args, "--scale-actions") // otherwise actions beyond [-1, 1] are a warning
		}
		if code, out, errs := call(t, args...); code != exitDone {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	n := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o640)
		if d.IsDir() {
			want = 0o751
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v", path, info.Mode().Perm(), want)
		}
		n++
		return nil
	})
	if err != nil || n < 20 {
		t.Errorf("%d files: %v", n, err)
	}
}
