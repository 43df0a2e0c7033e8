package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/bench/internal/realdata"
)

// All five scenarios run on one set, end to end: processes, servers, a barrier, frames compared
// with ffmpeg, kill and resume, files.
func TestBenchLoadScenarios(t *testing.T) {
	if _, err := exec.LookPath("ffprobe"); err != nil {
		t.Skip("no ffmpeg programs: ", err)
	}
	set, dir := realdata.Path(t, "g1_h264_v30"), t.TempDir()
	code, out, errs := call(
		t,
		"load",
		set,
		"--scenarios",
		"all",
		"--duration",
		"300ms",
		"--batch-size",
		"16",
		"--workers",
		"2",
		"--shuffle",
		"global",
		"--warmup",
		"1",
		"--hub-latency",
		"3ms",
		"--bucket-latency",
		"1ms",
		"--check-frames",
		"4",
		"--probes",
		"16",
		"--image-size",
		"",
		"--explain",
		"--out",
		dir,
	)
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, name := range []string{
		"mmap_local",
		"mmap_local_maxworkers",
		"stream_hub",
		"stream_bucket",
		"stream_bucket_2node",
	} {
		file, world := name+"_bs16_w2_r0of1", 1.0
		if name == "stream_bucket_2node" {
			file, world = name+"_bs16_w2_merged2", 2
			for _, rank := range []string{"0", "1"} {
				if r := readRow(t,
					filepath.Join(dir, name+"_bs16_w2_r"+rank+"of2.json")); r["rank"] == nil ||
					r["samples_per_s"].(float64) <= 0 {
					t.Errorf("%s: rank %s: %v", name, rank, r)
				}
			}
		}
		r := readRow(t, filepath.Join(dir, file+".json"))
		if r["scenario"] != name || r["world_size"] != world || r["samples_per_s"].(float64) <= 0 ||
			r["wrong_frames"] != 0.0 ||
			r["resume_exact"] != true ||
			r["samples_lost"] != 0.0 ||
			r["failed"] != "" {
			t.Errorf("%s: %v", name, r)
		}
		if r["bytes_needed_per_sample"].(float64) <= 0 ||
			r["bytes_read_per_sample"].(float64) <= 0 ||
			r["cpu_s_per_sample"].(float64) <= 0 ||
			r["peak_rss_gb"].(float64) <= 0 {
			t.Errorf("%s: %v", name, r)
		}
		if world == 2 && (r["slowest_rank"] == nil || len(r["rank_samples_per_s"].([]any)) != 2) {
			t.Errorf("%s: %v", name, r)
		}
		if !strings.Contains(out, name) || !strings.Contains(out, "limit: ") {
			t.Errorf("%s is not in what is printed:\n%s", name, out)
		}
	}
	for _, f := range []string{"load.json", "load.csv"} {
		if st, err := os.Stat(filepath.Join(dir, f)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func readRow(t *testing.T, path string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A reference decode that differs from the delivered frames is exit code 1, and the report still
// has the figures.
func TestBenchLoadFailsOnWrongFrames(t *testing.T) {
	if _, err := exec.LookPath("ffprobe"); err != nil {
		t.Skip("no ffmpeg programs: ", err)
	}
	set, dir := realdata.Path(t, "g1_h264_v30"), t.TempDir()
	// an ffmpeg that leaves out the first image
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip(err)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\n# every argument, and a filter before the output's options\nfor a; do " +
		"shift; case $a in passthrough) set -- \"$@\" \"$a\" -vf \"select=gte(n\\,1)\";; *) set " +
		"-- \"$@\" \"$a\";; esac; done\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "ffmpeg"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	code, _, errs := call(
		t,
		"load",
		set,
		"--duration",
		"100ms",
		"--batch-size",
		"8",
		"--workers",
		"1",
		"--warmup",
		"0",
		"--check-frames",
		"6",
		"--probes",
		"0",
		"--resume=false",
		"--shuffle",
		"global",
		"--out",
		dir,
	)
	if code != exitFailed || !strings.Contains(errs, "checked frames are wrong") {
		t.Fatalf("exit %d: %s", code, errs)
	}
	if r := readRow(t, filepath.Join(dir, "mmap_local_bs8_w1_r0of1.json")); r["failed"] == "" ||
		r["wrong_frames"] == 0.0 || r["samples_per_s"].(float64) <= 0 {
		t.Errorf("%v", r)
	}
}

func TestBenchLoadMisuse(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--scenario", "mmap"}, "mmap_local"},
		{[]string{"--epochs", "1", "--scenario", "mmap_local"}, "--epochs"},
		{[]string{"--cache-state", "hot"}, "--cache-state"},
		{[]string{"--duration", "0s"}, "--duration"},
		{[]string{"--hz", "10"}, "--rows-hz"},
	} {
		code, _, errs := call(t, append([]string{"load", t.TempDir()}, c.args...)...)
		if code != exitMisuse || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, errs)
		}
	}
}

// Every option is forwarded to the jobs, and --scenarios picks them.
func TestBenchLoadDryRun(t *testing.T) {
	t.Setenv("ACCOUNT", "lab")
	code, out, errs := call(
		t,
		"load",
		"/data/my set",
		"--scenarios",
		"mmap_local,stream_hub",
		"--runners",
		"engine,robocache",
		"--duration",
		"30s",
		"--max-episodes",
		"512",
		"--workers",
		"6",
		"--dry-run",
	)
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{
		"job_mmap_local=$(sbatch",
		"--account=lab",
		"--cpus-per-task=10",
		"my set",
		"--runners=engine,robocache",
		"--duration=30s",
		"--max-episodes=512",
		"--dependency=afterany:\"$job_mmap_local\"",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the script lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "stream_bucket") || strings.Contains(out, "dry-run") ||
		strings.Contains(out, "--scenarios") {
		t.Error(out)
	}
}

// With two nodes, each process runs its rank. The ranks meet in a shared folder, and rank 0 writes
// the merged result.
func TestBenchLoadNodes(t *testing.T) {
	set, dir := realdata.Path(t, "g1_h264_v30"), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var cmds []*exec.Cmd
	for rank := range 2 {
		c := exec.CommandContext(
			t.Context(),
			self,
			"load",
			set,
			"--scenario",
			"stream_bucket_2node",
			"--duration",
			"3s",
			"--batch-size",
			"16",
			"--workers",
			"1",
			"--shuffle",
			"global",
			"--warmup",
			"1",
			"--bucket-latency",
			"1ms",
			"--check-frames",
			"2",
			"--probes",
			"0",
			"--resume=false",
			"--out",
			dir,
		)
		c.Env = append(
			os.Environ(),
			"RANK="+string(rune('0'+rank)),
			"WORLD_SIZE=2",
			"SLURM_JOB_ID=7",
		)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, c)
	}
	for i, c := range cmds {
		if err := c.Wait(); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	r := readRow(t, filepath.Join(dir, "stream_bucket_2node_bs16_w1_merged2.json"))
	if r["samples_per_s"].(float64) <= 0 || r["slowest_rank"] == nil || r["failed"] != "" {
		t.Errorf("%v", r)
	}
}

// The Python runner reports the same keys as the engine and delivers the same order and right
// frames. It resumes exactly after a kill.
func TestBenchLoadPythonRunner(t *testing.T) {
	root := realdata.Root(t)
	python := filepath.Join(root, ".venv", "bin", "python")
	for _, f := range []string{
		python,
		filepath.Join(root, "python", "robocache", "_lib", "librobocache.so"),
	} {
		if _, err := os.Stat(f); err != nil {
			t.Skip("not built: ", err)
		}
	}
	set, dir := realdata.Path(t, "g1_h264_v30"), t.TempDir()
	t.Setenv("PYTHONPATH", filepath.Join(root, "python"))
	code, out, errs := call(
		t,
		"load",
		set,
		"--runners",
		"engine,robocache",
		"--python",
		python,
		"--episodes",
		"0",
		"--duration",
		"1s",
		"--batch-size",
		"16",
		"--shuffle",
		"pool",
		"--cache",
		"ram",
		"--workers",
		"2",
		"--check-frames",
		"3",
		"--probes",
		"16",
		"--explain",
		"--out",
		dir,
	)
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	a, b := readRow(t, filepath.Join(dir, "engine", "mmap_local_bs16_w2_r0of1.json")),
		readRow(t, filepath.Join(dir, "robocache", "mmap_local_bs16_w2_r0of1.json"))
	for key := range a {
		if _, ok := b[key]; !ok {
			t.Errorf("the Python runner's row lacks %s", key)
		}
	}
	for _, r := range []map[string]any{a, b} {
		if r["wrong_frames"] != 0.0 || (r["resume_exact"] == true) != (r["arm"] == "engine") ||
			r["samples_lost"] != 0.0 ||
			r["samples_doubled"] != 0.0 ||
			r["failed"] != "" ||
			r["wait_pct"] == nil ||
			r["single_proc_samples_per_s"] == nil {
			t.Errorf("%v", r)
		}
	}
	if a["order_samples"] == b["order_samples"] && a["order_sha256"] != b["order_sha256"] {
		t.Error("the runners gave another order")
	}
	if n := strings.Count(out, "limit: "); n != 2 {
		t.Errorf("%d explanations:\n%s", n, out)
	}
}
