package zarr

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// viewOfKind returns the view of a stream. It returns an error if the stream does not exist or has
// another kind. The view is nil for a camera.
func (d *Dataset) viewOfKind(key string, kind robocache.Kind) (*view, error) {
	v, ok := d.views[key]
	switch {
	case !ok && d.cameras.cams[key] != nil:
		if err := op.Kind(key, robocache.KindVideo, kind); err != nil {
			return nil, err
		}
	case !ok:
		return nil, op.NoStream(key)
	case kind == robocache.KindText:
		if err := op.Kind(key, v.f.Kind, kind, robocache.KindEvent); err != nil {
			return nil, err
		}
	default:
		if err := op.Kind(key, v.f.Kind, kind); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Len returns the number of rows of an episode. It is 0 if the episode does not exist.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= len(d.ends)-1 {
		return 0
	}
	return int(d.ends[episode+1] - d.ends[episode])
}

// rowCount returns the number of rows of a stream in an episode.
func (d *Dataset) rowCount(v *view, episode int) int {
	if v != nil && v.f.Clock != "" {
		return v.a.Shape[0]
	}
	return d.Len(episode)
}

// Rows returns the number of rows of a stream in an episode.
func (d *Dataset) Rows(_ context.Context, episode int, key string) (int, error) {
	if err := op.Episode(len(d.ends)-1, episode); err != nil {
		return 0, err
	}
	v := d.views[key]
	if v == nil && d.cameras.cams[key] == nil {
		return 0, op.NoStream(key)
	}
	return d.rowCount(v, episode), nil
}

// arrayRows converts rows of episodes to rows of the array.
func (d *Dataset) arrayRows(v *view, rows []robocache.Row) ([]int, error) {
	out := make([]int, len(rows))
	for i, r := range rows {
		if err := op.Episode(len(d.ends)-1, r.Episode); err != nil {
			return nil, err
		}
		if err := op.Row(d.About, d.rowCount(v, r.Episode), r); err != nil {
			return nil, err
		}
		out[i] = int(d.ends[r.Episode]) + r.Index
	}
	return out, nil
}

// Episode returns the metadata of one episode.
func (d *Dataset) Episode(ctx context.Context, episode int) (out robocache.Episode, err error) {
	defer crash.Recover("zarr episode", &err)
	if err := op.Episode(len(d.ends)-1, episode); err != nil {
		return out, err
	}
	out = robocache.Episode{Position: episode, Index: int64(episode), Length: d.Len(episode)}
	switch {
	case d.views["task"] == nil && d.tasks != nil && d.tasks[episode] != "":
		out.Tasks = []string{d.tasks[episode]}
	case d.taskKey != "" && out.Length > 0:
		// Texts are read for a limited number of rows: an episode has few tasks, and each one
		// covers many rows.
		step := 1 + out.Length/4096
		var rows []robocache.Row
		for i := 0; i < out.Length; i += step {
			rows = append(rows, robocache.Row{Episode: episode, Index: i})
		}
		text, err := d.Text(ctx, d.taskKey, rows)
		if err != nil {
			return out, err
		}
		for _, x := range text {
			if x != "" && !slices.Contains(out.Tasks, x) && len(out.Tasks) < 1000 {
				out.Tasks = append(out.Tasks, x)
			}
		}
	}
	return out, ctx.Err()
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover("zarr gather", &err)
	v, err := d.viewOfKind(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	if err := op.Room(key, "bytes", len(rows)*v.f.RowBytes(), len(dst)); err != nil {
		return err
	}
	at, err := d.arrayRows(v, rows)
	if err != nil {
		return err
	}
	return robocache.At(d.gatherRows(ctx, v.a, at, dst), robocache.Where{"stream": key})
}

// Text returns the rows of a text stream, or of "task".
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer crash.Recover("zarr text", &err)
	out = make([]string, len(rows))
	if key == "task" && d.views[key] == nil {
		if _, err := d.arrayRows(nil, rows); err != nil {
			return out, err
		}
		if d.taskKey == "" {
			for i, r := range rows {
				if d.tasks != nil {
					out[i] = d.tasks[r.Episode]
				}
			}
			return out, ctx.Err()
		}
		key = d.taskKey
	}
	v, err := d.viewOfKind(key, robocache.KindText)
	if err != nil {
		return out, err
	}
	at, err := d.arrayRows(v, rows)
	if err != nil {
		return out, err
	}
	return out, robocache.At(d.readTexts(ctx, v.a, at, out), robocache.Where{"stream": key})
}

// Frames returns the pixels of images. They alias decoded chunks if a chunk contains whole images.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer crash.Recover("zarr frames", &err)
	if c := d.cameras.cams[key]; c != nil {
		if err := op.Room(key, "frames", len(rows), len(out)); err != nil {
			return err
		}
		if err := d.videoFrames(ctx, c, rows, out); err != nil {
			return err
		}
		return ctx.Err()
	}
	v, err := d.viewOfKind(key, robocache.KindImage)
	if err != nil {
		return err
	}
	if err := op.Room(key, "frames", len(rows), len(out)); err != nil {
		return err
	}
	at, err := d.arrayRows(v, rows)
	if err != nil {
		return err
	}
	return robocache.At(d.readImages(ctx, v, at, out), robocache.Where{"stream": key})
}

func (d *Dataset) readImages(
	ctx context.Context,
	v *view,
	at []int,
	out []robocache.FrameRef,
) error {
	a, f := v.a, v.f
	return d.forEachChunkRow(ctx, a, at, func(ctx context.Context, c0 int, positions []int) error {
		pix := make([][]byte, len(positions))
		if err := d.forEachChunk(ctx, a, c0, func(c *chunk, index []int) {
			for i, p := range positions {
				r := at[p] - c0*a.chunks[0]
				if c.data != nil && a.isContiguous() {
					pix[i] = c.data[r*a.rowBytes : (r+1)*a.rowBytes : (r+1)*a.rowBytes]
					continue
				}
				if pix[i] == nil {
					pix[i] = make([]byte, a.rowBytes)
				}
				a.copyRow(pix[i], c, r, index)
			}
		}); err != nil {
			return err
		}
		for i, p := range positions {
			if v.round {
				var err error
				if pix[i], err = roundPixels(pix[i], a.Type.DType(), at[p]); err != nil {
					return err
				}
			}
			out[p] = robocache.FrameRef{
				Raw: &robocache.Raw{
					Pix:      pix[i],
					Height:   f.Height,
					Width:    f.Width,
					Channels: f.Channels,
					DType:    f.DType,
				},
			}
		}
		return nil
	})
}

// roundPixels converts the pixels of a row from floats to uint8.
func roundPixels(b []byte, t robocache.DType, row int) ([]byte, error) {
	out := make([]byte, len(b)/t.Size())
	for i, x := range robocache.Float64s(nil, t, b) {
		if !(x > -0.5 && x < 255.5) {
			return nil, robocache.At(
				malformed("a pixel of %v in images from 0 to 255", x),
				robocache.Where{"row": row},
			)
		}
		out[i] = uint8(math.RoundToEven(math.Abs(x)))
	}
	return out, nil
}

// Valid sets valid to 1 for rows that have a value. Without a mask in the store, all rows have one.
func (d *Dataset) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	defer crash.Recover("zarr valid", &err)
	v, c := d.views[key], d.cameras.cams[key]
	if v == nil && c == nil {
		return op.NoStream(key)
	}
	if err := op.Room(key, "bytes", len(rows), len(valid)); err != nil {
		return err
	}
	at, err := d.arrayRows(v, rows)
	if err != nil {
		return err
	}
	switch {
	case c != nil || v.valid == nil:
		reader.AllValid(valid)
	default:
		return robocache.At(d.gatherRows(ctx, v.valid, at, valid), robocache.Where{"stream": key})
	}
	return ctx.Err()
}
