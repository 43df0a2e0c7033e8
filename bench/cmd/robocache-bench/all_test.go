package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The suite ends within its time. Steps that this machine cannot run are skipped with their
// command, all files exist, plots are not empty, and two runs can be compared.
func TestBenchAll(t *testing.T) {
	py, out := trainer(t), filepath.Join(t.TempDir(), "out")
	began := time.Now()
	code, text, errs := call(
		t,
		"all",
		"--time",
		"50s",
		"--parts",
		"load,transformer",
		"--python",
		py,
		"--out",
		out,
	)
	if took := time.Since(began); code != exitDone || took > 55*time.Second {
		t.Fatalf("exit %d after %v: %s\n%s", code, took, errs, text)
	}
	r := readRow(t, filepath.Join(out, "benchmark_results.json"))
	loaded := false
	for _, s := range r["steps"].([]any) {
		s := s.(map[string]any)
		why, _ := s["skipped"].(string)
		switch {
		case s["failed"] != nil,
			why != "" && !strings.HasPrefix(s["command"].(string), "robocache"):
			t.Errorf("%v", s)
		case s["part"] == "transformer" && why == "":
			t.Skip("a GPU is here")
		case s["part"] == "load" && why == "":
			loaded = true
		}
	}
	if !loaded {
		t.Skip("too slow a machine for one batch size: ", errs)
	}
	for _, name := range []string{
		"throughput_comparison",
		"latency_comparison",
		"speedup_comparison",
	} {
		if b, err := os.ReadFile(filepath.Join(out, "plots", name+".png")); err != nil ||
			colours(t, b) < 1 {
			t.Errorf("%s: %v, an empty plot", name, err)
		}
	}
	readme, _ := os.ReadFile(filepath.Join(out, "README.md"))
	for _, want := range []string{
		"Beside torch's DataLoader",
		"624,390/s",
		"skipped: no CUDA",
		"batch 16 robocache",
		"samples_per_s",
	} {
		if !bytes.Contains(readme, []byte(want)) {
			t.Errorf("README.md lacks %q:\n%s", want, readme)
		}
	}
	if code, text, errs := call(t, "report", out); code != exitDone || text != string(readme) {
		t.Errorf("report: exit %d: %s", code, errs)
	}
	if code, text, _ := call(t, "report", out, out); code != exitDone ||
		!strings.Contains(text, "0 figures are worse") {
		t.Errorf("a run beside itself: exit %d: %s", code, text)
	}
	// half of our rate, beyond the spread
	for _, s := range r["steps"].([]any) {
		result, _ := s.(map[string]any)["result"].(map[string]any)
		list, _ := result["results"].([]any)
		for _, x := range list {
			rate := x.(map[string]any)["samples_per_s"].(map[string]any)
			for _, k := range []string{"min", "median", "max"} {
				rate[k] = rate[k].(float64) / 2
			}
		}
	}
	b, _ := json.Marshal(r)
	slower := filepath.Join(t.TempDir(), "benchmark_results.json")
	if err := os.WriteFile(slower, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text, _ := call(t, "report", out, filepath.Dir(slower)); code != exitFindings ||
		!strings.Contains(text, "**worse**") {
		t.Errorf("a slower run: exit %d: %s", code, text)
	}
	if code, text, _ := call(t, "report", filepath.Dir(slower), out, "--out",
		filepath.Join(out, "compared")); code != exitDone || !strings.Contains(text, "better") ||
		!fileExists(filepath.Join(out, "compared", "report.html")) {
		t.Errorf("a faster run: exit %d: %s", code, text)
	}
}

// Steps that were complete when the suite was killed do not run again.
func TestBenchAllKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	rows := filepath.Join(out, "rows.jsonl")
	line := []string{
		"all",
		"--time",
		"60s",
		"--parts",
		"synth,ops",
		"--python",
		trainer(t),
		"--out",
		out,
	}
	cmd := exec.Command(self, line...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var kept []byte
	child := ""
	for range 5000 { // until both sets are made and the kernels have begun
		kept, _ = os.ReadFile(rows)
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		for _, f := range tasks {
			b, _ := os.ReadFile(f)
			child = cmp.Or(strings.TrimSpace(string(b)), child)
		}
		if bytes.Count(kept, []byte("\n")) > 1 && child != "" {
			break
		}
		child = ""
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil || child == "" {
		t.Fatal(err, " the kernels have not begun: ", string(kept))
	}
	_ = cmd.Wait()
	gone := func() bool {
		stat, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	}
	for end := time.Now().Add(2 * time.Second); !gone() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if !gone() {
		t.Error("what the killed suite had started goes on: ", child)
	}
	kept, _ = os.ReadFile(rows)
	if bytes.Count(kept, []byte("\n")) == 0 {
		t.Fatal("nothing was kept")
	}
	// this machine may miss a bar
	if code, _, errs := call(
		t,
		append(line, "--resume")...); code != exitDone &&
		code != exitFindings {
		t.Fatalf("resumed: exit %d: %s", code, errs)
	}
	again, _ := os.ReadFile(rows)
	if !bytes.HasPrefix(again, kept) {
		t.Error("what was over has changed")
	}
	seen := map[string]bool{}
	for l := range bytes.Lines(again) {
		var row struct {
			Key   string
			Value struct{ Part, Step, Failed string }
		}
		if err := json.Unmarshal(l, &row); err != nil || seen[row.Key] || row.Value.Part == "" ||
			row.Value.Failed != "" {
			t.Errorf("%s: %v", l, err)
		}
		seen[row.Key] = true
	}
	if len(seen) != 3 { // two sets, the kernels
		t.Errorf("%d commands are over", len(seen))
	}
	set := filepath.Join(out, "sets", "all-few", "rtx.hdf5") // a missing set is made again
	if err := os.Remove(set); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(t, append(line, "--resume")...); code == 1 || !fileExists(set) {
		t.Errorf("resumed without a set: exit %d: %s", code, errs)
	}
	again, _ = os.ReadFile(rows)
	for _, c := range [][]string{
		{"--out", out, "--parts", "none"},
		{"--out", out, "--time", "1s"},
		{},
	} {
		if code, _, errs := call(t, append([]string{"all"}, c...)...); code != exitMisuse {
			t.Errorf("%v: exit %d: %s", c, code, errs)
		}
	}
	if left, _ := os.ReadFile(rows); !bytes.Equal(left, again) {
		t.Error("a refused command has touched what was kept")
	}
}

// A change for the worse by more than 3 % and beyond both spreads is exit code 3. An improvement or
// a smaller change is not.
func TestBenchReport(t *testing.T) {
	dir := t.TempDir()
	run := func(name string, rate, cpu [3]float64) string {
		spread := func(v [3]float64) map[string]any {
			return map[string]any{"min": v[0], "median": v[1], "max": v[2], "raw": v}
		}
		b, _ := json.Marshal(
			map[string]any{
				"results": []any{
					map[string]any{
						"arm":                    map[string]any{"name": "robocache"},
						"samples_per_s":          spread(rate),
						"cpu_s_per_1000_samples": spread(cpu),
					},
				},
			},
		)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	rate, cpu := [3]float64{99, 100, 101}, [3]float64{1.9, 2, 2.1}
	before := run("before.json", rate, cpu)
	for i, c := range []struct {
		rate, cpu [3]float64
		code      int
		say       string
	}{
		{rate, cpu, exitDone, "0 figures are worse"},
		{[3]float64{89, 90, 91}, cpu, exitFindings, "| 0.9 | **worse** |"},
		{rate, [3]float64{2.2, 2.3, 2.4}, exitFindings, "| 1.15 | **worse** |"},
		{[3]float64{89, 90, 91}, [3]float64{2.2, 2.3, 2.4}, exitFindings, "2 figures are worse"},
		{[3]float64{109, 110, 111}, [3]float64{1.6, 1.7, 1.8}, exitDone, "| 1.1 | better |"},
		{[3]float64{98, 98, 98}, cpu, exitDone, "| 0.98 |  |"},
		{[3]float64{70, 80, 99.5}, [3]float64{2.05, 2.3, 2.4}, exitDone, "0 figures are worse"},
	} {
		code, text, errs := call(t, "report", before, run("after.json", c.rate, c.cpu))
		if code != c.code || !strings.Contains(text, c.say) {
			t.Errorf("%d: exit %d, no %q: %s%s", i, code, c.say, text, errs)
		}
	}
	for _, args := range [][]string{
		{},
		{before, "--performance", dir},
		{filepath.Join(dir, "none.json")},
	} {
		if code, _, _ := call(
			t,
			append([]string{"report"}, args...)...); code == exitDone ||
			code == exitFindings {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}
