package zarr

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// maxFindings limits the number of findings, because a damaged codec causes one for every chunk.
const maxFindings = 1000

// Diagnose decodes every chunk that the episodes use. It reports damage, wrong checksums and
// timestamps that go backwards. Package diagnose looks for NaN.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover("zarr diagnose", &err)
	out = append(out, d.About.Findings...)
	eps := reader.Episodes(opt.Episodes, len(d.ends)-1)
	for i, e := range eps {
		if err := op.Episode(len(d.ends)-1, e); err != nil {
			return out, err
		}
		for k := range d.About.Features {
			f := &d.About.Features[k]
			if d.views[f.Key] == nil || d.views[f.Key].a.err != nil ||
				f.Kind == robocache.KindImage && !opt.Decode {
				continue // a video (see checkVideos), already reported by Open, or not requested
			}
			if found, err := d.checkStream(ctx, e, f); err != nil {
				return out, err
			} else if len(out) < maxFindings {
				out = append(out, found...)
			}
		}
		if t, err := d.Times(ctx, e, ""); err == nil {
			back := int64(0)
			for k := 1; k < len(t); k++ {
				if t[k] < t[k-1] {
					back++
				}
			}
			if back > 0 {
				out = append(
					out,
					robocache.Finding{
						Severity: robocache.SeverityError,
						Code:     "timestamps-backwards",
						Where:    robocache.Where{"episode": e},
						Message:  fmt.Sprintf("%d timestamps are before the one before", back),
						Count:    back,
					},
				)
			}
		}
		if opt.Progress != nil {
			opt.Progress(int64(i+1), int64(len(eps)))
		}
	}
	videos, err := d.checkVideos(ctx, eps)
	if err != nil {
		return out, err
	}
	out = append(out, videos...)
	return out, ctx.Err()
}

// checkStream reads a stream of an episode chunk by chunk, so that one bad chunk does not hide
// others.
func (d *Dataset) checkStream(
	ctx context.Context,
	e int,
	f *robocache.Feature,
) (out []robocache.Finding, err error) {
	v := d.views[f.Key]
	n, step := d.rowCount(v, e), v.a.chunks[0]
	for from := 0; from < n; {
		// up to the end of the chunk that contains row from
		to := min(n, from+step-(int(d.ends[e])+from)%step)
		rows := reader.Rows(e, from, to)
		var err error
		switch f.Kind {
		case robocache.KindImage:
			err = d.Frames(ctx, f.Key, rows, make([]robocache.FrameRef, len(rows)))
		case robocache.KindNumeric:
			b := make([]byte, len(rows)*f.RowBytes())
			err = d.Gather(ctx, f.Key, rows, b)
		default:
			_, err = d.Text(ctx, f.Key, rows)
		}
		if err := ctx.Err(); err != nil {
			return out, err
		}
		if robocache.IsFatal(err) {
			return out, err
		}
		if err != nil && len(out) < maxFindings {
			out = append(
				out,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "bad-chunk",
					Where:    robocache.Where{"stream": f.Key, "episode": e, "row": from},
					Message:  err.Error(),
					Hint:     "fetch the chunk again",
				},
			)
		}
		from = to
	}
	return out, nil
}
