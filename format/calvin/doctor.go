package calvin

import (
	"context"
	"errors"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// maxFindings limits the findings, because a dataset without its frames would cause millions.
const maxFindings = 1000

// Diagnose opens every frame. It reports missing frames, and arrays that differ from those of most
// episodes. With Decode it reads the images too, which checks the CRC of each array. Package
// diagnose looks for NaN.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover("calvin diagnose", &err)
	out = append(out, d.About.Findings...)
	eps := reader.Episodes(opt.Episodes, len(d.episodes))
	var done, total int64
	for _, e := range eps {
		if err := op.Episode(len(d.episodes), e); err != nil {
			return out, err
		}
		total += d.episodes[e].rows()
	}
	for _, e := range eps {
		for row := range d.Len(e) {
			report := func(err error, member *member) error {
				if robocache.IsFatal(err) {
					return err
				}
				if err != nil && len(out) < maxFindings {
					out = append(
						out,
						frameFinding(err, member, e, row, d.frameName(d.episodes[e], row)),
					)
				}
				return nil
			}
			err := d.checkFrame(ctx, d.episodes[e], row, opt.Decode, report)
			if err := ctx.Err(); err != nil {
				return out, err
			}
			if err := report(err, nil); err != nil {
				return out, err
			}
			done++
			if opt.Progress != nil {
				opt.Progress(done, total)
			}
		}
	}
	return out, nil
}

// frameFinding returns the finding for a frame that cannot be read, or for one of its arrays if
// member is not nil.
func frameFinding(err error, member *member, episode, row int, name string) robocache.Finding {
	f := robocache.Finding{
		Severity: robocache.SeverityError, Code: "bad-frame",
		Where:   robocache.Where{"episode": episode, "row": row, "file": name},
		Message: err.Error(), Hint: "fetch the file again",
	}
	if member != nil {
		f.Where["stream"], f.Hint = streamKey(member.name), robocache.LeaveOutHint()
	}
	if errors.Is(err, robocache.ErrNotFound) {
		f.Code, f.Message = "missing-file", "the frame is missing"
	}
	return f
}

// checkFrame opens a frame and calls report for each array that cannot be read. Arrays that the
// whole episode lacks are already findings of Open.
func (d *Dataset) checkFrame(
	ctx context.Context,
	e episode,
	row int,
	images bool,
	report func(err error, member *member) error,
) (err error) {
	f, h, err := d.acquireFrame(ctx, e, row, true)
	if err != nil {
		return err
	}
	defer d.files.Put(h)
	defer robocache.LocateIn(&err, "file", d.frameName(e, row))
	for i := range d.members {
		m := &d.members[i]
		if d.lacksStream(e, &stream{member: i}) {
			continue
		}
		err := func() error {
			if err := f.checkMember(i); err != nil {
				return err
			}
			if m.offset < 0 && images {
				bytes, err := f.dir.Bytes(ctx, h.Value, []*zipdir.File{f.files[i]})
				if err != nil {
					return err
				}
				if _, err := m.arrayData(bytes[0]); err != nil {
					return err
				}
			}
			return nil
		}()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := report(robocache.At(err, robocache.Where{"file": d.frameName(e, row)}), m); err !=
			nil {
			return err
		}
	}
	return nil
}
