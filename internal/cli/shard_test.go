package cli

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/verbs"
)

// The command line plans and commits shards, with the keys and exit codes that schedulers use.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	m, dst := filepath.Join(dir, "m.json"), filepath.Join(dir, "out")
	ok := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := call(t, args...)
		if code != want {
			t.Fatalf("%v: %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	stateWith := func(code int) (s map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(ok(code, "status", "--manifest", m, "--json")), &s); err !=
			nil {
			t.Fatal(err)
		}
		return s
	}
	state := func() map[string]any { t.Helper(); return stateWith(0) }
	ok(2, "plan", "convert", "synth://heterogeneous", dst)
	ok(2, "plan", "nothing", "synth://heterogeneous", dst, "--manifest", m)
	ok(2, "plan", "resample", "synth://heterogeneous", dst, "--manifest", m)
	ok(
		12,
		"plan",
		"convert",
		"synth://heterogeneous",
		dst,
		"--manifest",
		m,
		"--to",
		"zarr",
		"--hz",
		"50",
		"--skip-bad",
	)
	ok(10, "run", "--manifest", m, "--shard", "0")
	ok(
		0,
		"plan",
		"resample",
		"synth://heterogeneous?episodes=7&cap=20",
		dst,
		"--hz",
		"20",
		"--shards",
		"3",
		"--manifest",
		m,
	)
	if s := state(); s["total"] != 3.0 || s["done"] != 0.0 || s["missing"] != "0-2" ||
		s["array"] != "--array=0-2" {
		t.Errorf("%v", s)
	}
	ok(2, "run", "--manifest", m)
	ok(2, "run", "--manifest", m, "--shard", "3")
	ok(75, "commit", "--manifest", m)
	t.Setenv("JOB_COMPLETION_INDEX", "2")
	t.Setenv("ROBOCACHE_LOG_LEVEL", "info")
	if log, run := ok(0, "run", "--manifest", m), state()["run"].(string); len(run) != 12 ||
		strings.Count(log, `"run":"`+run+`","shard":2`) != 2 ||
		!strings.Contains(log, `"exit_code":0`) {
		t.Errorf("%s: %s", run, log)
	}
	t.Setenv("ROBOCACHE_LOG_LEVEL", "")
	t.Setenv("SLURM_ARRAY_TASK_ID", "0")
	ok(0, "run", "--manifest", m)
	if s := state(); s["done"] != 2.0 || s["missing"] != "1" || s["running"] != 0.0 ||
		s["failed"] != 0.0 {
		t.Errorf("%v", s)
	}
	if text := ok(0, "run", "--manifest", m, "--shard", "2"); !strings.Contains(text,
		"done already") {
		t.Error(text)
	}
	ok(0, "run", "--manifest", m, "--shard", "1")
	ok(3, "commit", "--manifest", m) // no-state: heterogeneous has no observation.state
	ok(3, "commit", "--manifest", m)
	ok(0, "gc", "--manifest", m)
	if s := stateWith(3); s["committed"] != true || s["done"] != 3.0 || s["missing"] != nil {
		t.Errorf("%v", s)
	}
	ok(0, "doctor", dst)
	b, err := os.ReadFile(m)
	if err != nil {
		t.Fatal(err)
	}
	ok(
		0,
		"plan",
		"resample",
		"synth://heterogeneous?episodes=7&cap=20",
		dst,
		"--hz",
		"20",
		"--shards",
		"3",
		"--manifest",
		m,
	)
	if again, err := os.ReadFile(m); err != nil || string(again) != string(b) {
		t.Error("another manifest of the same input")
	}
	// This shard can never succeed.
	src := filepath.Join(dir, "src")
	ok(0, "synth", src, "--cameras", "0", "--episodes", "2")
	ok(0, "plan", "convert", src, filepath.Join(dir, "out2"), "--manifest", m)
	if err := os.Remove(filepath.Join(src, "data", "chunk-000", "file-000.parquet")); err != nil {
		t.Fatal(err)
	}
	ok(42, "run", "--manifest", m, "--shard", "0")
	if s := state(); s["failed"] != 1.0 ||
		s["failed_by_class"].(map[string]any)["malformed"] != 1.0 {
		t.Errorf("%v", s)
	}
}

// SIGTERM and SIGUSR1 end a shard with 75 and leave only its lease file. SIGINT ends it with 130.
func TestShardSignals(t *testing.T) {
	const child = "ROBOCACHE_TEST_RUN_MANIFEST"
	if m := os.Getenv(child); m != "" {
		os.Exit(Main([]string{"run", "--manifest", m, "--shard", "0"}, "test"))
	}
	for signal, want := range map[syscall.Signal]int{
		syscall.SIGTERM: 75,
		syscall.SIGUSR1: 75,
		syscall.SIGINT:  130,
	} {
		dir := t.TempDir()
		m, dst := filepath.Join(dir, "m.json"), filepath.Join(dir, "out")
		if code, _, errs := call(t, "plan", "resample",
			"synth://heterogeneous?episodes=20000&cap=120", dst, "--hz", "50", "--manifest",
			m); code != 0 {
			t.Fatal(errs)
		}
		c := exec.Command(os.Args[0], "-test.run=^TestShardSignals$")
		c.Env = append(os.Environ(), child+"="+m)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for range 500 { // until it has started
			if notes,
				_ := filepath.Glob(filepath.Join(dst, "_staging", "00000", "*", "*")); len(notes) >
				0 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		_ = c.Process.Signal(signal)
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != want {
			t.Errorf("%v: exit code %d, want %d", signal, code, want)
		}
		man, err := shard.Read(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := shard.StatusOf(t.Context(), man); err != nil || s.Failed != 1 ||
			s.Running != 0 || len(s.Never) != 0 {
			t.Errorf("%+v %v", s, err)
		}
	}
}

// An estimate writes nothing. Its parts add up to the total, and the price follows from hours and
// bytes.
func TestShardEstimate(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	dst := filepath.Join(dir, "out")
	args := []string{
		"plan",
		"resample",
		"synth://heterogeneous?episodes=100&cap=120",
		dst,
		"--hz",
		"50",
		"--trajectories",
		"10000000",
		"--shards",
		"10000",
		"--estimate",
		"--workers",
		"100",
		"--retried",
		"0.5",
		"--price-per-core-hour",
		"2",
		"--price-per-gb",
		"1",
	}
	code, out, errs := call(t, append(args, "--json")...)
	var p verbs.Planned
	if err := json.Unmarshal([]byte(out), &p); code != 0 || err != nil || p.Estimate == nil {
		t.Fatalf("%d %v %s%s", code, err, out, errs)
	}
	e, sum := p.Estimate, 0.0
	var bytes int64
	for _, s := range e.Stages {
		sum, bytes = sum+s.Seconds, bytes+s.Bytes
	}
	if e.Episodes != 10_000_000 || e.Shards != 10_000 || e.Frames < 1e8 || e.Frames > 3e9 ||
		bytes <= 0 ||
		math.Abs(e.Seconds/sum-1.5) > 1e-6 ||
		math.Abs(e.Elapsed/(e.Seconds/100)-1) > 1e-6 ||
		math.Abs(e.Cost-(e.Seconds/3600*2+float64(bytes)*1.5/1e9)) > 1e-6*e.Cost ||
		p.Manifest != "" {
		t.Errorf("%+v", e)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 && (len(left) != 1 || left[0].Name() != "tmp") {
		t.Errorf("%v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "tmp", "*")); len(left) != 0 {
		t.Errorf("%v", left)
	}
	// Shards of files, with a manifest.
	src, m := filepath.Join(dir, "src"), filepath.Join(dir, "m.json")
	if code, _, errs := call(t, "synth", src, "--cameras", "0", "--episodes", "9"); code != 0 {
		t.Fatal(errs)
	}
	code, out, errs = call(
		t,
		"plan",
		"convert",
		src,
		dst,
		"--shards",
		"3",
		"--estimate",
		"--manifest",
		m,
	)
	if code != 0 || !strings.Contains(out, "compute") || !strings.Contains(out, "wrote ") {
		t.Errorf("%d %s%s", code, out, errs)
	}
	code, out, errs = call(
		t,
		"plan",
		"convert",
		src,
		dst,
		"--shards",
		"3",
		"--estimate",
		"--manifest",
		m,
		"--json",
	)
	p = verbs.Planned{}
	if err := json.Unmarshal([]byte(out), &p); code != 0 || err != nil || p.Manifest != m ||
		p.Estimate.Frames != p.Frames ||
		math.Abs(float64(p.Estimate.Stages[1].Bytes)/float64(p.Bytes)-1) > 0.01 {
		t.Errorf("%d %v %s%s", code, err, out, errs)
	}
	for _, bad := range [][]string{
		{"--workers", "0"},
		{"--retried", "-1"},
		{"--price-per-gb", "nan"},
	} {
		if code, _, _ := call(
			t,
			append([]string{"plan", "convert", src, dst, "--estimate"}, bad...)...); code != 2 {
			t.Errorf("%v: %d", bad, code)
		}
	}
}
