package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// worker writes a program that answers status, run and commit. DIR/code holds the exit code of run.
func worker(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >> '" + dir + "/log'\ncase $1 in status) echo " +
		"'{\"total\": 3, \"missing\": \"1-2\"}';; run) exit \"$(cat '" + dir + "/code')\";; " +
		"commit) echo '{\"findings\": [{\"severity\": \"warning\"}]}'; exit 3;; esac\n"
	for name, text := range map[string]string{"worker": script, "code": "3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSubmitLocal(t *testing.T) {
	dir := worker(t)
	args := []string{
		"submit",
		"local",
		"--manifest",
		"mem://plan.json",
		"--program",
		filepath.Join(dir, "worker"),
		"-j",
		"2",
		"--retries",
		"0",
		"--json",
	}
	code, out, errs := call(t, append(args, "--metrics", ":0")...)
	if !strings.Contains(errs, "metrics at http://127.0.0.1:") {
		t.Error(errs)
	}
	var s map[string]any
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitFindings ||
		s["done"] != 3.0 || s["total"] != 3.0 || s["findings"] != 2.0 || s["committed"] != true {
		t.Errorf("exit %d: %v: %s%s", code, err, out, errs)
	}
	for _, want := range []int{42, 2, exitTemporary} {
		if err := os.WriteFile(filepath.Join(dir, "code"), []byte(strconv.Itoa(want)),
			0o644); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := call(t, args...); code != want || !strings.Contains(errs, "exit code") {
			t.Errorf("exit %d, want %d: %s", code, want, errs)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil ||
		!strings.Contains(string(log), "run --manifest mem://plan.json --shard 2 --threads ") {
		t.Errorf("%v\n%s", err, log)
	}
}

func TestSubmitSlurm(t *testing.T) {
	dir := worker(t)
	out := filepath.Join(dir, "jobs")
	code, text, errs := call(
		t,
		"submit",
		"slurm",
		"--manifest",
		"mem://plan.json",
		"--program",
		filepath.Join(dir, "worker"),
		"--out",
		out,
		"--sbatch=--partition=x",
		"--max-array",
		"2",
	)
	script, err := os.ReadFile(filepath.Join(out, "submit.sh"))
	if code != exitDone || err != nil ||
		!strings.Contains(string(script), "array 1 0\narray 0 2\n") ||
		!strings.Contains(string(script), "--partition=x ./array.sh") {
		t.Errorf("exit %d: %v %s%s\n%s", code, err, text, errs, script)
	}
	t.Setenv("PATH", "/bin:/usr/nothing")
	if code, _, errs := call(t, "submit", "slurm", "--manifest", "mem://plan.json", "--program",
		"/none", "--out", out); code != exitMisuse {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, bad := range [][]string{
		{"submit"},
		{"submit", "local"},
		{"submit", "cloud"},
		{"submit", "local", "--manifest", "x", "-j", "0"},
		{"submit", "local", "--manifest", "x", "--retries", "-1"},
	} {
		if code, _, errs := call(t, bad...); code != exitMisuse {
			t.Errorf("%v: exit %d: %s", bad, code, errs)
		}
	}
}

func TestSubmitKubernetes(t *testing.T) {
	dir := worker(t)
	args := []string{
		"submit",
		"kubernetes",
		"--manifest",
		"s3://bucket/plan.json",
		"--image",
		"robocache:1",
	}
	code, out, errs := call(t, append(args, "--program", filepath.Join(dir, "worker"))...)
	if code != exitDone || !strings.Contains(out, "completions: 3\n") ||
		strings.Count(out, "kind: Job") != 2 {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	folder := filepath.Join(dir, "deploy")
	if code, _, errs := call(
		t,
		append(args, "--shards", "7", "--out", folder)...); code != exitDone {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, name := range []string{"run.yaml", "commit.yaml", "kustomization.yaml"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	if code, _, errs := call(
		t,
		append(args, "--shards", "7", "--gpus", "many")...); code != exitMisuse {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// The exit code is that of Python. Without a Python that has Ray, an error says so.
func TestSubmitRay(t *testing.T) {
	dir := worker(t)
	python := filepath.Join(dir, "python")
	if err := os.WriteFile(python,
		[]byte("#!/bin/sh\necho \"$@\"; echo 'robocache: never' >&2; exit \"${RAY_CODE:-42}\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call(
		t,
		"submit",
		"ray",
		"--manifest",
		"s3://bucket/plan.json",
		"--python",
		python,
		"--num-gpus",
		"0.5",
		"--address",
		"auto",
		"--partial",
	)
	if code != 42 ||
		out != "-m robocache.ray s3://bucket/plan.json --num-cpus 1 --num-gpus 0.5 --retries 5 "+
			"--address auto --partial\n" ||
		!strings.Contains(errs, "never") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	t.Setenv("RAY_CODE", "3") // the commit has findings
	if code, _, _ := call(t, "submit", "ray", "--manifest", "x", "--python", python); code !=
		exitFindings {
		t.Errorf("exit %d of a commit with findings", code)
	}
	if code, _, errs := call(t, "submit", "ray", "--manifest", "x", "--python",
		filepath.Join(dir, "none")); code != exitMisuse {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A scheduler gets 0 for exit code 3. With --wait a verb runs again while it returns 75.
func TestSubmitTask(t *testing.T) {
	dir := worker(t)
	if code, _, errs := call(t, "submit", "task", "--", "submit", "local", "--manifest",
		"mem://plan.json", "--program", filepath.Join(dir, "worker"), "--retries", "0"); code !=
		exitDone {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, _ := call(t, "submit", "task", "--wait", "--", "inspect",
		filepath.Join(dir, "none")); code != exitNotFound {
		t.Errorf("exit %d", code)
	}
	taskPause = time.Millisecond
	script := "#!/bin/sh\ncase $1 in status) echo '{\"total\": 1}';; commit) echo '{}'; [ -e '" +
		dir + "/again' ] && exit 3; touch '" + dir + "/again'; exit 75;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "worker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(t, "submit", "task", "--wait", "--", "submit", "local", "--manifest",
		"mem://plan.json", "--program", filepath.Join(dir, "worker")); code != exitDone {
		t.Errorf("exit %d: %s", code, errs)
	}
}
