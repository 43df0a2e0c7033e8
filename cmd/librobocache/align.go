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

// aligned copies what was aligned into memory for the client, and decodes the pictures that it names.
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
			if err := s.pictures(ctx, ans, episode, st, imageSize); err != nil {
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

// pictures decodes the rows of a picture stream; a row without one (policy mask) is black.
func (s *shared) pictures(ctx context, ans *answer, episode int, st *align.Stream, imageSize []int) error {
	m, err := loader.NewMap(ctx, s.Dataset, loader.Config{Keys: []string{st.Key}, Episodes: []int{episode}, ImageSize: imageSize})
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
