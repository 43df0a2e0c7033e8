package write

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// episode reads one episode of the source. t.m.New is −1 where it must be left out.
func (c *conversion) episode(ctx context.Context, t *turn) (_ *EpisodeData, err error) {
	defer crash.Recover("convert", &err)
	e, n := t.e, c.src.Len(t.e)
	t.m = EpisodeMap{Old: c.src.Info().EpisodeIndex(e), Length: n, Video: map[string]string{}}
	meta, err := c.src.Episode(ctx, e)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		t.m.New = -1
		t.find(
			robocache.SeverityWarning,
			"empty-episode",
			robocache.Where{"episode": meta.Index},
			"an episode without rows is left out",
		)
		return nil, nil
	}
	rows := reader.Rows(e, 0, n)
	ep := &EpisodeData{
		Length:     n,
		Columns:    map[string][]byte{},
		Text:       map[string][]string{},
		Images:     map[string][][]byte{},
		Videos:     map[string]VideoPart{},
		FrameStats: map[string]*stats.Pixels{},
		Listed:     meta.Tasks,
	}
	if ep.Tasks, err = c.tasksOf(ctx, rows, meta); err != nil {
		return nil, err
	}
	for i := range c.features {
		f := &c.features[i]
		switch {
		case f.mask:
			raw := make([]byte, n)
			err = robocache.Valid(ctx, c.src, f.source, rows, raw)
			ep.Columns[f.Key] = raw
		case f.Kind == robocache.KindText, f.Kind == robocache.KindEvent:
			ep.Text[f.Key], err = c.src.Text(ctx, f.source, rows)
		case f.Kind == robocache.KindImage:
			err = c.stills(ctx, f, rows, ep)
		case f.still:
			t.m.Video[f.Key] = stillVerdict
			ep.Videos[f.Key] = VideoPart{
				Frames: func(yield func([]byte) error) error { return c.drawn(ctx, f, rows, yield) },
			}
		case f.Kind == robocache.KindVideo:
			err = c.videoOf(ctx, f, e, ep, &t.m)
		default:
			raw := make([]byte, n*f.Elements()*f.DType.Size())
			err = c.src.Gather(ctx, f.source, rows, raw)
			ep.Columns[f.Key] = raw
		}
		if err := robocache.At(err, robocache.Where{"stream": f.source}); err != nil {
			return nil, err
		}
	}
	if c.timestamps {
		timestamps, _, err := c.recorded(ctx, e)
		if err != nil {
			return nil, err
		}
		var raw []byte
		for _, v := range timestamps {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
		}
		ep.Columns[RecordedTimestamps] = raw
	}
	if t.m.Source, err = c.origins.Of(ctx, e); err != nil {
		return nil, err
	}
	if times, err := c.src.Times(ctx, e, ""); err == nil && len(times) > 0 {
		t.m.StartNS = times[0]
	}
	return ep, nil
}

// tasksOf gives a task text a row; "" where the source has no tasks.
func (c *conversion) tasksOf(
	ctx context.Context,
	rows []robocache.Row,
	meta robocache.Episode,
) ([]string, error) {
	texts, err := c.src.Text(ctx, "task", rows)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) ||
		errors.Is(err, robocache.ErrUnsupported) {
		return append(slices.Clone(meta.Tasks), "")[:1], nil
	}
	if err != nil {
		return nil, err
	}
	return texts, nil
}

// stillBlock is how many rows of still images are read at a time: they come with their bytes.
const stillBlock = 32

// images reads still images block by block. One that is not there comes with Missing set where a
// mask says so in the result.
func (c *conversion) images(
	ctx context.Context,
	f *feature,
	rows []robocache.Row,
	fn func(*robocache.FrameRef) error,
) error {
	refs := make([]robocache.FrameRef, min(stillBlock, len(rows)))
	for len(rows) > 0 {
		part := refs[:min(stillBlock, len(rows))]
		clear(part)
		if err := c.src.Frames(ctx, f.source, rows[:len(part)], part); err != nil {
			return err
		}
		for k := range part {
			r, err := &part[k], error(nil)
			if r.Missing && !f.masked || r.Path != "" {
				err = robocache.Malformed("convert", nil, "the row has no image").
					WithHint("leave the episode out")
			} else {
				err = fn(r)
			}
			if err != nil {
				return robocache.At(err, robocache.Where{"row": rows[k].Index})
			}
		}
		rows = rows[len(part):]
	}
	return nil
}

// stills takes the images as bytes of files: encoded ones as they are.
func (c *conversion) stills(
	ctx context.Context,
	f *feature,
	rows []robocache.Row,
	ep *EpisodeData,
) error {
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	return c.images(ctx, f, rows, func(r *robocache.FrameRef) error {
		if r.Missing {
			r = &robocache.FrameRef{Raw: black(f)}
		} else if c.resizes(f) {
			pix, err := stats.Still(r, spec, nil)
			if err != nil {
				return err
			}
			r = &robocache.FrameRef{
				Raw: &robocache.Raw{
					Pix:      pix,
					Width:    f.Width,
					Height:   f.Height,
					Channels: 3,
					DType:    robocache.Uint8,
				},
			}
		}
		b, err := video.EncodeImage(r)
		ep.Images[f.Key] = append(ep.Images[f.Key], b)
		return err
	})
}

// black stands for an image that is not there.
func black(f *feature) *robocache.Raw {
	n := max(1, f.Channels)
	return &robocache.Raw{
		Pix:      make([]byte, f.Width*f.Height*n*f.DType.Size()),
		Width:    f.Width,
		Height:   f.Height,
		Channels: n,
		DType:    f.DType,
	}
}

// drawn gives the pixels of still images. The same bytes again (an image held by the grid) are
// decoded once.
func (c *conversion) drawn(
	ctx context.Context,
	f *feature,
	rows []robocache.Row,
	yield func([]byte) error,
) error {
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	var buf []byte
	var last robocache.FrameRef
	return c.images(ctx, f, rows, func(r *robocache.FrameRef) error {
		switch {
		case r.Missing:
			buf = slices.Grow(buf[:0], 3*f.Width*f.Height)[:3*f.Width*f.Height]
			clear(buf)
			last = robocache.FrameRef{}
		case buf != nil && same(r, &last):
		default:
			b, err := stats.Still(r, spec, buf)
			if err != nil {
				return err
			}
			buf, last = b, *r
		}
		return yield(buf)
	})
}

// same says that two references are to the same bytes in memory: a row that is shown twice.
func same(a, b *robocache.FrameRef) bool {
	if a.Raw != nil || b.Raw != nil {
		return a.Raw == b.Raw
	}
	return len(a.Encoded) > 0 && len(a.Encoded) == len(b.Encoded) && &a.Encoded[0] == &b.Encoded[0]
}

const (
	copied       = "copied"
	stillVerdict = "encoded: still images"
)

// ofSize says whether the images of a file have the size of their stream; ErrUnsupported where not:
// encoding brings them to it.
func (c *conversion) ofSize(ctx context.Context, f *feature, path string) error {
	w, h, err := c.sizeOf(ctx, path)
	if err == nil && f.Width > 0 && (w != f.Width || h != f.Height) {
		err = robocache.Unsupported(
			"convert",
			nil,
			"its images are %d×%d, those of the stream %d×%d",
			w,
			h,
			f.Width,
			f.Height,
		)
	}
	return err
}

func (c *conversion) videoOf(
	ctx context.Context,
	f *feature,
	e int,
	ep *EpisodeData,
	m *EpisodeMap,
) error {
	s, err := c.segment(ctx, f, e)
	if err != nil {
		return err
	}
	s.into(m, f.Key)
	if s.reason != "" {
		ep.Videos[f.Key] = VideoPart{
			Frames: func(yield func([]byte) error) error { return c.frames(ctx, f, s.refs, yield) },
		}
		return nil
	}
	part := VideoPart{
		Library: c.lib,
		Path:    s.refs[0].Path,
		From:    s.refs[0].Ordinal,
		Before:  s.before,
		Behind:  s.behind,
	}
	for i, refs := range [][]robocache.FrameRef{s.refs[:s.head], s.refs[len(s.refs)-s.tail:]} {
		part.Ends[i] = FrameRun{
			N:      len(refs),
			Codec:  s.codec,
			Frames: func(yield func([]byte) error) error { return c.frames(ctx, f, refs, yield) },
		}
	}
	ep.Videos[f.Key] = part
	if c.opt.out.Frames == stats.NoFrames || !c.decodes {
		return nil
	}
	if known, ok := c.src.(KnownFrames); ok {
		if fs, err := known.KnownFrames(ctx, f.source, e); err != nil {
			return err
		} else if fs != nil {
			if ep.Known == nil {
				ep.Known = map[string]*robocache.FeatureStats{}
			}
			ep.Known[f.Key] = fs
			return nil
		}
	}
	source := f.Feature
	source.Key = f.source
	if ep.FrameStats[f.Key], err = c.look.Episode(ctx, &source, e); err != nil {
		return err
	}
	return nil
}

// frames decodes the images of an episode, in the order of its rows.
func (c *conversion) frames(
	ctx context.Context,
	f *feature,
	refs []robocache.FrameRef,
	yield func([]byte) error,
) error {
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	if f.Depth != nil {
		spec.Pixel = video.Gray16
	}
	var buf []byte
	return video.EachFrame(
		ctx,
		c.lib,
		refs,
		video.Each{Pool: c.pool},
		func(at []int, pic video.Frame) (err error) {
			if pic != nil {
				buf, err = video.ConvertTo(buf, pic, spec)
			} else {
				var n int
				if n, err = video.StillBytes(
					video.StillInfo{Width: f.Width, Height: f.Height},
					spec,
				); err == nil {
					buf = slices.Grow(buf[:0], n)[:n]
					clear(buf)
				}
			}
			for range at {
				if err == nil {
					err = yield(buf)
				}
			}
			return err
		},
	)
}

// recorded gives the timestamps of an episode as the source has them, in seconds, and how much
// later than row 0 they may begin: timestamps that are no column of the source, but a clock that
// counts from anywhere (1970), are not kept for where they begin alone.
func (c *conversion) recorded(
	ctx context.Context,
	e int,
) (timestamps []float64, start float64, err error) {
	n := c.src.Len(e)
	if f := c.src.Info().
		Feature("timestamp"); f != nil && f.Kind == robocache.KindNumeric && f.Scalar() &&
		(f.DType == robocache.Float64 || f.DType == robocache.Float32) {
		raw := make([]byte, n*f.DType.Size())
		if err := robocache.At(
			c.src.Gather(ctx, "timestamp", reader.Rows(e, 0, n), raw),
			robocache.Where{"stream": "timestamp"},
		); err != nil {
			return timestamps, start, err
		}
		return robocache.Float64s(nil, f.DType, raw), 0, nil
	}
	times, err := c.src.Times(ctx, e, "")
	if err != nil {
		return timestamps, start, err
	}
	if len(times) != n {
		return timestamps, start, robocache.Malformed("convert", nil, "timestamps").
			Expected(fmt.Sprint(n), fmt.Sprint(len(times)))
	}
	for _, t := range times {
		timestamps = append(timestamps, float64(t)/1e9)
	}
	if n > 0 {
		start = timestamps[0]
	}
	return timestamps, start, nil
}

// chooseTimestamps looks whether any recorded timestamp says something else than frame_index/fps,
// beyond float32's rounding.
func (c *conversion) chooseTimestamps(ctx context.Context) error {
	// an earlier conversion has kept them
	if c.opt.noTimestamps || c.opt.OnGrid ||
		slices.ContainsFunc(
			c.features,
			func(f feature) bool { return f.Key == RecordedTimestamps },
		) {
		return nil
	}
	for _, e := range c.opt.Episodes {
		var t []float64
		var start float64
		if err := crash.Func("convert", func() error {
			var err error
			if t, start, err = c.recorded(ctx, e); err != nil {
				return err
			}
			return nil
		})(); err != nil {
			if ctx.Err() != nil || !c.opt.SkipBad || !robocache.Bad(err) {
				return robocache.At(err, robocache.Where{"episode": c.src.Info().EpisodeIndex(e)})
			}
			continue
		}
		for k, v := range t {
			want := start + float64(k)/c.fps.Float()
			if d := math.Abs(v - want); !(d <= 1e-6+(want-start)*1.2e-7) {
				c.timestamps = true
				c.find(
					robocache.SeverityInfo,
					"timestamps-kept",
					robocache.Where{"episode": c.src.Info().EpisodeIndex(e), "row": k},
					fmt.Sprintf(
						"recorded timestamps are not frame_index/fps (first: %g for %g s): they are kept as %s",
						v,
						want,
						RecordedTimestamps,
					),
				)
				return nil
			}
		}
	}
	return nil
}
