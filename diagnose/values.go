package diagnose

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// formatFixed formats a number with the given number of decimals.
func formatFixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// checkValues checks the rows of one stream (diagnose.D5).
func (x *examination) checkValues(e int, l *streamTimes) error {
	const block = 1024
	fail := func(err error) error {
		if robocache.IsFatal(err) {
			return err
		}
		if x.ctx.Err() == nil {
			x.addReadFault(
				robocache.SeverityError,
				"unreadable-rows",
				robocache.Where{"episode": x.ds.Info().EpisodeIndex(e), "stream": l.feature.Key},
				err.Error(),
			)
		}
		return nil
	}
	step := block
	if l.feature.Kind == robocache.KindImage {
		step = 16
	}
	var raw []byte
	for at := 0; at < len(l.times); at += step {
		k := min(step, len(l.times)-at)
		rows := robocache.RowsOf(e, at, k)
		var err error
		switch {
		case l.feature.Kind == robocache.KindText || l.feature.Kind == robocache.KindEvent:
			_, err = x.ds.Text(x.ctx, l.feature.Key, rows)
		case l.feature.Kind == robocache.KindImage:
			err = x.checkImages(e, l.feature, rows)
		case l.feature.Kind == robocache.KindVideo:
			return nil // the format's own doctor checks its files
		case l.feature.Ragged():
			if gather := x.ds.Capabilities().GatherRagged; gather != nil {
				var data []byte
				var counts []int
				data, counts, err = gather(x.ctx, l.feature.Key, rows)
				if err == nil && l.feature.Kind != robocache.KindPointCloud {
					x.countNotFinite(l.feature, rows, counts, data)
				}
			}
		default:
			if raw == nil {
				raw = make([]byte, step*l.feature.RowBytes())
			}
			part := raw[:k*l.feature.RowBytes()]
			err = x.ds.Gather(x.ctx, l.feature.Key, rows, part)
			if err == nil {
				x.countNotFinite(l.feature, rows, nil, part)
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

// checkImages reads the sizes of still images, and with Decode their pixels.
func (x *examination) checkImages(e int, f *robocache.Feature, rows []robocache.Row) error {
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
