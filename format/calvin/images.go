package calvin

import (
	"context"
	"encoding/binary"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/lease"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Frames gives the pixels of images: of stored members they are the file's bytes, as they were read.
func (d *Dataset) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) error {
	return d.frames(ctx, key, rows, out, func(n int64) []byte { return make([]byte, n) })
}

// LeaseFrames is Frames without garbage: pixels lie in memory that is used again after done.
func (d *Dataset) LeaseFrames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (done func(), err error) {
	l := lease.Get()
	if err := d.frames(ctx, key, rows, out, l.Room); err != nil {
		l.Done()
		return nil, err
	}
	return l.Done, nil
}

func (d *Dataset) frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef, room func(n int64) []byte) (err error) {
	defer guard.Malformed("calvin frames", &err)
	s := d.get(key, robocache.KindImage)
	guard.Check(op.Room(key, "frames", len(rows), len(out)))
	raws := make([]robocache.Raw, len(rows))
	d.each(ctx, rows, func(ctx context.Context, i int) {
		ft := s.feature
		raws[i] = robocache.Raw{Pix: d.image(ctx, d.eps[rows[i].Episode], rows[i].Index, s, room), Height: ft.Height, Width: ft.Width, Channels: ft.Channels, DType: ft.DType}
		out[i] = robocache.FrameRef{Raw: &raws[i]}
	})
	return nil
}

// image gives the pixels of a stream in a frame.
func (d *Dataset) image(ctx context.Context, e episode, row int, s *stream, room func(n int64) []byte) []byte {
	f, h := d.open(ctx, e, row, true)
	defer d.files.Put(h)
	var content []byte
	err := guard.Try(func() {
		content = d.members[s.member].data(guard.Must(f.dir.ByteIn(ctx, h.Value, f.files[s.member], room)))
	})
	if err != nil {
		guard.Fail(robocache.At(err, robocache.Where{"file": d.name(e, row)}))
	}
	ft := s.feature
	size := ft.DType.Size()
	all, own := len(content)/(ft.Height*ft.Width), ft.Channels*size
	if all == own {
		return content
	}
	part := room(int64(ft.Height * ft.Width * own))
	channels(part, content[s.from*size:], all, own)
	return part
}

// channels copies width bytes of every step bytes of src. Two sensors of three or of four bytes a pixel have loops of their own, four pixels
// a turn: a call of copy for each pixel would be most of the time that a frame takes.
func channels(dst, src []byte, step, width int) {
	le := binary.LittleEndian
	switch {
	case step == 6 && width == 3:
		for len(src) >= 24 && len(dst) >= 13 {
			s, d := src[:24:24], dst[:13:13]
			le.PutUint32(d[0:], le.Uint32(s[0:])) // a fourth byte too many is the next pixel's to overwrite
			le.PutUint32(d[3:], le.Uint32(s[6:]))
			le.PutUint32(d[6:], le.Uint32(s[12:]))
			le.PutUint32(d[9:], le.Uint32(s[18:]))
			src, dst = src[24:], dst[12:]
		}
	case step == 8 && width == 4:
		for len(src) >= 32 && len(dst) >= 16 {
			s, d := src[:32:32], dst[:16:16]
			le.PutUint32(d[0:], le.Uint32(s[0:]))
			le.PutUint32(d[4:], le.Uint32(s[8:]))
			le.PutUint32(d[8:], le.Uint32(s[16:]))
			le.PutUint32(d[12:], le.Uint32(s[24:]))
			src, dst = src[32:], dst[16:]
		}
	}
	for at, p := 0, 0; p+width <= len(src) && at+width <= len(dst); p, at = p+step, at+width {
		copy(dst[at:at+width], src[p:p+width])
	}
}
