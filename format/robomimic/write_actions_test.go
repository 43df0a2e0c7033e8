package robomimic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/robomimic"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

// wide is a dataset whose actions exceed [−1, 1] in channel 1 and are constant in channel 2.
type wide struct {
	robocache.Dataset
	info robocache.Info
}

func newWide(t *testing.T) *wide {
	t.Helper()
	src, err := synth.New(synth.Options{Episodes: 3, Seconds: 1, Cameras: -1})
	if err != nil {
		t.Fatal(err)
	}
	w := &wide{Dataset: src, info: *src.Info()}
	w.info.Features = slices.Clone(w.info.Features)
	for i := range w.info.Features {
		if f := &w.info.Features[i]; f.Key == "action" {
			f.Shape, f.Names = []int{3}, []byte(`["x","y","hold"]`)
		}
	}
	return w
}

func (w *wide) Info() *robocache.Info { return &w.info }

func (w *wide) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if key != "action" {
		return w.Dataset.Gather(ctx, key, rows, dst)
	}
	for i, r := range rows {
		x := float64(r.Episode*100+r.Index) / 300
		for c, v := range []float64{x / 2, 7*x - 2.5, 42} {
			binary.LittleEndian.PutUint32(dst[12*i+4*c:], math.Float32bits(float32(v)))
		}
	}
	return nil
}

func all(t *testing.T, ds robocache.Dataset, key string) (out []float64) {
	t.Helper()
	f := ds.Info().Feature(key)
	for e := range ds.Info().Episodes {
		b := make([]byte, ds.Len(e)*f.RowBytes())
		if err := ds.Gather(t.Context(), key, rows(ds, e), b); err != nil {
			t.Fatal(err)
		}
		out = append(out, robocache.Float64s(nil, f.DType, b)...)
	}
	return out
}

func finding(r *robocache.WriteReport, code string) *robocache.Finding {
	for i := range r.Findings {
		if r.Findings[i].Code == code {
			return &r.Findings[i]
		}
	}
	return nil
}

// checker runs robomimic's get_dataset_info on a file. ok is false if it rejects the actions.
func checker(t *testing.T, file string) (ok, ran bool) {
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		return false, false
	}
	const script = `
import sys, runpy, h5py
try:
    import robomimic.scripts
except Exception:
    sys.exit(9)
sys.argv = ["get_dataset_info", "--dataset", sys.argv[1]]
try:
    runpy.run_module("robomimic.scripts.get_dataset_info", run_name="__main__")
except Exception as e:
    if "[-1., 1.]" in str(e):
        sys.exit(8)
    raise
`
	out, err := exec.Command(py, "-c", script, file).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, true
	case errors.As(err, &exit) && exit.ExitCode() == 8:
		return false, true
	case errors.As(err, &exit) && exit.ExitCode() == 9:
		return false, false
	}
	t.Fatalf("robomimic's checker: %v\n%s", err, out)
	return
}

// TestActionsBeyondOne checks that actions which robomimic's checker rejects are counted. Scaled
// actions pass it, and the attributes restore the values.
func TestActionsBeyondOne(t *testing.T) {
	src := newWide(t)
	want := all(t, src, "action")
	var beyond int64
	worst := 0.0
	for _, v := range want {
		if math.Abs(v) > 1 {
			beyond++
			worst = max(worst, math.Abs(v))
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "plain.hdf5")
	r, err := robomimic.Write(t.Context(), src, file, robocache.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f := finding(r, "actions-beyond-one"); f == nil || f.Count != beyond ||
		f.Where["channel"] != 2 || worst != 42 {
		t.Errorf("%d beyond, the largest %g: %+v", beyond, worst, f)
	}
	if ok, ran := checker(t, file); ran && ok {
		t.Error("robomimic's checker takes them: the test tests nothing")
	}

	file = filepath.Join(dir, "scaled.hdf5")
	if r, err = robomimic.Write(t.Context(), src, file,
		robocache.WriteOptions{Options: map[string]string{"scale_actions": "true"}}); err != nil {
		t.Fatal(err)
	}
	f := finding(r, "actions-scaled")
	if f == nil || finding(r, "actions-beyond-one") != nil {
		t.Fatalf("%+v", r.Findings)
	}
	scale, offset := f.Where["scale"].([]float64), f.Where["offset"].([]float64)
	out, err := robocache.Open(t.Context(), file, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	got := all(t, out, "action")
	least, most := make([]float64, 3), make([]float64, 3)
	for i, v := range got {
		c := i % 3
		least[c], most[c] = min(least[c], v), max(most[c], v)
		if back := v*scale[c] + offset[c]; math.Abs(back-want[i]) > 1e-6*max(1, math.Abs(want[i])) {
			t.Fatalf("value %d: %g comes back as %g", i, want[i], back)
		}
	}
	if !slices.Equal(least, []float64{-1, -1, 0}) || !slices.Equal(most, []float64{1, 1, 0}) ||
		scale[2] != 1 ||
		offset[2] != 42 {
		t.Errorf("from %v to %v; scale %v, offset %v", least, most, scale, offset)
	}
	if ok, ran := checker(t, file); ran && !ok {
		t.Error("robomimic's checker refuses the scaled actions")
	} else if !ran {
		t.Log("robomimic is not there")
	}
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err == nil {
		const script = `
import sys, h5py, numpy as np
a, b = h5py.File(sys.argv[1])["data"], h5py.File(sys.argv[2])["data"]
for d in a:
    assert np.allclose(b[d]["actions"][...] * b.attrs["actions_scale"] + b.attrs["actions_offset"], a[d]["actions"][...], rtol=1e-6, atol=1e-6), d
`
		if out, err := exec.Command(py, "-c", script, filepath.Join(dir, "plain.hdf5"), file).
			CombinedOutput(); err != nil {
			t.Errorf("h5py: %v\n%s", err, out)
		}
	}

	// Actions inside the range cause no finding.
	tame, err := synth.New(synth.Options{Episodes: 1, Seconds: 0.5, Cameras: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err = robomimic.Write(
		t.Context(),
		tame,
		filepath.Join(t.TempDir(), "tame.hdf5"),
		robocache.WriteOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	quiet := !slices.ContainsFunc(
		all(t, tame, "action"),
		func(v float64) bool { return math.Abs(v) > 1 },
	)
	if quiet != (finding(r, "actions-beyond-one") == nil) {
		t.Errorf("%+v", r.Findings)
	}
	for _, bad := range []robocache.WriteOptions{
		{Options: map[string]string{"scale_actions": "yes"}},
		{Keys: []string{"observation.state"}, Options: map[string]string{"scale_actions": "true"}},
	} {
		if _, err := robomimic.Write(t.Context(), tame, filepath.Join(t.TempDir(), "x.hdf5"),
			bad); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
