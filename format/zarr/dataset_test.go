package zarr

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func open(t testing.TB, uri string, opt robocache.OpenOptions) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

var ten = robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}}

// TestEpisodes checks zarr.A1, zarr.A4 and zarr.A5 on the folder and on the archive, which must
// give equal results.
func TestEpisodes(t *testing.T) {
	dir := realdata.Path(t, "diffusion_policy_zarr")
	bare := open(t, filepath.Join(dir, "replay_buffer.zarr"), robocache.OpenOptions{})
	if _, err := bare.Times(t.Context(), 0, "action"); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "OpenOptions.HZ") {
		t.Error("timestamps of a store without a clock:", err)
	}
	if !bare.Info().FPS.Zero() || bare.Len(2) != 27 {
		t.Errorf("%+v", bare.Info())
	}
	a, b := open(t, filepath.Join(dir, "replay_buffer.zarr"), ten),
		open(t, filepath.Join(dir, "replay_buffer.zarr.zip"), ten)
	for _, d := range []*Dataset{a, b} {
		if d.Info().Episodes != 3 || d.Len(0) != 33 || d.Len(1) != 40 || d.Len(2) != 27 ||
			d.Info().Frames != 100 {
			t.Fatalf("%+v", d.Info())
		}
		if f := d.Info().
			Feature("observation.img"); f == nil || f.Kind != robocache.KindImage ||
			f.Height != 96 ||
			f.Channels != 3 {
			t.Errorf("%+v", f)
		}
	}
	rows := []robocache.Row{
		{Episode: 2, Index: 26},
		{Episode: 0, Index: 0},
		{Episode: 1, Index: 39},
		{Episode: 1, Index: 0},
	}
	for _, key := range []string{"action", "observation.state"} {
		n := a.Info().Feature(key).RowBytes()
		x, y := make([]byte, n*len(rows)), make([]byte, n*len(rows))
		if err := errors.Join(a.Gather(t.Context(), key, rows, x),
			b.Gather(t.Context(), key, rows, y)); err != nil {
			t.Fatal(err)
		}
		whole := all(t, a.tree, a.views[key].a)
		for i, row := range []int{99, 0, 72, 33} {
			if !bytes.Equal(x[i*n:(i+1)*n], whole[row*n:(row+1)*n]) {
				t.Errorf("%s: row %d is not %d of the array", key, i, row)
			}
		}
		if !bytes.Equal(x, y) {
			t.Error(key, "differs")
		}
	}
	x, y := make([]robocache.FrameRef, 4), make([]robocache.FrameRef, 4)
	if err := errors.Join(a.Frames(t.Context(), "observation.img", rows, x),
		b.Frames(t.Context(), "observation.img", rows, y)); err != nil {
		t.Fatal(err)
	}
	whole := all(t, a.tree, a.views["observation.img"].a)
	for i, row := range []int{99, 0, 72, 33} {
		n := 96 * 96 * 3
		if !bytes.Equal(x[i].Raw.Pix, whole[row*n:(row+1)*n]) ||
			!bytes.Equal(y[i].Raw.Pix, x[i].Raw.Pix) {
			t.Errorf("image %d differs", i)
		}
	}
	ts, err := a.Times(t.Context(), 1, "action")
	if err != nil || len(ts) != 40 || ts[39] != 3_900_000_000 {
		t.Error(len(ts), err)
	}
	if err := a.Gather(t.Context(), "action", []robocache.Row{{Episode: 0, Index: 33}},
		make([]byte, 104)); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("a row of the next episode:", err)
	}
}
