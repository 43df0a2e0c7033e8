package calvin

import (
	"context"

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

// channels copies width bytes of every step bytes of src.
func channels(dst, src []byte, step, width int) {
	for p := 0; p+width <= len(src) && len(dst) >= width; p += step {
		for i := range width {
			dst[i] = src[p+i]
		}
		dst = dst[width:]
	}
}
