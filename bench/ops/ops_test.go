package ops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/bench/internal/realdata"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
)

// TestOpsRows parses the whole table: names are unique, and bars parse and refer to existing rows.
func TestOpsRows(t *testing.T) {
	for _, device := range []string{"cpu", "cuda"} {
		seen := map[string]bool{}
		rows := rowTables()[device]
		for _, r := range rows {
			if seen[r.Name] || r.Title == "" || r.Device != device {
				t.Errorf("%s %q: seen %v", r.Name, r.Title, seen[r.Name])
			}
			seen[r.Name] = true
		}
		for _, r := range rows {
			for _, b := range r.Bars {
				if b.Row != "" && !seen[b.Row] {
					t.Errorf("%s: no row %s", r.Name, b.Row)
				}
			}
		}
	}
	if _, err := RowsNamed("cpu", []string{"nothing"}, false, false); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	some, err := RowsNamed("cuda", []string{"fuse3-4"}, false, false)
	if err != nil || len(some) != 4 {
		t.Errorf("%d rows: %v", len(some), err)
	}
	none, err := RowsNamed("cuda", nil, false, false)
	if err != nil || len(none) == 0 || len(none) >= len(rowTables()["cuda"]) {
		t.Errorf("%d rows without sweeps: %v", len(none), err)
	}
}

func rowOf(name string, w Work, bars ...string) Row {
	return Row{Name: name, Title: name, Device: "cpu", Work: w, Bars: report.Bars("us", bars...)}
}

// TestOpsQuick runs the harness on small rows, with copies as Python peers. It needs an interpreter
// with NumPy.
func TestOpsQuick(t *testing.T) {
	root := realdata.Root(t)
	tools := runners.Tools{
		Python:     filepath.Join(root, ".venv", "bin", "python"),
		PythonPath: filepath.Join(root, "python"),
	}
	for _, f := range []string{
		tools.Python,
		filepath.Join(tools.PythonPath, "robocache", "_lib", "librobocache.so"),
	} {
		if _, err := os.Stat(f); err != nil {
			t.Skip("not built: ", err)
		}
	}
	done, err := tools.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	row := rowOf(
		"small",
		Work{
			Kind:   "voxelize",
			Mode:   "count",
			Layout: "dense",
			Cloud:  "uniform",
			N:      500,
			Grid:   [3]int{8, 4, 16},
			Size:   [3]float32{1.0 / 8, 1.0 / 4, 1.0 / 16},
		},
		"≥ 0.0001 % of memcpy",
		"≥ 3× nobody",
		"≤ 1000000 µs",
		"≤ 100× row small",
	)
	curve := row
	curve.Name, curve.Curve, curve.Bars = "point", "line", nil
	rep, err := Measure(context.Background(), Run{
		Rows: []Row{
			row,
			curve,
		},
		Device:  "cpu",
		Threads: []int{1},
		Rounds:  2,
		Seconds: 0.001,
		Runners: []string{"memcpy", "reference"},
		Tools:   tools,
		Timeout: time.Minute,
		Log:     t.Logf,
		Command: "robocache-bench ops",
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := rep.Document().Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ops-cpu.json", "ops-cpu.csv", "ops-cpu.md", "ops-cpu.html"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() < 100 {
			t.Errorf("%s: %v", name, err)
		}
	}
	var text strings.Builder
	if rep.Document().Markdown(&text); !strings.Contains(text.String(), "| pass |") {
		t.Error(text.String())
	}
	if len(rep.Rows) != 2 {
		t.Fatal(len(rep.Rows))
	}
	r := rep.Rows[0]
	if a := r.runnerNamed("reference"); a == nil || a.Failed != "" || len(a.Hot.Raw) != 2 ||
		len(a.Cold.Raw) != 1 {
		t.Errorf("the reference: %+v", a)
	}
	if a := r.runnerNamed("memcpy numpy"); a == nil || a.Hot.Median <= 0 {
		t.Errorf("the copy: %+v", a)
	}
	if v := r.Checks[1]; v.Judged || !strings.Contains(v.Note, "was not run") {
		t.Errorf("a bar without its runner: %+v", v)
	}
	for _, i := range []int{0, 2, 3} {
		if !r.Checks[i].Pass {
			t.Errorf("%+v", r.Checks[i])
		}
	}
}

// If a process ends early, its current row fails and the others still run. Without an interpreter
// nothing is measured.
func TestOpsEnds(t *testing.T) {
	dir := t.TempDir()
	script := "import json, os, sys\nfor r in json.loads(sys.argv[1])['rows']:\n  if r['name'] " +
		"== 'b': sys.exit('killed')\n  print(json.dumps(dict(row=r['name'], bytes=8, " +
		"arms=[dict(name='robocache', us=dict(raw=[1], min=1, median=1, max=1))])), flush=True)\n"
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "robocache_bench"), 0o700),
		os.WriteFile(filepath.Join(dir, "robocache_bench", "ops_peers.py"), []byte(script),
			0o600)); err != nil {
		t.Fatal(err)
	}
	var rows []Row
	for _, n := range []string{"a", "b", "c"} {
		rows = append(rows, rowOf(n, rowTables()["cpu"][0].Work))
	}
	r := Run{
		Rows:    rows,
		Device:  "cpu",
		Threads: []int{1},
		Rounds:  1,
		Tools:   runners.Tools{Python: "python3", Dir: dir},
		Timeout: time.Minute,
		Log:     t.Logf,
	}
	rep, err := Measure(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := rep.Document().Wrong; len(rep.Rows) != 3 ||
		rep.Rows[2].runnerNamed(Ours).Hot.Median != 1 ||
		!strings.Contains(wrong, "b: ") ||
		!strings.Contains(wrong, "killed") {
		t.Errorf("%d rows: %s", len(rep.Rows), wrong)
	}
	r.Tools.Python = "/nowhere/python"
	if _, err := Measure(t.Context(), r); !errors.Is(err, robocache.ErrUnsupported) {
		t.Error(err)
	}
}
