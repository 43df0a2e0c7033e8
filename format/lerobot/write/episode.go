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

// readEpisode reads one episode of the source. It sets t.mapping.New to −1 if the episode must be
// left out.
func (c *conversion) readEpisode(ctx context.Context, t *turn) (_ *EpisodeData, err error) {
	defer crash.Recover("convert", &err)
	position := t.episode
	rowCount := c.src.Len(t.episode)
	t.mapping = EpisodeMap{
		Old:    c.src.Info().EpisodeIndex(position),
		Length: rowCount,
		Video:  map[string]string{},
	}
	meta, err := c.src.Episode(ctx, position)
	if err != nil {
		return nil, err
	}
	if rowCount == 0 {
		t.mapping.New = -1
		t.addFinding(
			robocache.SeverityWarning,
			"empty-episode",
			robocache.Where{"episode": meta.Index},
			"an episode without rows is left out",
		)
		return nil, nil
	}
	rows := reader.Rows(position, 0, rowCount)
	data := &EpisodeData{
		Length:     rowCount,
		Columns:    map[string][]byte{},
		Text:       map[string][]string{},
		Images:     map[string][][]byte{},
		Videos:     map[string]VideoPart{},
		FrameStats: map[string]*stats.Pixels{},
		Listed:     meta.Tasks,
	}
	if data.Tasks, err = c.tasksOf(ctx, rows, meta); err != nil {
		return nil, err
	}
	for i := range c.features {
		f := &c.features[i]
		err := c.readFeature(ctx, f, rows, data, &t.mapping)
		if err := robocache.At(err, robocache.Where{"stream": f.source}); err != nil {
			return nil, err
		}
	}
	if c.timestamps {
		timestamps, _, err := c.recordedTimes(ctx, position)
		if err != nil {
			return nil, err
		}
		var raw []byte
		for _, v := range timestamps {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
		}
		data.Columns[RecordedTimestamps] = raw
	}
	if t.mapping.Source, err = c.origins.Of(ctx, position); err != nil {
		return nil, err
	}
	if times, err := c.src.Times(ctx, position, ""); err == nil && len(times) > 0 {
		t.mapping.StartNS = times[0]
	}
	return data, nil
}

// readFeature reads a feature of all rows of an episode into ep.
func (c *conversion) readFeature(
	ctx context.Context,
	f *feature,
	rows []robocache.Row,
	ep *EpisodeData,
	mapping *EpisodeMap,
) (err error) {
	switch {
	case f.isMask:
		raw := make([]byte, len(rows))
		err = robocache.Valid(ctx, c.src, f.source, rows, raw)
		ep.Columns[f.Key] = raw
	case f.Kind == robocache.KindText, f.Kind == robocache.KindEvent:
		ep.Text[f.Key], err = c.src.Text(ctx, f.source, rows)
	case f.Kind == robocache.KindImage:
		err = c.encodeStills(ctx, f, rows, ep)
	case f.fromStills:
		mapping.Video[f.Key] = stillVerdict
		ep.Videos[f.Key] = VideoPart{
			Frames: func(yield func([]byte) error) error {
				return c.decodeStills(ctx, f, rows, yield)
			},
		}
	case f.Kind == robocache.KindVideo:
		err = c.addEpisodeFrames(ctx, f, rows[0].Episode, ep, mapping)
	default:
		raw := make([]byte, len(rows)*f.Elements()*f.DType.Size())
		err = c.src.Gather(ctx, f.source, rows, raw)
		ep.Columns[f.Key] = raw
	}
	return err
}

// tasksOf returns the task text of each row. If the source has no texts of rows, it returns a
// single text for all rows: the first task of the episode, or "".
func (c *conversion) tasksOf(
	ctx context.Context,
	rows []robocache.Row,
	meta robocache.Episode,
) ([]string, error) {
	texts, err := c.src.Text(ctx, "task", rows)
	noTasks := []error{robocache.ErrNotFound, robocache.ErrMisuse, robocache.ErrUnsupported}
	if slices.ContainsFunc(noTasks, func(class error) bool { return errors.Is(err, class) }) {
		return append(slices.Clone(meta.Tasks), "")[:1], nil // the first task, or ""
	}
	if err != nil {
		return nil, err
	}
	return texts, nil
}

// stillBlock is how many rows of still images are read at once. Their references hold the image
// bytes.
const stillBlock = 32

// eachStill reads still images in blocks and calls fn for each. A missing image is passed to fn if
// the result has a mask for it, and is an error otherwise.
func (c *conversion) eachStill(
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
			r := &part[k]
			err := error(nil)
			if r.Missing && !f.hasMask || r.Path != "" {
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

// encodeStills stores the images as the bytes of files. Images that are already encoded are not
// changed.
func (c *conversion) encodeStills(
	ctx context.Context,
	f *feature,
	rows []robocache.Row,
	ep *EpisodeData,
) error {
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	return c.eachStill(ctx, f, rows, func(r *robocache.FrameRef) error {
		if r.Missing {
			r = &robocache.FrameRef{Raw: blackImage(f)}
		} else if c.shouldResize(f) {
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

// blackImage returns the replacement for a missing image.
func blackImage(f *feature) *robocache.Raw {
	n := max(1, f.Channels)
	return &robocache.Raw{
		Pix:      make([]byte, f.Width*f.Height*n*f.DType.Size()),
		Width:    f.Width,
		Height:   f.Height,
		Channels: n,
		DType:    f.DType,
	}
}

// decodeStills yields the pixels of a still image for each row. If consecutive rows share an image,
// it is decoded once.
func (c *conversion) decodeStills(
	ctx context.Context,
	f *feature,
	rows []robocache.Row,
	yield func([]byte) error,
) error {
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	var buf []byte
	var last robocache.FrameRef
	return c.eachStill(ctx, f, rows, func(r *robocache.FrameRef) error {
		switch {
		case r.Missing: // a missing image is black
			buf = slices.Grow(buf[:0], 3*f.Width*f.Height)[:3*f.Width*f.Height]
			clear(buf)
			last = robocache.FrameRef{}
		case buf != nil && sameBytes(r, &last): // buf already holds the image
		default:
			b, err := stats.Still(r, spec, buf)
			if err != nil {
				return err
			}
			buf = b
			last = *r
		}
		return yield(buf)
	})
}

// sameBytes reports whether two references share the same bytes in memory. This is so if the grid
// repeats a row.
func sameBytes(a, b *robocache.FrameRef) bool {
	if a.Raw != nil || b.Raw != nil {
		return a.Raw == b.Raw
	}
	return len(a.Encoded) > 0 && len(a.Encoded) == len(b.Encoded) && &a.Encoded[0] == &b.Encoded[0]
}

const (
	copied       = "copied"
	stillVerdict = "encoded: still images"
)

// checkSize returns an error of class ErrUnsupported if the images of a file differ in size from
// their stream. Such images cannot be copied and must be encoded.
func (c *conversion) checkSize(ctx context.Context, f *feature, path string) error {
	w, h, err := c.displaySize(ctx, path)
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

// addEpisodeFrames adds an episode's frames of a video stream to ep, copied or encoded as planned.
func (c *conversion) addEpisodeFrames(
	ctx context.Context,
	f *feature,
	e int,
	ep *EpisodeData,
	mapping *EpisodeMap,
) error {
	segment, err := c.planSegment(ctx, f, e)
	if err != nil {
		return err
	}
	segment.recordIn(mapping, f.Key)
	if segment.reason != "" {
		ep.Videos[f.Key] = VideoPart{
			Frames: func(yield func([]byte) error) error {
				return c.decodeFrames(ctx, f, segment.refs, yield)
			},
		}
		return nil
	}
	part := VideoPart{
		Library: c.library,
		Path:    segment.refs[0].Path,
		From:    segment.refs[0].Ordinal,
		Before:  segment.before,
		Behind:  segment.behind,
	}
	head, tail := segment.refs[:segment.head], segment.refs[len(segment.refs)-segment.tail:]
	for i, refs := range [][]robocache.FrameRef{head, tail} {
		part.Ends[i] = FrameRun{
			N:     len(refs),
			Codec: segment.codec,
			Frames: func(yield func([]byte) error) error {
				return c.decodeFrames(ctx, f, refs, yield)
			},
		}
	}
	ep.Videos[f.Key] = part
	if c.options.out.Frames == stats.NoFrames || !c.decodes {
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
	if ep.FrameStats[f.Key], err = c.frameCounter.Episode(ctx, &source, e); err != nil {
		return err
	}
	return nil
}

// decodeFrames yields the decoded images of an episode, in the order of its rows.
func (c *conversion) decodeFrames(
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
		c.library,
		refs,
		video.Each{Pool: c.pool},
		func(rows []int, frame video.Frame) (err error) {
			if frame != nil {
				buf, err = video.ConvertTo(buf, frame, spec)
			} else { // a row without an image is black
				var n int
				info := video.StillInfo{Width: f.Width, Height: f.Height}
				if n, err = video.StillBytes(info, spec); err == nil {
					buf = slices.Grow(buf[:0], n)[:n]
					clear(buf)
				}
			}
			for range rows {
				if err == nil {
					err = yield(buf)
				}
			}
			return err
		},
	)
}

// recordedTimes returns the timestamps of an episode in seconds, as the source has them. start is
// the timestamp of row 0 if they come from a clock with an arbitrary origin (1970), and 0 if they
// are a column of the source. A different origin alone is no reason to keep timestamps.
func (c *conversion) recordedTimes(
	ctx context.Context,
	e int,
) (timestamps []float64, start float64, err error) {
	n := c.src.Len(e)
	f := c.src.Info().Feature("timestamp")
	isNumber := f != nil && f.Kind == robocache.KindNumeric && f.Scalar()
	if isNumber && (f.DType == robocache.Float64 || f.DType == robocache.Float32) {
		raw := make([]byte, n*f.DType.Size())
		err := c.src.Gather(ctx, "timestamp", reader.Rows(e, 0, n), raw)
		if err != nil {
			return timestamps, start, robocache.At(err, robocache.Where{"stream": "timestamp"})
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

// chooseTimestamps sets c.timestamps if any recorded timestamp differs from frame_index/fps by more
// than the rounding of float32.
func (c *conversion) chooseTimestamps(ctx context.Context) error {
	// The source has this feature if an earlier conversion has already kept the timestamps.
	isKept := func(f feature) bool { return f.Key == RecordedTimestamps }
	if c.options.noTimestamps || c.options.OnGrid || slices.ContainsFunc(c.features, isKept) {
		return nil
	}
	for _, e := range c.options.Episodes {
		var timestamps []float64
		var start float64
		err := crash.Func("convert", func() (err error) {
			timestamps, start, err = c.recordedTimes(ctx, e)
			return err
		})()
		if err != nil {
			if ctx.Err() != nil || !c.options.SkipBad || !robocache.Bad(err) {
				return robocache.At(err, robocache.Where{"episode": c.src.Info().EpisodeIndex(e)})
			}
			continue
		}
		for k, seconds := range timestamps {
			want := start + float64(k)/c.fps.Float()
			// Float32 rounds by up to 1.2e-7 of the value. NaN counts as different.
			allowed := 1e-6 + (want-start)*1.2e-7
			if difference := math.Abs(seconds - want); !(difference <= allowed) {
				c.timestamps = true
				c.addFinding(
					robocache.SeverityInfo,
					"timestamps-kept",
					robocache.Where{"episode": c.src.Info().EpisodeIndex(e), "row": k},
					fmt.Sprintf(
						"recorded timestamps are not frame_index/fps (first: %g for %g s): "+
							"they are kept as %s",
						seconds,
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
