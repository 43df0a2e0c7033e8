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
	c := newCursor(f.readRecord(ctx, p, OpAttachment, f.limits.Chunk), p.Offset, "attachment")
	a := &Attachment{Log: int64(c.u64()), Create: int64(c.u64()), Name: c.str(), MediaType: c.str()}
	a.Data = c.takeBytes(int(c.i64()))
	c.finish()
	return a, nil
}

// Records returns the records of a chunk, which the caller must release: all of them, or at least
// the first need bytes if need > 0. It returns nil without an error for a damaged chunk that is
// skipped.
func (f *File) Records(ctx context.Context, i int, need int64) (r *Records, err error) {
	if f.isBad(i) {
		return nil, nil
	}
	if r, err = guard.Value(
		func() *Records { return f.acquireRecords(ctx, i, need, nil) },
	); err != nil {
		return nil, f.skipBadChunk(err, i)
	}
	return r, nil
}

// Lost returns the number of messages in skipped chunks so far.
func (f *File) Lost() (n int64) {
	for _, f := range f.Findings() {
		if f.Code == "damaged-chunk" {
			n += f.Count
		}
	}
	return n
}
