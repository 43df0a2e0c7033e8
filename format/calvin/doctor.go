package calvin

import (
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// maxFindings bounds a list: a dataset without its frames has a million of the same.
const maxFindings = 1000

// Diagnose opens every frame: that it is there, has the arrays of the first one, and that its numbers are finite. With Decode it reads
// the images too, and so checks each member's CRC.
func (d *Dataset) Diagnose(ctx context.Context, opt robocache.DiagnoseOptions) (out []robocache.Finding, err error) {
	defer guard.Recover("calvin diagnose", &err)
	out = append(out, d.About.Findings...)
	eps := reader.Episodes(opt.Episodes, len(d.eps))
	var done, total int64
	for _, e := range eps {
		guard.Check(op.Episode(len(d.eps), e))
		total += d.eps[e].rows()
	}
	notFinite := map[string]int64{}
	for _, e := range eps {
		for row := range d.Len(e) {
			err := guard.Try(func() { d.checkFrame(ctx, d.eps[e], row, opt.Decode, notFinite) })
			if guard.Check(ctx.Err()); guard.RaiseInternal(err) != nil && len(out) < maxFindings {
				out = append(out, frameFinding(err, e, row, d.name(d.eps[e], row)))
			}
			done++
			if opt.Progress != nil {
				opt.Progress(done, total)
			}
		}
	}
	for key, n := range notFinite {
		out = append(out, robocache.Finding{Severity: robocache.SeverityWarning, Code: "not-finite", Where: robocache.Where{"stream": key}, Message: fmt.Sprintf("%d values are NaN or infinite", n), Count: n})
	}
	return out, nil
}

func frameFinding(err error, episode, row int, name string) robocache.Finding {
	f := robocache.Finding{Severity: robocache.SeverityError, Code: "bad-frame", Where: robocache.Where{"episode": episode, "row": row, "file": name}, Message: err.Error(), Hint: "fetch the file again"}
	if errors.Is(err, robocache.ErrNotFound) {
		f.Code, f.Message = "missing-file", "the frame is missing"
	}
	return f
}

func (d *Dataset) checkFrame(ctx context.Context, e episode, row int, images bool, notFinite map[string]int64) {
	f, h := d.open(ctx, e, row, true)
	defer d.files.Put(h)
	defer guard.In("file", d.name(e, row))
	for i := range d.members {
		m := &d.members[i]
		if m.offset < 0 {
			if images {
				m.data(guard.Must(f.dir.Bytes(ctx, h.Value, []*zipdir.File{f.files[i]}))[0])
			}
			continue
		}
		if n := robocache.NotFinite(m.typ.DType(), f.numbers[m.offset:][:m.bytes]); n > 0 {
			notFinite[key(m.name)] += n
		}
	}
}
