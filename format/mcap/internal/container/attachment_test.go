package container

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// Attachment is a file inside the file.
type Attachment struct {
	Log, Create     int64
	Name, MediaType string
	Data            []byte
}

// ReadAttachment reads an attachment.
func (f *File) ReadAttachment(ctx context.Context, p Place) (_ *Attachment, err error) {
	defer guard.Recover("mcap", &err)
	c := parse(f.content(ctx, p, OpAttachment, f.lim.Chunk), p.Offset, "attachment")
	a := &Attachment{Log: int64(c.u64()), Create: int64(c.u64()), Name: c.str(), MediaType: c.str()}
	a.Data = c.take(int(c.i64()))
	c.end()
	return a, nil
}

// Records gives the records of a chunk, held until Release: all of them, or where need > 0 at least
// the first need bytes. nil without an error is a damaged chunk that is skipped.
func (f *File) Records(ctx context.Context, i int, need int64) (r *Records, err error) {
	if f.isBad(i) {
		return nil, nil
	}
	if r, err = guard.Value(func() *Records { return f.records(ctx, i, need, nil) }); err != nil {
		return nil, f.pass(err, i)
	}
	return r, nil
}

// Lost counts the messages of chunks that were skipped so far.
func (f *File) Lost() (n int64) {
	for _, f := range f.Findings() {
		if f.Code == "damaged-chunk" {
			n += f.Count
		}
	}
	return n
}
