package cli

import (
	"path/filepath"
	"strings"
	"testing"

	testcases "github.com/goatnote-inc/robocache/internal/tests/cases"
)

// A LeRobot dataset without episodes works with every verb and format: the length is 0, or an error
// gives the reason.
func TestEmptySet(t *testing.T) {
	src := testcases.EmptySet(t)
	dir := t.TempDir()
	const noEpisodes = "the dataset has no episodes"
	done := func(args ...string) {
		t.Helper()
		if code, out, errs := call(t, args...); code != exitDone {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
		}
	}
	refused := func(want int, args ...string) {
		t.Helper()
		if code, _, errs := call(
			t,
			args...); code != want ||
			!strings.Contains(strings.ToLower(errs), noEpisodes) {
			t.Errorf("%v: exit %d, want %d: %s", args, code, want, errs)
		}
	}
	done("inspect", src)
	done("doctor", src)
	done("stats", src)
	done("stats", src, "--hz", "10")
	for _, more := range [][]string{nil, {"--hz", "10"}, {"--drop-invalid"}} {
		for _, format := range []string{"lerobot", "rlds", "zarr", "delta"} {
			dst := filepath.Join(dir, format+strings.Join(more, ""))
			done(append([]string{"convert", src, dst, "--to", format}, more...)...)
			code, out, errs := call(t, "inspect", dst, "--json")
			if code != exitDone || !strings.Contains(out, `"num_episodes": 0`) ||
				strings.Contains(out, `"error"`) {
				t.Errorf("inspect %s %v: exit %d: %s%s", format, more, code, out, errs)
			}
		}
		for _, format := range []string{"mcap", "robomimic"} {
			refused(
				exitUnsupported,
				append(
					[]string{"convert", src, filepath.Join(dir, format), "--to", format},
					more...)...)
		}
	}
	for _, args := range [][]string{
		{"delete", src, filepath.Join(dir, "a"), "--episodes", "0"},
		{"trim", src, filepath.Join(dir, "b"), "--from", "1"},
		{"split", src, filepath.Join(dir, "c"), "--into", "a=0.5,b=0.5"},
		{"rename", src, "action=act", filepath.Join(dir, "d")},
	} {
		refused(exitMisuse, append([]string{"edit"}, args...)...)
	}
	refused(
		exitMisuse,
		"plot",
		src,
		"--episode",
		"0",
		"--keys",
		"action",
		"-o",
		filepath.Join(dir, "x.png"),
	)
	refused(
		exitMisuse,
		"plan",
		"convert",
		src,
		filepath.Join(dir, "p"),
		"--shards",
		"2",
		"--manifest",
		filepath.Join(dir, "p.json"),
	)
}
