package write

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/stats"
)

// preparedColumn is a feature of an episode as it will stand in the data file, and what was counted of it.
type preparedColumn struct {
	chunks []*pqw.Chunk
	raw    []byte // rows of a numeric feature, which those of the dataset are counted with
	stats  *robocache.FeatureStats
	lost   int64 // values that are not finite
	look   *stats.Pixels
	note   string // why there are no statistics of frames
}

// columns makes the columns of the bookkeeping features, or of all others, side by side: each has pages, compression and statistics of its own. The caller's goroutine is one of
// those at work: of an episode of few rows a goroutine a column would cost as much as the column.
func (w *Writer) columns(ctx context.Context, ep *EpisodeData, out []preparedColumn, bookkeeping bool) error {
	var g errgroup.Group
	var next atomic.Int64
	work := func() (err error) {
		defer guard.Malformed("write lerobot", &err)
		for {
			i := int(next.Add(1)) - 1
			if i >= len(w.feats) {
				return nil
			}
			if f := &w.feats[i]; f.Kind != robocache.KindVideo && f.Default == bookkeeping {
				if err := w.column(ctx, f, ep, &out[i]); err != nil {
					return robocache.At(err, robocache.Where{"stream": f.Key})
				}
			}
		}
	}
	if !bookkeeping {
		for range min(w.cfg.Encoders, len(w.feats)) - 1 {
			g.Go(work)
		}
	}
	err := work()
	if others := g.Wait(); err == nil {
		err = others
	}
	return err
}

// column makes one feature's column, and counts its rows where they are numbers or frames. The rows of a bookkeeping column lie in out.
func (w *Writer) column(ctx context.Context, f *writtenFeature, ep *EpisodeData, out *preparedColumn) (err error) {
	switch f.Kind {
	case robocache.KindText:
		v := valuesOf(f.leaves)
		for _, s := range ep.Text[f.Key] {
			v[0].Text(s, 0, 1)
		}
		out.chunks, err = chunksOf(v)
		return err
	case robocache.KindEvent:
		v := valuesOf(f.leaves)
		if err := languageLeaves(f.Key, v, ep.Text[f.Key]); err != nil {
			return err
		}
		out.chunks, err = chunksOf(v)
		return err
	case robocache.KindImage:
		if ep.FrameStats[f.Key] == nil {
			if err := w.lookAtStills(f, ep, out); err != nil {
				return err
			}
		}
		return stillColumn(f.leaves, ep.Images[f.Key], out)
	}
	if !f.Default {
		out.raw = ep.Columns[f.Key]
	}
	c, err := f.leaves[0].Rows(stored32(f.DType, out.raw), f.pattern)
	if err != nil {
		return err
	}
	out.chunks = []*pqw.Chunk{c}
	out.stats, out.lost, err = stats.NumericBytes(ctx, f.DType, f.Shape, out.raw, w.cfg.StatsBudget)
	return err
}

// bookkeeping makes the rows of the five default columns of the episode whose turn it is.
func (w *Writer) bookkeeping(ep *EpisodeData, out []preparedColumn) {
	le := binary.LittleEndian
	fps := w.cfg.FPS.Float()
	number, last := int64(0), ""
	for i := range w.feats {
		f := &w.feats[i]
		if !f.Default {
			continue
		}
		raw := make([]byte, 0, ep.Length*f.DType.Size())
		for k := range ep.Length {
			switch f.Key {
			case "timestamp":
				raw = le.AppendUint32(raw, math.Float32bits(float32(float64(k)/fps)))
			case "frame_index":
				raw = le.AppendUint64(raw, uint64(k))
			case "episode_index":
				raw = le.AppendUint64(raw, uint64(w.written))
			case "index":
				raw = le.AppendUint64(raw, uint64(w.rows+int64(k)))
			case "task_index":
				if text := ep.Tasks[min(k, len(ep.Tasks)-1)]; k == 0 || text != last {
					number, last = w.task(text), text
				}
				raw = le.AppendUint64(raw, uint64(number))
			}
		}
		out[i] = preparedColumn{raw: raw}
	}
}

// taskTexts lists an episode's tasks: those of its rows in their order, and what else is listed.
func taskTexts(ep *EpisodeData) (out []string) {
	listed := map[string]bool{}
	for _, texts := range [][]string{ep.Tasks, ep.Listed} {
		for _, t := range texts {
			if !listed[t] {
				listed[t] = true
				out = append(out, t)
			}
		}
	}
	return out
}
