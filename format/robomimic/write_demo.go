package robomimic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/raster"
)

// blockBytes is about how much of a stream is held at once.
const blockBytes = 32 << 20

// demo writes an episode. One that fails is taken out again: its room in the file stays unused.
func (w *writer) demo(ctx context.Context, data *h5.GroupWriter, e int) error {
	rows := w.src.Len(e)
	if rows == 0 {
		w.find(robocache.SeverityWarning, "episode-skipped", robocache.Where{"episode": e}, 0, "the episode has no rows: robomimic wants one at least", "")
		return nil
	}
	meta, err := w.src.Episode(ctx, e)
	if err != nil {
		return err
	}
	if err := w.timestamps(ctx, e, rows); err != nil {
		return err
	}
	name := fmt.Sprintf("demo_%d", w.report.Episodes)
	demo, err := data.Group(name)
	if err != nil {
		return err
	}
	before := w.acts
	if err := w.fill(ctx, demo, e, rows, meta); err != nil {
		w.acts = before
		demo.Drop()
		return err
	}
	if err := demo.Close(); err != nil {
		return err
	}
	w.demos[e] = name
	w.report.Episodes++
	w.report.Frames += int64(rows)
	return nil
}

func (w *writer) fill(ctx context.Context, demo *h5.GroupWriter, e, rows int, meta robocache.Episode) error {
	if err := demo.Attribute("num_samples", rows); err != nil {
		return err
	}
	if len(meta.Tasks) > 0 && meta.Tasks[0] != "" {
		b, err := json.Marshal(map[string]string{"lang": meta.Tasks[0]})
		if err != nil {
			return err
		}
		if err := demo.Attribute("ep_meta", string(b)); err != nil {
			return err
		}
		if len(meta.Tasks) > 1 {
			w.manyTask++
		}
	}
	groups := map[string]*h5.GroupWriter{"": demo}
	var order []*h5.GroupWriter
	group := func(name string) (*h5.GroupWriter, error) {
		if groups[name] == nil {
			g, err := demo.Group(name)
			if err != nil {
				return nil, err
			}
			groups[name] = g
			order = append(order, g)
		}
		return groups[name], nil
	}
	for i := range w.streams {
		s := &w.streams[i]
		g, err := group(s.group)
		if err != nil {
			return err
		}
		var next *h5.GroupWriter
		if w.next && s.group == "obs" {
			if next, err = group("next_obs"); err != nil {
				return err
			}
		}
		if err := w.stream(ctx, s, g, next, e, rows); err != nil {
			return robocache.At(err, robocache.Where{"stream": s.Key})
		}
	}
	for _, g := range order {
		if err := g.Close(); err != nil {
			return err
		}
	}
	return nil
}

// allRows names the rows of an episode.
func allRows(e, n int) []robocache.Row {
	rows := make([]robocache.Row, n)
	for k := range rows {
		rows[k] = robocache.Row{Episode: e, Index: k}
	}
	return rows
}

// stream writes one stream of an episode, and where next is given the same a step later.
func (w *writer) stream(ctx context.Context, s *outStream, g, next *h5.GroupWriter, e, rows int) error {
	all := allRows(e, rows)
	var spec h5.Spec
	var size int
	read := func(rows []robocache.Row, dst []byte) error { return w.src.Gather(ctx, s.Key, rows, dst) }
	switch s.Kind {
	case robocache.KindNumeric:
		spec = h5.Spec{DType: s.DType, Shape: []int64{int64(rows)}}
		if s.group != "" || s.name == "actions" || !s.Scalar() {
			for _, n := range s.Shape {
				spec.Shape = append(spec.Shape, int64(n))
			}
			if len(s.Shape) == 0 {
				spec.Shape = append(spec.Shape, 1)
			}
		}
		if size = s.RowBytes(); s.Feature == w.acts.f {
			spec.DType = w.acts.dtype()
		}
	case robocache.KindImage, robocache.KindVideo:
		pics, err := raster.Open(ctx, w.src, s.Feature, all, w.opt.Threads)
		if err != nil {
			return err
		}
		defer pics.Close()
		spec = h5.Spec{DType: pics.DType, Shape: []int64{int64(rows), int64(pics.Height), int64(pics.Width), int64(pics.Channels)}}
		if w.deflate > 0 {
			spec.ChunkRows, spec.Deflate = 1, w.deflate
		}
		size = pics.RowBytes()
		read = func(rows []robocache.Row, dst []byte) error { return pics.Read(ctx, rows, dst) }
	default:
		return w.words(ctx, s, g, next, all)
	}
	d, err := g.Dataset(s.name, spec)
	if err != nil {
		return err
	}
	var after *h5.DatasetWriter
	if next != nil {
		if after, err = next.Dataset(s.name, spec); err != nil {
			return err
		}
	}
	block := min(max(blockBytes/size, 1), rows)
	buf := make([]byte, block*size)
	for at := 0; at < rows; at += block {
		n := min(block, rows-at)
		part := buf[:n*size]
		if err := read(all[at:at+n], part); err != nil {
			return err
		}
		if s.Feature == w.acts.f {
			part = w.acts.take(part)
		}
		if err := d.Write(part); err != nil {
			return err
		}
		if after == nil {
			continue
		}
		later := part
		if at == 0 {
			later = part[size:]
		}
		if err := after.Write(later); err != nil {
			return err
		}
		if at+n == rows { // the last step has none after it
			if err := after.Write(part[(n-1)*size:]); err != nil {
				return err
			}
		}
	}
	if after != nil {
		err = after.Close()
	}
	return errors.Join(err, d.Close())
}

// words writes a stream of text; events are their JSON.
func (w *writer) words(ctx context.Context, s *outStream, g, next *h5.GroupWriter, all []robocache.Row) error {
	texts, err := w.src.Text(ctx, s.Key, all)
	if err != nil {
		return err
	}
	put := func(g *h5.GroupWriter, texts []string) error {
		d, err := g.Dataset(s.name, h5.Spec{DType: robocache.String, Shape: []int64{int64(len(texts))}})
		if err != nil {
			return err
		}
		return errors.Join(d.WriteTexts(texts), d.Close())
	}
	if err := put(g, texts); err != nil || next == nil {
		return err
	}
	return put(next, append(texts[1:len(texts):len(texts)], texts[len(texts)-1]))
}
