package ops

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/kernel/cuda"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestOpsRows reads the whole table: names are unique, rows that bars refer to are there, every bar reads.
func TestOpsRows(t *testing.T) {
	for _, device := range []string{"cpu", "cuda"} {
		seen := map[string]bool{}
		rows := Rows(device)
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
	if _, err := RowsNamed("cpu", []string{"nothing"}, false, false); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	some, err := RowsNamed("cuda", []string{"fuse3-4"}, false, false)
	if err != nil || len(some) != 4 {
		t.Errorf("%d rows: %v", len(some), err)
	}
	none, err := RowsNamed("cuda", nil, false, false)
	if err != nil || len(none) == 0 || len(none) >= len(Rows("cuda")) {
		t.Errorf("%d rows without sweeps: %v", len(none), err)
	}
}

// TestOpsFloors holds byte floors against those that were worked out by hand, in µs at 4,257 GB/s, an H200's measured copy.
func TestOpsFloors(t *testing.T) {
	sparse := voxels(1000, "mean", 8)
	sparse.Layout = "sparse"
	for _, c := range []struct {
		w    Work
		want float64
	}{
		{resample(256, 100, 50, 32, "bfloat16"), 0.65},
		{resample(256, 100, 50, 32, "float32"), 1.2},
		{resample(32, 500, 256, 256, "bfloat16"), 3.0},
		{resample(64, 4096, 1024, 128, "bfloat16"), 12.4},
		{resample(256, 500, 250, 7, "float32"), 1.6},
		{fuse3(256, "bfloat16"), 6.5},
		{voxels(500_000, "count", 0), 3.4},
		{voxels(500_000, "occupancy", 0), 1.9},
		{voxels(500_000, "mean", 8), 21},
	} {
		in, err := newInputs(&c.w)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(c.w.bytes(in)) / 4257e3; math.Abs(got-c.want) > 0.04*c.want+0.05 {
			t.Errorf("%s: floor %.2f µs, want %v", c.w.title(), got, c.want)
		}
	}
	// By hand: two samples and one target between them, then a hit, then before the data.
	w := resample(3, 2, 1, 1, "float32")
	in := &inputs{times: [][]int64{{0, 10, 0, 10, 0, 10}}, targets: []int64{5, 10, -1}}
	if n := in.rowsRead(&w, 0); n != 2+1+1 {
		t.Errorf("%d rows are read, want 4", n)
	}
	if n := w.bytes(in); n != 4*4+6*8+3*8+3*4 {
		t.Errorf("%d bytes", n)
	}
	in, err := newInputs(&sparse)
	if err != nil {
		t.Fatal(err)
	}
	if n, m := sparse.bytes(in), int64(in.occupied(&sparse)); m < 900 || m > 990 || n != 1000*44+m*52 {
		t.Errorf("%d bytes, %d cells", n, m)
	}
}

// wrongBackend changes one bit of a result.
type wrongBackend struct{ kernel.Backend }

func (b wrongBackend) Run(op kernel.Op) error {
	err := b.Backend.Run(op)
	switch op := op.(type) {
	case *kernel.FuseOp:
		op.Out.Data[len(op.Out.Data)/2] ^= 1
	case *kernel.VoxelOp:
		if op.Out != nil {
			op.Out.Data[len(op.Out.Data)/2] ^= 1
		} else {
			op.Counts.Data[0] ^= 1
		}
	}
	return err
}

func smallVoxels(mode, layout string, f int) Work {
	w := voxels(500, mode, f)
	w.Layout, w.Grid, w.Size = layout, [3]int{8, 4, 16}, [3]float32{1.0 / 8, 1.0 / 4, 1.0 / 16}
	return w
}

// TestOpsCompare: what is compared before a runner is timed sees one wrong bit.
func TestOpsCompare(t *testing.T) {
	ref := kernel.Backend(kernel.Reference{})
	fused := resample(3, 20, 10, 5, "float32")
	ragged := fuse3(2, "bfloat16")
	ragged.Ragged = true
	norm := fuse3(2, "bfloat16")
	norm.Norm, norm.Out = true, "float16"
	slerp := resample(3, 20, 10, 4, "float32")
	slerp.Mode = "slerp"
	for _, w := range []Work{fused, ragged, norm, slerp, smallVoxels("count", "dense", 0), smallVoxels("mean", "dense", 2), smallVoxels("mean", "sparse", 2), smallVoxels("occupancy", "dense", 0)} {
		in, err := newInputs(&w)
		if err != nil {
			t.Fatal(err)
		}
		truth, err := newTruth(&w, in, ref)
		if err != nil {
			t.Fatal(err)
		}
		c, err := in.call(&w)
		if err != nil {
			t.Fatal(err)
		}
		for _, copy := range []kernel.Op{c, in.copied(&w)} {
			if err := ref.Run(copy); err != nil {
				t.Fatal(err)
			}
			if err := truth.compare(copy); err != nil {
				t.Errorf("%s: %v", w.title(), err)
			}
			if err := (wrongBackend{ref}).Run(copy); err != nil {
				t.Fatal(err)
			}
			if w.Mode != "slerp" && truth.compare(copy) == nil { // of slerp a bit is an ulp
				t.Errorf("%s: a wrong bit was not seen", w.title())
			}
		}
	}
}

// TestOpsQuick runs the harness as it is on small rows, with the copies as Python peers where there is an interpreter with NumPy.
func TestOpsQuick(t *testing.T) {
	tools := runners.Tools{Python: "python3"}
	if p, err := filepath.Abs("../../.venv/bin/python"); err == nil {
		if _, err := os.Stat(p); err == nil {
			tools.Python = p
		}
	}
	done, err := tools.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	row := newRow("cpu", "small", smallVoxels("count", "dense", 0), "≥ 0.0001 % of memcpy", "≥ 3× nobody", "≤ 1000000 µs", "≤ 100× row small")
	curve := row
	curve.Name, curve.Curve, curve.Bars = "point", "line", nil
	rep, err := Measure(context.Background(), Run{Rows: []Row{row, curve}, Device: "cpu", Threads: []int{1}, Rounds: 2, Seconds: 0.001, Cold: true, Runners: []string{"memcpy", "reference"}, Tools: tools,
		Timeout: time.Minute, Log: t.Logf, Command: "robocache bench ops"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := rep.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ops-cpu.json", "ops-cpu.csv", "ops-cpu.md", "ops-cpu.html", "ops-cpu-curve-hot.svg", "ops-cpu-curve-cold.png"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() < 100 {
			t.Errorf("%s: %v", name, err)
		}
	}
	back, err := Read(filepath.Join(dir, "ops-cpu.json"))
	if err != nil || len(back.Rows) != 2 {
		t.Fatalf("%v: %d rows", err, len(back.Rows))
	}
	var one, two strings.Builder
	rep.Markdown(&one)
	back.Markdown(&two)
	if one.String() != two.String() || !strings.Contains(one.String(), "| pass |") {
		t.Errorf("what was read back is another report:\n%s\n%s", one.String(), two.String())
	}
	if _, err := Read(filepath.Join(dir, "ops-cpu.csv")); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	r := back.Rows[0]
	if a := r.runner("reference"); a == nil || a.Failed != "" || len(a.Hot.Raw) != 2 || len(a.Cold.Raw) != 1 {
		t.Errorf("the reference: %+v", a)
	}
	if a := r.runner("memcpy go"); a == nil || a.Hot.Median <= 0 {
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

// TestFeederOnGPU sends trajectories through a device and back, and compares some with the reference.
func TestFeederOnGPU(t *testing.T) {
	if _, err := cuda.Open(0); err != nil {
		t.Skip(err)
	}
	var u undo
	defer u.all()
	w := resample(flowRing+2*flowPiece, 100, 50, 32, "bfloat16") // the last pieces take slots and host memory again
	if err := guard.Try(func() {
		f := newFeeder(0, &w, &u)
		guard.Check(f.pass(func([]uintptr, uintptr) error { return nil }, true))
		guard.Check(f.whole())
	}); err != nil {
		t.Fatal(err)
	}
}
