package h5set

import (
	"bytes"
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/lease"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// Frames gives the images of rows: their pixels, which are the caller's, or their JPEG or PNG
// bytes, which nobody may change.
func (s *Set) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	return s.frames(ctx, key, rows, out, nil)
}

// LeaseFrames is Frames without copies and garbage: pixels lie in the cache, and nobody may change
// them, or are read past it into memory that is used again after done.
func (s *Set) LeaseFrames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (done func(), err error) {
	l := lease.Get()
	if err := s.frames(ctx, key, rows, out, l); err != nil {
		l.Done()
		return nil, err
	}
	return l.Done, nil
}

// keepBuffer is the size from which on rows are not read at once into leased memory.
const keepBuffer = 4 << 20

// view gives rows as Dataset.View does, in a buffer of l where they are to be read anew.
func view(ctx context.Context, l *lease.Lease, d *h5.Dataset, row, n int64) ([]byte, int64, error) {
	if l == nil || !d.Past() || n*d.RowBytes() > keepBuffer {
		return d.View(ctx, row, n)
	}
	b := l.Room(n * d.RowBytes())
	return b, n, d.ReadRows(ctx, row, n, b)
}

func (s *Set) frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
	l *lease.Lease,
) (err error) {
	defer crash.Recover(s.About.Format+" frames", &err)
	i, err := s.get(key, robocache.KindImage)
	if err != nil {
		return err
	}
	if err := s.op.Room(key, "frames", len(rows), len(out)); err != nil {
		return err
	}
	st := &s.Streams[i]
	var raws []robocache.Raw
	if st.How == Pixels {
		raws = make([]robocache.Raw, len(rows))
	}
	if err := s.ahead(ctx, i, rows); err != nil {
		return err
	}
	if err := s.together(
		ctx,
		i,
		rows,
		func(ctx context.Context, at, n int, d *h5.Dataset) (err error) {
			first := int64(rows[at].Index)
			if st.How == Encoded {
				b, err := d.Bytes(ctx, first, int64(n))
				for k := 0; k < len(b) && err == nil; k++ {
					out[at+k], err = st.encoded(b[k])
				}
				return err
			}
			if err := d.Warm(ctx, first, int64(n)); err != nil {
				return err
			}
			for k := 0; k < n; {
				b, m, err := view(ctx, l, d, first+int64(k), int64(n-k))
				if err != nil {
					return err
				}
				size := int(d.RowBytes())
				for j := range int(m) {
					row := b[j*size : (j+1)*size : (j+1)*size]
					if st.How == Padded {
						if out[at+k], err = st.encoded(row); err != nil {
							return err
						}
					} else {
						if l == nil && !d.Past() {
							row = bytes.Clone(row)
						}
						raws[at+k] = robocache.Raw{
							Pix:      row,
							Height:   st.Height,
							Width:    st.Width,
							Channels: st.Channels,
							DType:    st.DType,
							BGR:      st.BGR,
						}
						out[at+k] = robocache.FrameRef{Raw: &raws[at+k]}
					}
					k++
				}
			}
			return nil
		},
	); err != nil {
		return err
	}
	return nil
}

// reads is how many reads for one call are under way at once.
const reads = 16

// together is runs, with several at the same time where each waits for a network.
func (s *Set) together(
	ctx context.Context,
	stream int,
	rows []robocache.Row,
	each func(ctx context.Context, at, n int, d *h5.Dataset) error,
) error {
	if len(rows) < 2 || !robocache.IsRemote(s.Bytes) {
		if err := s.runs(
			ctx,
			stream,
			rows,
			func(at, n int, d *h5.Dataset) error { return each(ctx, at, n, d) },
		); err != nil {
			return err
		}
		return nil
	}
	g, own := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	err := func() error {
		return s.runs(ctx, stream, rows, func(at, n int, d *h5.Dataset) error {
			g.Go(crash.Func(s.About.Format, func() error {
				return robocache.At(
					each(own, at, n, d),
					s.where(rows[at].Episode, s.Streams[stream].Key),
				)
			}))
			return nil
		})
	}()
	if err := g.Wait(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return nil
}

// ahead loads what rows of a remote stream lie in, of each file together.
func (s *Set) ahead(ctx context.Context, stream int, rows []robocache.Row) error {
	if s.Streams[stream].How == Encoded || len(rows) < 2 || !robocache.IsRemote(s.Bytes) {
		return nil
	}
	wanted := map[*h5.Dataset][]int64{}
	if err := s.runs(ctx, stream, rows, func(at, n int, d *h5.Dataset) error {
		for k := range n {
			wanted[d] = append(wanted[d], int64(rows[at].Index+k))
		}
		return nil
	}); err != nil {
		return err
	}
	for d, list := range wanted {
		if err := d.Ahead(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// encoded is an image in the bytes of a row; a row of zeros holds none.
func (st *Stream) encoded(b []byte) (robocache.FrameRef, error) {
	if b = Trim(b); len(b) == 0 {
		return robocache.FrameRef{Missing: true}, nil
	}
	if !st.BGR {
		return robocache.FrameRef{Encoded: b}, nil
	}
	// Encoded bytes cannot say that their channels are swapped, pixels can.
	info, err := video.StillSize(b)
	if err != nil {
		return robocache.FrameRef{}, err
	}
	n, err := video.StillBytes(info, &video.Spec{})
	if err != nil {
		return robocache.FrameRef{}, err
	}
	pix := make([]byte, n)
	if err := video.DecodeStill(b, &video.Spec{}, pix); err != nil {
		return robocache.FrameRef{}, err
	}
	return robocache.FrameRef{
		Raw: &robocache.Raw{
			Pix:      pix,
			Height:   info.Height,
			Width:    info.Width,
			Channels: 3,
			DType:    robocache.Uint8,
			BGR:      true,
		},
	}, nil
}

// Trim cuts what follows a JPEG or PNG image off: rows are filled up to the longest, and lengths
// that are stored beside are not always right.
func Trim(b []byte) []byte {
	n := 0
	switch {
	case len(b) > 3 && b[0] == 0xff && b[1] == 0xd8:
		n = jpegEnd(b)
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		n = pngEnd(b)
	}
	if n == 0 {
		return bytes.TrimRight(b, "\x00")
	}
	return b[:n:n]
}

// jpegEnd finds the end marker; 0 where there is none.
func jpegEnd(b []byte) int {
	for i := 2; i+1 < len(b); {
		if b[i] != 0xff {
			return 0
		}
		m := b[i+1]
		switch {
		case m == 0xff: // filling
			i++
		case m == 0xd9:
			return i + 2
		case m == 0x01 || m >= 0xd0 && m <= 0xd7:
			i += 2
		default:
			if i+3 >= len(b) {
				return 0
			}
			i += 2 + int(b[i+2])<<8 + int(b[i+3])
			if m != 0xda {
				continue
			}
			// The scan: up to a marker that is none of its own.
			for {
				if i >= len(b) {
					return 0
				}
				k := bytes.IndexByte(b[i:], 0xff)
				if k < 0 || i+k+1 >= len(b) {
					return 0
				}
				i += k
				if m := b[i+1]; m == 0 || m >= 0xd0 && m <= 0xd7 {
					i += 2
					continue
				}
				break
			}
		}
	}
	return 0
}

// pngEnd finds the end of the IEND chunk; 0 where there is none.
func pngEnd(b []byte) int {
	for i := 8; i+12 <= len(b); {
		n := int(b[i])<<24 | int(b[i+1])<<16 | int(b[i+2])<<8 | int(b[i+3])
		if n > len(b)-i-12 {
			return 0
		}
		last := string(b[i+4:i+8]) == "IEND"
		if i += 12 + n; last {
			return i
		}
	}
	return 0
}
