package lerobot

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// wideRow stores other types than those that the format declares.
type wideRow struct {
	State []float64 `parquet:"observation.state,list"`
	Time  float64   `parquet:"timestamp"`
	Frame int32     `parquet:"frame_index"`
	Ep    int32     `parquet:"episode_index"`
	Index int32     `parquet:"index"`
	Task  int32     `parquet:"task_index"`
	Extra float64   `parquet:"extra"`
	Say   string    `parquet:"note"`
}

// TestStoredTypes checks that stored values of other types are converted, and that undeclared
// columns are read (lerobot.L3).
func TestStoredTypes(t *testing.T) {
	s := newSynth(3, 4)
	dir := s.write(t)
	var rows []wideRow
	for _, r := range s.rows {
		rows = append(
			rows,
			wideRow{
				State: []float64{float64(r.State[0]), float64(r.State[1]), 0.1},
				Time:  float64(r.Frame) / 10,
				Frame: int32(r.Frame),
				Ep:    int32(r.Ep),
				Index: int32(r.Index),
				Task:  int32(r.Task),
				Extra: 2.5,
				Say:   "x",
			},
		)
	}
	writeRows(t, filepath.Join(dir, "data/chunk-000/file-000.parquet"), rows, 4)
	d := mustOpen(t, dir)
	wantStates(t, d, 1)
	if got := states(t, d, 1)[2]; got != float32(0.1) {
		t.Error(got)
	}
	if codes(d) != "undeclared-column undeclared-column" {
		t.Error(codes(d))
	}
	if f := d.Info().Feature("extra"); f == nil || f.DType != robocache.Float64 {
		t.Error(f)
	}
	times, err := d.Times(context.Background(), 1, "")
	if err != nil || times[1] != 100000000 {
		t.Error(times, err) // from the stored float64, not from the declared float32
	}
	edit(
		t,
		filepath.Join(dir, infoPath),
		`"observation.state": {"dtype": "float32"`,
		`"observation.state": {"dtype": "int64"`,
	)
	d = mustOpen(t, dir)
	err = d.Gather(context.Background(), "observation.state", rowsOf(d, 0), make([]byte, 3*24))
	wantError(t, err, robocache.ErrMalformed, "int64", "observation.state", "row_group 0", "row 0")
}

// TestShapes checks that a list of another length than declared is malformed, with its row.
func TestShapes(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		state []float32
	}{{"short", []float32{1, 2}}, {"long", []float32{1, 2, 3, 4}}, {"empty", nil}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSynth(3, 4)
			s.rows[5].State = c.state
			d := mustOpen(t, s.write(t))
			err := d.Gather(ctx, "observation.state", rowsOf(d, 1), make([]byte, 4*12))
			wantError(t, err, robocache.ErrMalformed, "observation.state", "row_group 0", "row 5")
		})
	}
	type nullRow struct {
		State []*float32 `parquet:"observation.state,list"`
		dataNoState
	}
	s := newSynth(3)
	dir := s.write(t)
	one := float32(1)
	var rows []nullRow
	for _, r := range s.rows {
		rows = append(
			rows,
			nullRow{
				State:       []*float32{&one, &one, &one},
				dataNoState: dataNoState{r.Time, r.Frame, r.Ep, r.Index, r.Task},
			},
		)
	}
	rows[1].State[2] = nil
	writeRows(t, filepath.Join(dir, "data/chunk-000/file-000.parquet"), rows, 10)
	d := mustOpen(t, dir)
	err := d.Gather(ctx, "observation.state", rowsOf(d, 0), make([]byte, 36))
	wantError(t, err, robocache.ErrMalformed, "observation.state", "null", "row 1")
}

type dataNoState struct {
	Time  float32 `parquet:"timestamp"`
	Frame int64   `parquet:"frame_index"`
	Ep    int64   `parquet:"episode_index"`
	Index int64   `parquet:"index"`
	Task  int64   `parquet:"task_index"`
}

// TestImagePaths checks that images with null bytes are read by their path, which must be below the
// root.
func TestImagePaths(t *testing.T) {
	ctx := context.Background()
	type image struct {
		Bytes []byte  `parquet:"bytes,optional"`
		Path  *string `parquet:"path,optional"`
	}
	type imageRow struct {
		Image image `parquet:"cam"`
		dataNoState
	}
	s := newSynth(4)
	s.features = `"cam": {"dtype": "image", "shape": [4, 6, 3], "names": ["height", "width", "channel"]},`
	dir := s.write(t)
	in, out := "frames/a.png", "../secret.png"
	writeText(t, filepath.Join(dir, in), "PICTURE")
	writeText(t, filepath.Join(filepath.Dir(dir), "secret.png"), "SECRET")
	var rows []imageRow
	for _, r := range s.rows {
		rows = append(
			rows,
			imageRow{dataNoState: dataNoState{r.Time, r.Frame, r.Ep, r.Index, r.Task}},
		)
	}
	rows[0].Image = image{Bytes: []byte("inline"), Path: &in}
	rows[1].Image = image{Path: &in}
	rows[2].Image = image{Path: &out}
	writeRows(t, filepath.Join(dir, "data/chunk-000/file-000.parquet"), rows, 10)
	d := mustOpen(t, dir)
	refs := make([]robocache.FrameRef, 2)
	if err := d.Frames(ctx, "cam", rowsOf(d, 0)[:2], refs); err != nil ||
		string(refs[0].Encoded) != "inline" || string(refs[1].Encoded) != "PICTURE" {
		t.Fatal(refs, err)
	}
	err := d.Frames(ctx, "cam", rowsOf(d, 0)[2:3], refs[:1])
	wantError(t, err, robocache.ErrMalformed, "row 2", "cam")
	err = d.Frames(ctx, "cam", rowsOf(d, 0)[3:4], refs[:1])
	wantError(t, err, robocache.ErrMalformed, "row 3", "null")
	if f := d.Info().Feature("cam"); f.Height != 4 || f.Width != 6 || f.Channels != 3 {
		t.Error(f)
	}
}
