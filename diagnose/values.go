package diagnose

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// fixed writes a number with so many digits behind the point.
func fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// values looks at the rows of one stream (D5).
func (x *examination) values(e int, l *line) error {
	const block = 1024
	fail := func(err error) error {
		if robocache.IsFatal(err) {
			return err
		}
		if x.ctx.Err() == nil {
			x.addReadFault(
				robocache.SeverityError,
				"unreadable-rows",
				robocache.Where{"episode": x.ds.Info().EpisodeIndex(e), "stream": l.f.Key},
				err.Error(),
			)
		}
		return nil
	}
	step := block
	if l.f.Kind == robocache.KindImage {
		step = 16
	}
	var raw []byte
	for at := 0; at < len(l.times); at += step {
		k := min(step, len(l.times)-at)
		rows := robocache.RowsOf(e, at, k)
		var err error
		switch {
		case l.f.Kind == robocache.KindText || l.f.Kind == robocache.KindEvent:
			_, err = x.ds.Text(x.ctx, l.f.Key, rows)
		case l.f.Kind == robocache.KindImage:
			err = x.images(e, l.f, rows)
		case l.f.Kind == robocache.KindVideo:
			return nil // the format's own doctor knows its files
		case l.f.Ragged():
			if gather := x.ds.Capabilities().GatherRagged; gather != nil {
				var data []byte
				var counts []int
				if data, counts, err = gather(
					x.ctx,
					l.f.Key,
					rows,
				); err == nil &&
					l.f.Kind != robocache.KindPointCloud {
					x.countNotFinite(l.f, rows, counts, data)
				}
			}
		default:
			if raw == nil {
				raw = make([]byte, step*l.f.RowBytes())
			}
			if err = x.ds.Gather(x.ctx, l.f.Key, rows, raw[:k*l.f.RowBytes()]); err == nil {
				x.countNotFinite(l.f, rows, nil, raw[:k*l.f.RowBytes()])
			}
		}
		if err != nil {
			if err := fail(err); err != nil {
				return err
			}
			return nil
		}
	}
	return nil
}

// images reads the sizes of still images, and with Decode their pixels.
func (x *examination) images(e int, f *robocache.Feature, rows []robocache.Row) error {
	refs := make([]robocache.FrameRef, len(rows))
	if err := x.ds.Frames(x.ctx, f.Key, rows, refs); err != nil {
		return err
	}
	for i := range refs {
		if refs[i].Missing {
			x.addReadFault(
				robocache.SeverityWarning,
				"missing-image",
				robocache.Where{
					"episode": x.ds.Info().EpisodeIndex(e),
					"stream":  f.Key,
					"row":     rows[i].Index,
				},
				"the row has no image",
			)
			continue
		}
		info, err := video.ImageSize(&refs[i])
		if err == nil && x.opt.Decode {
			spec := video.Spec{Pixel: video.RGB8}
			if info.Channels == 1 && f.DType != robocache.Uint8 {
				continue
			}
			err = video.DecodeImage(&refs[i], &spec, make([]byte, info.Height*info.Width*3))
		}
		if robocache.IsFatal(err) {
			return err
		}
		if err != nil {
			x.addReadFault(
				robocache.SeverityError,
				"unreadable-image",
				robocache.Where{
					"episode": x.ds.Info().EpisodeIndex(e),
					"stream":  f.Key,
					"row":     rows[i].Index,
				},
				err.Error(),
			)
		}
	}
	return nil
}
