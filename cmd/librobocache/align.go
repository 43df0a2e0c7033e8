package main

/*
#include <stdint.h>
*/
import "C"

import (
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader"
)

type alignArgs struct {
	Episode   int             `json:"episode"`
	Align     json.RawMessage `json:"align"` // align.Config
	ImageSize []int           `json:"image_size"`
}

// robocache_align brings streams of an episode onto one timeline: "times", the streams, and `<key>_is_pad` of each.
//
//export robocache_align
func robocache_align(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a alignArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	cfg, err := align.ParseConfig(a.Align)
	if err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return holding(handle, "align", func(s *shared) (result, error) {
			e, err := s.at(a.Episode)
			if err != nil {
				return result{}, err
			}
			got, err := align.Episode(ctx, s.Dataset, e, cfg)
			if err != nil {
				return result{}, err
			}
			ans := &answer{}
			if err := s.aligned(ctx, ans, e, got, a.ImageSize); err != nil {
				ans.drop()
				return result{}, robocache.At(err, robocache.Where{"dataset": s.Info().URI, "episode": e})
			}
			return ans.result(), nil
		})
	})
}

// aligned copies what was aligned into memory for the client, and decodes the frames that it names.
func (s *shared) aligned(ctx context, ans *answer, episode int, got *align.Aligned, imageSize []int) error {
	rows := len(got.Times)
	t, err := ans.add("times", robocache.Int64, []int{rows})
	if err != nil {
		return err
	}
	copy(int64s(t), got.Times)
	for i := range got.Streams {
		st := &got.Streams[i]
		switch {
		case st.Text != nil || st.Kind == robocache.KindText || st.Kind == robocache.KindEvent:
			ans.text(st.Key, st.DType, st.Text)
		case ragged(st.Shape):
			if err := s.alignedRagged(ctx, ans, episode, st); err != nil {
				return robocache.At(err, robocache.Where{"stream": st.Key})
			}
		case st.Kind == robocache.KindNumeric:
			shape := []int{rows}
			if f := s.Info().Feature(st.Key); f == nil || !f.Scalar() {
				shape = append(shape, st.Shape...)
			}
			b, err := ans.add(st.Key, st.DType, shape)
			if err != nil {
				return err
			}
			copy(b, st.Data)
		default:
			if err := s.frames(ctx, ans, episode, st, imageSize); err != nil {
				return robocache.At(err, robocache.Where{"stream": st.Key})
			}
		}
	}
	for i := range got.Streams {
		m, err := ans.add(got.Streams[i].Key+"_is_pad", robocache.Bool, []int{rows})
		if err != nil {
			return err
		}
		for k, valid := range got.Streams[i].Valid {
			m[k] = 1 - valid
		}
	}
	return nil
}

func ragged(shape []int) bool { return len(shape) > 0 && shape[0] < 0 }

// alignedRagged reads rows of varying length: their entries one after the other, and `<key>_lengths`. A row of none has no entries.
func (s *shared) alignedRagged(ctx context, ans *answer, episode int, st *align.Stream) error {
	f := s.Info().Feature(st.Key)
	ds, ok := s.Dataset.(robocache.RaggedDataset)
	if !ok {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "align", Msg: "this format gives no rows of varying length"}
	}
	var rows []robocache.Row
	for _, r := range st.Rows {
		if r >= 0 {
			rows = append(rows, robocache.Row{Episode: episode, Index: int(r)})
		}
	}
	data, counts, err := ds.GatherRagged(ctx, st.Key, rows)
	if err != nil {
		return err
	}
	size := f.Elements() * f.DType.Size()
	if len(counts) != len(rows) || size == 0 || len(data)%size != 0 {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "align", Msg: "the dataset gave another number of entries than it says"}
	}
	b, err := ans.add(st.Key, f.DType, append([]int{len(data) / size}, f.Shape[1:]...))
	if err != nil {
		return err
	}
	copy(b, data)
	if b, err = ans.add(st.Key+"_lengths", robocache.Int64, []int{len(st.Rows)}); err != nil {
		return err
	}
	k := 0
	for i, r := range st.Rows {
		if r >= 0 {
			int64s(b)[i] = int64(counts[k])
			k++
		}
	}
	return nil
}

// frames decodes the rows of a frame stream; a row without one (policy mask) is black.
func (s *shared) frames(ctx context, ans *answer, episode int, st *align.Stream, imageSize []int) error {
	cfg := loader.Config{Keys: []string{st.Key}, Episodes: []int{episode}, ImageSize: imageSize}
	if f := s.Info().Feature(st.Key); f != nil {
		cfg.DepthUnit = s.depthOf(f)
		if f.Clock != "" {
			cfg.Anchor = st.Key // its rows are counted on its own clock
		}
	}
	m, err := loader.NewMap(ctx, s.Dataset, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	rows := make([]int64, len(st.Rows))
	for i, r := range st.Rows {
		rows[i] = int64(max(r, 0))
	}
	b, err := m.Items(ctx, rows)
	if err != nil {
		return err
	}
	t := b.Tensor(st.Key)
	for i, r := range st.Rows {
		if size := len(t.Data) / len(st.Rows); r < 0 {
			clear(t.Data[i*size : (i+1)*size])
		}
	}
	ans.batch(b)
	return nil
}
