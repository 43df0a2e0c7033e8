package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// worker is a program that answers status, run and commit; DIR/code is the exit code of run.
func worker(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >> '" + dir + "/log'\ncase $1 in status) echo '{\"total\": 3, \"missing\": \"1-2\"}';; run) exit \"$(cat '" + dir + "/code')\";; commit) exit 3;; esac\n"
	for name, text := range map[string]string{"worker": script, "code": "3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSubmitLocal(t *testing.T) {
	dir := worker(t)
	args := []string{"submit", "local", "--manifest", "mem://plan.json", "--program", filepath.Join(dir, "worker"), "-j", "2", "--retries", "0", "--json"}
	code, out, errs := call(t, args...)
	var s map[string]any
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitFindings || s["done"] != 3.0 || s["total"] != 3.0 || s["findings"] != 2.0 || s["committed"] != true {
		t.Errorf("exit %d: %v: %s%s", code, err, out, errs)
	}
	for _, want := range []int{42, 2, exitTemporary} {
		if err := os.WriteFile(filepath.Join(dir, "code"), []byte(strconv.Itoa(want)), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := call(t, args...); code != want || !strings.Contains(errs, "exit code") {
			t.Errorf("exit %d, want %d: %s", code, want, errs)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || !strings.Contains(string(log), "run --manifest mem://plan.json --shard 2\n") {
		t.Errorf("%v\n%s", err, log)
	}
}

func TestSubmitSlurm(t *testing.T) {
	dir := worker(t)
	out := filepath.Join(dir, "jobs")
	code, text, errs := call(t, "submit", "slurm", "--manifest", "mem://plan.json", "--program", filepath.Join(dir, "worker"), "--out", out, "--sbatch=--partition=x", "--max-array", "2")
	script, err := os.ReadFile(filepath.Join(out, "submit.sh"))
	if code != exitDone || err != nil || !strings.Contains(string(script), "array 1 0\narray 0 2\n") || !strings.Contains(string(script), "--partition=x ./array.sh") {
		t.Errorf("exit %d: %v %s%s\n%s", code, err, text, errs, script)
	}
	t.Setenv("PATH", "/bin:/usr/nothing")
	if code, _, errs := call(t, "submit", "slurm", "--manifest", "mem://plan.json", "--program", "/none", "--out", out); code != exitMisuse {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, bad := range [][]string{{"submit"}, {"submit", "local"}, {"submit", "cloud"}, {"submit", "local", "--manifest", "x", "-j", "0"}, {"submit", "local", "--manifest", "x", "--retries", "-1"}} {
		if code, _, errs := call(t, bad...); code != exitMisuse {
			t.Errorf("%v: exit %d: %s", bad, code, errs)
		}
	}
}
