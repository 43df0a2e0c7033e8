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

// Frames returns the images of rows as pixels, or as JPEG or PNG bytes. The caller owns the pixels.
// The caller must not modify the encoded bytes.
func (s *Set) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	return s.readFrames(ctx, key, rows, out, nil)
}

// LeaseFrames is like Frames, but makes no copies. Pixels alias the cache, and the caller must not
// modify them. Pixels that are not cached are read into memory that is reused after done.
func (s *Set) LeaseFrames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (done func(), err error) {
	l := lease.Get()
	if err := s.readFrames(ctx, key, rows, out, l); err != nil {
		l.Done()
		return nil, err
	}
	return l.Done, nil
}

// keepBuffer is the size above which rows are not read into leased memory.
const keepBuffer = 4 << 20

// viewRows is Dataset.View, except that uncached rows are read into a buffer of l.
func viewRows(
	ctx context.Context,
	l *lease.Lease,
	d *h5.Dataset,
	row, n int64,
) ([]byte, int64, error) {
	if l == nil || !d.Past() || n*d.RowBytes() > keepBuffer {
		return d.View(ctx, row, n)
	}
	b := l.Room(n * d.RowBytes())
	return b, n, d.ReadRows(ctx, row, n, b)
}

func (s *Set) readFrames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
	l *lease.Lease,
) (err error) {
	defer crash.Recover(s.About.Format+" frames", &err)
	i, err := s.streamIndex(key, robocache.KindImage)
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
	if err := s.prefetchRows(ctx, i, rows); err != nil {
		return err
	}
	if err := s.forEachRunParallel(
		ctx,
		i,
		rows,
		func(ctx context.Context, at, n int, d *h5.Dataset) (err error) {
			first := int64(rows[at].Index)
			if st.How == Encoded {
				b, err := d.Bytes(ctx, first, int64(n))
				for k := 0; k < len(b) && err == nil; k++ {
					out[at+k], err = st.encodedImage(b[k])
				}
				return err
			}
			if err := d.Warm(ctx, first, int64(n)); err != nil {
				return err
			}
			for k := 0; k < n; {
				b, m, err := viewRows(ctx, l, d, first+int64(k), int64(n-k))
				if err != nil {
					return err
				}
				size := int(d.RowBytes())
				for j := range int(m) {
					row := b[j*size : (j+1)*size : (j+1)*size]
					if st.How == Padded {
						if out[at+k], err = st.encodedImage(row); err != nil {
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

// remoteReads is the number of reads that run in parallel for one call.
const remoteReads = 16

// forEachRunParallel is forEachRun with several calls in parallel if the store is remote.
func (s *Set) forEachRunParallel(
	ctx context.Context,
	stream int,
	rows []robocache.Row,
	each func(ctx context.Context, at, n int, d *h5.Dataset) error,
) error {
	if len(rows) < 2 || !robocache.IsRemote(s.Bytes) {
		if err := s.forEachRun(
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
	g.SetLimit(remoteReads)
	err := func() error {
		return s.forEachRun(ctx, stream, rows, func(at, n int, d *h5.Dataset) error {
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

// prefetchRows loads the data that the rows of a remote stream need, with one request list per
// file.
func (s *Set) prefetchRows(ctx context.Context, stream int, rows []robocache.Row) error {
	if s.Streams[stream].How == Encoded || len(rows) < 2 || !robocache.IsRemote(s.Bytes) {
		return nil
	}
	wanted := map[*h5.Dataset][]int64{}
	if err := s.forEachRun(ctx, stream, rows, func(at, n int, d *h5.Dataset) error {
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

// encodedImage returns the image in the bytes of a row. A row of zeros has no image.
func (st *Stream) encodedImage(b []byte) (robocache.FrameRef, error) {
	if b = Trim(b); len(b) == 0 {
		return robocache.FrameRef{Missing: true}, nil
	}
	if !st.BGR {
		return robocache.FrameRef{Encoded: b}, nil
	}
	// Only pixels can be marked as BGR, so the image is decoded.
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

// Trim removes the bytes after the end of a JPEG or PNG image. Rows are padded to the length of the
// longest, and lengths that files store separately are not always right.
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

// jpegEnd returns the offset behind the end marker, or 0 if there is none.
func jpegEnd(b []byte) int {
	for i := 2; i+1 < len(b); {
		if b[i] != 0xff {
			return 0
		}
		m := b[i+1]
		switch {
		case m == 0xff: // padding
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
			// The scan continues up to a marker that does not belong to it.
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

// pngEnd returns the offset behind the IEND chunk, or 0 if there is none.
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
