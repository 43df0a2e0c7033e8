package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// faulty is a dataset with a reader that dereferences nil in episode 1.
const faulty = `{"fps": 10, "key": "action", "width": 1, "fault": 1,
 "rows": [[[0], [1], [2]], [[3], [4], [5]], [[6], [7], [8]]]}`

// TestInternalErrors runs every verb that reads rows on a dataset with a reader that panics. The
// result is exit code 70 with the stack and a request to report it. Skipping bad episodes does not
// change that.
func TestInternalErrors(t *testing.T) {
	dir := t.TempDir()
	program, src := filepath.Join(dir, "robocache"), filepath.Join(dir, "faulty.toy")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-tags", "toy", "-o", program,
		"./cmd/robocache")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(src, []byte(faulty), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string) {
		var exit *exec.ExitError
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		} else if err == nil {
			return 0, string(out)
		}
		return exit.ExitCode(), string(out)
	}
	plan := filepath.Join(dir, "plan.json")
	if code, out := run("plan", "convert", src, filepath.Join(dir, "sharded"), "--skip-bad",
		"--shards", "1", "--manifest", plan); code != 0 {
		t.Fatal(code, out)
	}
	for name, args := range map[string][]string{
		"convert":  {"convert", src, filepath.Join(dir, "lerobot"), "--skip-bad"},
		"to zarr":  {"convert", src, filepath.Join(dir, "zarr"), "--to", "zarr", "--skip-bad"},
		"to mcap":  {"convert", src, filepath.Join(dir, "mcap"), "--to", "mcap", "--skip-bad"},
		"to rlds":  {"convert", src, filepath.Join(dir, "rlds"), "--to", "rlds", "--skip-bad"},
		"to delta": {"convert", src, filepath.Join(dir, "delta"), "--to", "delta", "--skip-bad"},
		"robomimic": {
			"convert",
			src,
			filepath.Join(dir, "mimic.hdf5"),
			"--to",
			"robomimic",
			"--skip-bad",
		},
		"run":    {"run", "--manifest", plan, "--shard", "0"},
		"stats":  {"stats", src, "--skip-bad"},
		"doctor": {"doctor", src},
		"view":   {"view", src, "--listen", "127.0.0.1:0"},
		"edit":   {"edit", "delete", src, filepath.Join(dir, "edited"), "--episodes", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := run(args...)
			for _, want := range []string{
				"internal error",
				"nil pointer dereference",
				"toy.go:",
				"Report",
			} {
				if code != 70 || !strings.Contains(out, want) {
					t.Fatalf("exit code %d, without %q: %s", code, want, out)
				}
			}
		})
	}
	t.Run("submit", func(t *testing.T) {
		code, out := run("submit", "local", "--manifest", plan)
		if code != 70 || !strings.Contains(out, "internal error") {
			t.Fatalf("exit code %d: %s", code, out)
		}
	})
}
