package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConvertCutRecording: a recording that was cut converts, and says so: in the report, in the dataset, and by exit code 3, to every format.
func TestConvertCutRecording(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.mcap")
	if code, _, errs := call(t, "synth", whole, "--format", "mcap", "--episodes", "1", "--seconds", "3", "--cameras", "0", "--rates", "camera=30,joints=100", "--write-option", "chunk=4096"); code != exitDone {
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
		args := []string{"convert", whole, filepath.Join(dir, "whole_"+to, "1.0.0"), "--to", to, "--hz", "30"}
		if to == "robomimic" {
			args = append(args, "--scale-actions") // else actions beyond [-1, 1] are a warning
		}
		if code, out, errs := call(t, args...); code != exitDone {
			t.Errorf("%s of a whole recording: exit %d: %s%s", to, code, out, errs)
		}
		code, out, errs := call(t, "convert", cut, filepath.Join(dir, "cut_"+to, "1.0.0"), "--to", to, "--hz", "30", "--json")
		var r struct{ Findings []struct{ Code string } }
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitFindings || !strings.Contains(out, `"cut-file"`) || len(r.Findings) == 0 {
			t.Errorf("%s: exit %d: %s%s", to, code, out, errs)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cut_lerobot", "1.0.0", "meta", "conversion.json")); err != nil || !strings.Contains(string(b), `"cut-file"`) {
		t.Errorf("%v: %s", err, b)
	}
}

// TestAlignInline: --align takes JSON as it is printed by doctor, beside a file.
func TestAlignInline(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "a.mcap")
	if code, _, errs := call(t, "synth", src, "--format", "mcap", "--episodes", "1", "--seconds", "1", "--cameras", "0", "--rates", "camera=30,joints=100"); code != exitDone {
		t.Fatal(code, errs)
	}
	frames := func(name, text string) float64 {
		t.Helper()
		code, out, errs := call(t, "convert", src, filepath.Join(dir, name), "--align", text, "--json")
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
		if code, _, errs := call(t, "convert", src, filepath.Join(dir, "bad"), "--align", bad); code != exitMisuse || !strings.Contains(errs, "--align") {
			t.Errorf("%s: exit %d: %s", bad, code, errs)
		}
	}
}
