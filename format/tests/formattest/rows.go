package formattest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// read returns a stream's rows of any kind as bytes, one slice per row.
func (s *suite) read(
	ctx context.Context,
	f *robocache.Feature,
	rows []robocache.Row,
) ([][]byte, error) {
	out := make([][]byte, len(rows))
	switch {
	case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		texts, err := s.ds.Text(ctx, f.Key, rows)
		if err != nil {
			return nil, err
		}
		if len(texts) != len(rows) {
			return nil, fmt.Errorf("%d texts for %d rows", len(texts), len(rows))
		}
		for i, x := range texts {
			out[i] = []byte(x)
		}
	case f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo:
		refs := make([]robocache.FrameRef, len(rows))
		if err := s.ds.Frames(ctx, f.Key, rows, refs); err != nil {
			return nil, err
		}
		for i := range refs {
			b, err := frame(&refs[i], f)
			if err != nil {
				return nil, fmt.Errorf("row %v: %w", rows[i], err)
			}
			out[i] = b
		}
	case f.Ragged():
		gather := s.ds.Capabilities().GatherRagged
		if gather == nil {
			return nil, errors.New("a ragged feature, and no GatherRagged")
		}
		data, counts, err := gather(ctx, f.Key, rows)
		if err != nil {
			return nil, err
		}
		size, at := f.Elements()*f.DType.Size(), 0
		if len(counts) != len(rows) {
			return nil, fmt.Errorf("%d counts for %d rows", len(counts), len(rows))
		}
		for i, n := range counts {
			if n < 0 || at+n*size > len(data) {
				return nil, fmt.Errorf("counts %v and %d bytes", counts, len(data))
			}
			out[i] = data[at : at+n*size : at+n*size]
			at += n * size
		}
		if at != len(data) {
			return nil, fmt.Errorf("%d bytes for %d", len(data), at)
		}
	default:
		size := f.RowBytes()
		data := make([]byte, size*len(rows))
		if err := s.ds.Gather(ctx, f.Key, rows, data); err != nil {
			return nil, err
		}
		for i := range out {
			out[i] = data[i*size : (i+1)*size : (i+1)*size]
		}
	}
	return out, nil
}

// frame returns the content of a FrameRef as bytes. Its images must be complete.
func frame(r *robocache.FrameRef, f *robocache.Feature) ([]byte, error) {
	switch {
	case r.Missing:
		return []byte("missing"), nil
	case r.Path != "":
		return fmt.Appendf(nil, "%s %d", r.Path, r.Ordinal), nil
	}
	info, err := video.ImageSize(r)
	if err != nil {
		return nil, err
	}
	if f.Height > 0 && (info.Height != f.Height || info.Width != f.Width) {
		return nil, fmt.Errorf(
			"an image of %d×%d, declared %d×%d",
			info.Height,
			info.Width,
			f.Height,
			f.Width,
		)
	}
	if r.Raw == nil {
		return slices.Clone(r.Encoded), nil
	}
	x := r.Raw
	packed := x.Width * x.Channels * x.DType.Size()
	stride := x.Stride
	if stride == 0 {
		stride = packed
	}
	if packed <= 0 || stride < packed || len(x.Pix) < stride*(x.Height-1)+packed {
		return nil, fmt.Errorf(
			"pixels: %d bytes for %d×%d×%d %s, stride %d",
			len(x.Pix),
			x.Height,
			x.Width,
			x.Channels,
			x.DType,
			x.Stride,
		)
	}
	return slices.Clone(x.Pix), nil
}

// rows checks formattest.F3 and formattest.F4 for one stream of an episode.
func (s *suite) rows(e int, f *robocache.Feature) {
	rows := s.some(e, f.Key)
	if got, err := s.read(s.ctx, f, nil); err != nil || len(got) != 0 {
		s.Errorf("%s: no rows asked: %v", f.Key, err)
	}
	if len(rows) == 0 {
		return
	}
	all, err := s.read(s.ctx, f, rows)
	if err != nil {
		s.Errorf("episode %d, %s: %v", e, f.Key, err)
		return
	}
	kept := make([][]byte, len(all))
	for i := range all {
		kept[i] = slices.Clone(all[i])
	}
	for i, r := range rows {
		one, err := s.read(s.ctx, f, []robocache.Row{r})
		if err != nil || !bytes.Equal(one[0], kept[i]) {
			s.Errorf(
				"episode %d, %s: row %d alone differs from itself among others: %v",
				e,
				f.Key,
				r.Index,
				err,
			)
			return
		}
	}
	if f.Kind == robocache.KindNumeric || f.Kind == robocache.KindPointCloud {
		for i := range all {
			for k := range all[i] {
				all[i][k] ^= 0xff
			}
		}
		again, err := s.read(s.ctx, f, rows)
		for i := range kept {
			if err != nil || !bytes.Equal(again[i], kept[i]) {
				s.Errorf(
					"episode %d, %s: what the caller writes to is the dataset's own: %v",
					e,
					f.Key,
					err,
				)
				return
			}
		}
	}
	s.masks(e, f, rows)
}

func (s *suite) masks(e int, f *robocache.Feature, rows []robocache.Row) {
	if !f.Masked {
		return
	}
	mask := s.ds.Capabilities().Valid
	if mask == nil {
		s.Errorf("%s is masked, and the dataset has no Valid", f.Key)
		return
	}
	valid := make([]uint8, len(rows))
	if err := mask(s.ctx, f.Key, rows, valid); err != nil {
		s.Errorf("episode %d, valid of %s: %v", e, f.Key, err)
	}
	for i := range rows {
		one := []uint8{9}
		if err := mask(s.ctx, f.Key, rows[i:i+1], one); err != nil || one[0] != valid[i] ||
			one[0] > 1 {
			s.Errorf(
				"episode %d, valid of %s, row %d: %d and %d, %v",
				e,
				f.Key,
				rows[i].Index,
				one[0],
				valid[i],
				err,
			)
			return
		}
	}
}

// strangers checks formattest.F5.
func (s *suite) strangers() {
	i := s.ds.Info()
	must := func(what string, err error) {
		if err == nil {
			s.Errorf("%s: no error", what)
		} else if class(err) == nil {
			s.Errorf("%s: an error without a class: %v", what, err)
		}
	}
	for _, e := range []int{-1, i.Episodes, i.Episodes + 1<<40} {
		_, err := s.ds.Times(s.ctx, e, "")
		must(fmt.Sprintf("times of episode %d", e), err)
		_, err = s.ds.Episode(s.ctx, e)
		must(fmt.Sprintf("episode %d", e), err)
	}
	if i.Episodes == 0 {
		return
	}
	row := []robocache.Row{{Episode: 0, Index: 0}}
	ghost := "no such key \x00"
	must("gather of a key that is not there", s.ds.Gather(s.ctx, ghost, row, make([]byte, 8)))
	must(
		"frames of a key that is not there",
		s.ds.Frames(s.ctx, ghost, row, make([]robocache.FrameRef, 1)),
	)
	_, err := s.ds.Text(s.ctx, ghost, row)
	must("text of a key that is not there", err)
	_, err = s.ds.Times(s.ctx, 0, ghost)
	must("times of a key that is not there", err)
	for k := range i.Features {
		f := &i.Features[k]
		t, err := s.ds.Times(s.ctx, 0, f.Key)
		if err != nil || len(t) == 0 {
			continue
		}
		for _, r := range []robocache.Row{
			{Episode: 0, Index: -1},
			{Episode: 0, Index: len(t)},
			{Episode: 0, Index: 1 << 62},
			{Episode: -1},
			{Episode: i.Episodes},
		} {
			_, err := s.read(s.ctx, f, []robocache.Row{{}, r})
			must(fmt.Sprintf("%s of row %v", f.Key, r), err)
		}
		if n := f.RowBytes(); n > 0 {
			must(
				"room that is too small for "+f.Key,
				s.ds.Gather(s.ctx, f.Key, row, make([]byte, n-1)),
			)
			must(
				"room that is too large for "+f.Key,
				s.ds.Gather(s.ctx, f.Key, row, make([]byte, n+1)),
			)
		}
		if f.Kind == robocache.KindText || f.Kind == robocache.KindImage {
			must("gather of "+f.Key, s.ds.Gather(s.ctx, f.Key, row, nil))
		}
		if f.Kind == robocache.KindNumeric {
			must("frames of "+f.Key, s.ds.Frames(s.ctx, f.Key, row, make([]robocache.FrameRef, 1)))
		}
		if f.Kind == robocache.KindImage {
			must("frames into no room of "+f.Key, s.ds.Frames(s.ctx, f.Key, row, nil))
		}
	}
}

// content returns a hash of some rows of all streams.
func (s *suite) content() string {
	h := sha256.New()
	for _, e := range s.episodes() {
		i := s.ds.Info()
		for k := range i.Features {
			f := &i.Features[k]
			rows := s.some(e, f.Key)
			got, err := s.read(s.ctx, f, rows)
			if err != nil {
				return f.Key + ": " + err.Error()
			}
			for _, b := range got {
				fmt.Fprintln(h, len(b))
				h.Write(b)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
