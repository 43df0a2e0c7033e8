package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLookAheadFinding checks that inspect, doctor and convert report the look-ahead of hz=, and
// that exit codes do not change.
func TestLookAheadFinding(t *testing.T) {
	set := filepath.Join(t.TempDir(), "recording")
	if code, _, errs := call(t, "synth", set, "--format", "mcap", "--episodes", "1", "--cameras",
		"1", "--size", "64x64", "--seconds", "1", "--rates", "camera=30,joints=100"); code !=
		exitDone {
		t.Fatal(errs)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{
			[]string{"inspect", set, "--json"},
			"observations on another clock use samples from after the tick",
		},
		{
			[]string{"inspect", set, "--json", "--hz", "40"},
			"observations at 40 Hz use samples from after the tick",
		},
		{
			[]string{"doctor", set, "--json"},
			"observations on another clock use samples from after the tick",
		},
	} {
		code, out, errs := call(t, c.args...)
		if code != exitDone || strings.Count(out, `"look-ahead"`) != 1 ||
			!strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, %s%s", c.args, code, out, errs)
		}
	}
	_, _, errs := call(
		t,
		"convert",
		set,
		filepath.Join(t.TempDir(), "out"),
		"--hz",
		"40",
		"--dry-run",
		"--frames",
		"none",
	)
	if strings.Count(errs, "use samples from after the tick") != 1 {
		t.Errorf("convert: %s", errs)
	}
}
