package zarr_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/format/zarr"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// rowsOf returns all rows of an episode.
func rowsOf(ds robocache.Dataset, e int) []robocache.Row {
	rows := make([]robocache.Row, ds.Len(e))
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i}
	}
	return rows
}

// stream returns a stream of an episode as bytes, images as pixels.
func stream(t *testing.T, ds robocache.Dataset, f *robocache.Feature, e int) []byte {
	t.Helper()
	rows := rowsOf(ds, e)
	switch f.Kind {
	case robocache.KindText, robocache.KindEvent:
		s, err := ds.Text(t.Context(), f.Key, rows)
		if err != nil {
			t.Fatal(f.Key, err)
		}
		return []byte(strings.Join(s, "\x00"))
	case robocache.KindImage:
		refs := make([]robocache.FrameRef, len(rows))
		if err := ds.Frames(t.Context(), f.Key, rows, refs); err != nil {
			t.Fatal(f.Key, err)
		}
		var out []byte
		for i := range refs {
			info, err := video.ImageSize(&refs[i])
			if err != nil {
				t.Fatal(f.Key, err)
			}
			spec := video.Spec{Pixel: video.RGB8}
			if info.Channels == 1 && info.DType != robocache.Uint8 {
				spec.Pixel = video.DepthMM
			}
			n, err := video.StillBytes(info, &spec)
			if err != nil {
				t.Fatal(f.Key, err)
			}
			b := make([]byte, n)
			if err := video.DecodeImage(&refs[i], &spec, b); err != nil {
				t.Fatal(f.Key, err)
			}
			out = append(out, b...)
		}
		return out
	}
	b := make([]byte, len(rows)*f.RowBytes())
	if err := ds.Gather(t.Context(), f.Key, rows, b); err != nil {
		t.Fatal(f.Key, err)
	}
	return b
}

// same compares out with the source from which it was written.
func same(t *testing.T, src, out robocache.Dataset, eps []int, dropped []string) {
	t.Helper()
	if out.Info().Episodes != len(eps) {
		t.Fatal(out.Info().Episodes, "episodes")
	}
	for i := range src.Info().Features {
		f := &src.Info().Features[i]
		if f.Default || slices.Contains(dropped, f.Key) {
			continue
		}
		g := out.Info().Feature(f.Key)
		if g == nil {
			t.Errorf("%s is missing", f.Key)
			continue
		}
		if g.Kind != f.Kind || g.DType != f.DType && f.Kind != robocache.KindImage ||
			g.Interpolation != f.Interpolation ||
			g.Unit != f.Unit ||
			g.Masked != f.Masked {
			t.Errorf("%+v\n%+v", f, g)
		}
		for to, e := range eps {
			if !bytes.Equal(stream(t, src, f, e), stream(t, out, g, to)) {
				t.Errorf("%s of episode %d differs", f.Key, e)
			}
		}
	}
	for to, e := range eps {
		a, err := src.Times(t.Context(), e, "")
		b, err2 := out.Times(t.Context(), to, "")
		if err = errors.Join(err, err2); err != nil || !slices.Equal(a, b) {
			t.Error("timestamps of", e, "differ", err)
		}
		x, _ := src.Episode(t.Context(), e)
		y, _ := out.Episode(t.Context(), to)
		if !slices.Equal(x.Tasks, y.Tasks) {
			t.Errorf("tasks %q, written %q", x.Tasks, y.Tasks)
		}
	}
}

// referenceReader prints shape, dtype and sum of each array, as zarr-python reads them.
const referenceReader = `
import sys, json, warnings
warnings.simplefilter("ignore")
import numpy as np, zarr
g = zarr.open_group(sys.argv[1], mode="r")
out = {}
for part in ("data", "meta"):
    for name in sorted(g[part].array_keys()):
        a = np.asarray(g[part][name][...])
        out[part + "/" + name] = {"shape": list(a.shape), "dtype": str(a.dtype), "sum": float(a.astype(np.float64).sum()) if a.dtype.kind in "fiub" else "|".join(map(str, a.ravel()))}
print(json.dumps({"fps": g.attrs.get("fps"), "version": zarr.__version__, "arrays": out}))
`

type reference struct {
	FPS    float64
	Arrays map[string]struct {
		Shape []int
		DType string
		Sum   any
	}
}

func readByZarrPython(t *testing.T, dir string) *reference {
	t.Helper()
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with zarr: ", err)
	}
	cmd := exec.Command(py, "-c", referenceReader, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("zarr-python does not read it: %v\n%s", err, stderr.Bytes())
	}
	var j reference
	if err := json.Unmarshal(b, &j); err != nil {
		t.Fatal(err)
	}
	return &j
}

// TestRoundTrip writes data that was read from a store, and compares it with the result of our
// reader and of zarr-python.
func TestRoundTrip(t *testing.T) {
	src, err := robocache.Open(
		t.Context(),
		realdata.Path(t, "diffusion_policy_zarr/replay_buffer.zarr"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst := filepath.Join(t.TempDir(), "out.zarr")
	rep, err := zarr.Write(t.Context(), src, dst, robocache.WriteOptions{Episodes: []int{2, 0}})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Episodes != 2 || rep.Frames != 60 || rep.Bytes == 0 || len(rep.Dropped) != 0 {
		t.Errorf("%+v", rep)
	}
	out, err := robocache.Open(t.Context(), dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if out.Info().FPS != src.Info().FPS {
		t.Error(out.Info().FPS)
	}
	same(t, src, out, []int{2, 0}, nil)
	formattest.Run(t, formattest.Fixture{URI: dst, Format: "zarr"})
	j := readByZarrPython(t, dst)
	var total float64
	for _, e := range []int{0, 2} {
		for _, v := range robocache.Float64s(nil, robocache.Float64,
			stream(t, src, src.Info().Feature("observation.state"), e)) {
			total += v
		}
	}
	if a := j.Arrays["data/state"]; a.DType != "float64" || !slices.Equal(a.Shape, []int{60, 26}) ||
		fmt.Sprintf("%.6f", a.Sum) != fmt.Sprintf("%.6f", total) {
		t.Errorf("%+v, want %v", a, total)
	}
	if a := j.Arrays["data/img"]; a.DType != "uint8" ||
		!slices.Equal(a.Shape, []int{60, 96, 96, 3}) {
		t.Errorf("%+v", a)
	}
	if a := j.Arrays["meta/episode_ends"]; a.Sum != 27.0+60 {
		t.Errorf("%+v", a)
	}
	if _, err := zarr.Write(t.Context(), src, dst, robocache.WriteOptions{}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error("a full destination:", err)
	}
}

// TestSynth writes every kind of stream on one clock. Streams that a replay buffer cannot store are
// reported.
func TestSynth(t *testing.T) {
	view, err := synth.New(
		synth.Options{Episodes: 3, Seconds: 1, Depth: true, Tasks: []string{"push", "wait"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	dst := filepath.Join(t.TempDir(), "out.zarr")
	rep, err := zarr.Write(t.Context(), view, dst, robocache.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := robocache.Open(t.Context(), dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	t.Log(rep.Dropped, out.Info().Tasks)
	same(t, view, out, []int{0, 1, 2}, rep.Dropped)
	readByZarrPython(t, dst)
}

// torn is a dataset with an episode that cannot be read to its end.
type torn struct{ robocache.Dataset }

func (d torn) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if rows[0].Episode == 1 && key == "action" {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "torn"}
	}
	return d.Dataset.Gather(ctx, key, rows, dst)
}

// TestBadEpisode checks that a failing episode leaves no rows. If bad episodes are not skipped, no
// store remains.
func TestBadEpisode(t *testing.T) {
	src, err := robocache.Open(
		t.Context(),
		realdata.Path(t, "diffusion_policy_zarr/replay_buffer.zarr"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst := filepath.Join(t.TempDir(), "out.zarr")
	if _, err := zarr.Write(t.Context(), torn{src}, dst, robocache.WriteOptions{}); !errors.Is(err,
		robocache.ErrMalformed) {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dst, "*")); len(left) > 2 { // empty folders
		t.Error(left)
	}
	if ok, err := zarr.Detect(t.Context(), dst, robocache.OpenOptions{}); ok || err != nil {
		t.Error("half a store is there", err)
	}
	rep, err := zarr.Write(t.Context(), torn{src}, dst, robocache.WriteOptions{SkipBad: true})
	if err != nil || rep.Episodes != 2 || len(rep.Findings) != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	out, err := robocache.Open(t.Context(), dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	same(t, src, out, []int{0, 2}, nil)
}
