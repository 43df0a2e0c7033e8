package lerobot

import (
	"context"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
)

// spillValues is how many values of a column are collected before they go to their page.
const spillValues = 1 << 14

// columns puts an episode's rows into the columns of the data file, features side by side: each has leaves, pages and compression of its own.
func (w *Writer) columns(ctx context.Context, ep *EpisodeData, books map[string][]byte, row *writtenEpisode) error {
	w.data.begin()
	counted := make([]numbers, len(w.feats))
	var g errgroup.Group
	g.SetLimit(w.cfg.Encoders)
	for i := range w.feats {
		f := &w.feats[i]
		if f.Kind == robocache.KindVideo {
			continue
		}
		g.Go(func() (err error) {
			counted[i], err = w.column(ctx, f, ep, rawOf(f, ep, books))
			for _, l := range w.leaves[f.first : f.first+f.count] {
				if err == nil {
					err = w.data.page(l)
				}
			}
			return robocache.At(err, robocache.Where{"stream": f.Key})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// What belongs to the dataset, in the order of its features.
	for i := range w.feats {
		f, n := &w.feats[i], &counted[i]
		if f.Kind == robocache.KindImage {
			if look := ep.Pictures[f.Key]; look != nil {
				if fs := look.Stats(); fs != nil {
					row.stats[f.Key] = fs
					w.countPictures(f.Key, look)
				}
			}
		}
		if n.stats == nil {
			continue
		}
		if n.lost > 0 {
			w.find(robocache.SeverityWarning, "non-finite-values", f.Key, w.written, "values that are NaN or infinite take no part in the statistics", n.lost)
		}
		row.stats[f.Key] = n.stats
		if err := w.collect.Add(f.Key, f.DType, f.Shape, rawOf(f, ep, books)); err != nil {
			return robocache.At(err, robocache.Where{"stream": f.Key})
		}
	}
	return nil
}

// rawOf is the rows of a numeric feature.
func rawOf(f *writtenFeature, ep *EpisodeData, books map[string][]byte) []byte {
	if f.Default {
		return books[f.Key]
	}
	return ep.Columns[f.Key]
}

// column puts one feature's rows into its leaves, and counts them where they are numbers.
func (w *Writer) column(ctx context.Context, f *writtenFeature, ep *EpisodeData, raw []byte) (numbers, error) {
	leaves := w.leaves[f.first : f.first+f.count]
	switch f.Kind {
	case robocache.KindText:
		for _, s := range ep.Text[f.Key] {
			leaves[0].scalar(parquet.ByteArrayValue([]byte(s)))
		}
		return numbers{}, nil
	case robocache.KindEvent:
		return numbers{}, languageLeaves(f.Key, leaves, ep.Text[f.Key])
	case robocache.KindImage:
		for k, b := range ep.Images[f.Key] {
			leaves[0].put(parquet.ByteArrayValue(b), 0, 2)
			leaves[1].put(parquet.ByteArrayValue([]byte(stillName(k, b))), 0, 2)
		}
		return numbers{}, nil
	}
	n, size := f.Elements(), f.DType.Size()
	for p := 0; p < len(raw); p += n * size {
		switch {
		case f.Scalar():
			leaves[0].scalar(f.read(raw[p:]))
		case len(f.Shape) == 1:
			leaves[0].list(raw[p:p+n*size], size, f.read)
		default:
			leaves[0].nested(n, func(i int) parquet.Value { return f.read(raw[p+i*size:]) }, f.Shape)
		}
		if len(leaves[0].values) >= spillValues {
			if err := w.data.spill(leaves[0]); err != nil {
				return numbers{}, err
			}
		}
	}
	if counted, ok := ep.prepared.numbers[f.Key]; ok {
		return counted, nil
	}
	return w.countNumbers(ctx, f, raw) // a bookkeeping column: it follows from the episode's turn
}
