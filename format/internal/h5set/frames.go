package h5set

import (
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/video"
)

// Frames gives the pictures of rows: their pixels, or their JPEG or PNG bytes.
func (s *Set) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (err error) {
	return s.frames(ctx, key, rows, out, nil)
}

// lent are the buffers that a call of LendFrames filled.
type lent struct{ buffers []*[]byte }

var (
	loans   = sync.Pool{New: func() any { return new(lent) }}
	buffers = sync.Pool{New: func() any { return new([]byte) }}
)

// keepBuffer is the size from which on a buffer is not kept for the next call.
const keepBuffer = 4 << 20

// LendFrames is Frames without garbage: pixels that are read past the cache lie in memory that is used again after done.
func (s *Set) LendFrames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (done func(), err error) {
	l := loans.Get().(*lent)
	done = func() {
		for i, b := range l.buffers {
			if cap(*b) <= keepBuffer {
				buffers.Put(b)
			}
			l.buffers[i] = nil
		}
		l.buffers = l.buffers[:0]
		loans.Put(l)
	}
	if err := s.frames(ctx, key, rows, out, l); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// view gives rows as Dataset.View does, in a buffer of l where they are to be read anew.
func (l *lent) view(ctx context.Context, d *h5.Dataset, row, n int64) ([]byte, int64, error) {
	if l == nil || !d.Past() || n*d.RowBytes() > keepBuffer {
		return d.View(ctx, row, n)
	}
	b := buffers.Get().(*[]byte)
	size := int(n * d.RowBytes())
	if cap(*b) < size {
		*b = make([]byte, size)
	}
	l.buffers = append(l.buffers, b)
	return (*b)[:size], n, d.ReadRows(ctx, row, n, (*b)[:size])
}

func (s *Set) frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef, l *lent) (err error) {
	defer Guard(s.Info_.Format+" frames", &err)
	i, err := s.get(key, robocache.KindImage)
	if err != nil {
		return err
	}
	if len(out) != len(rows) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: s.Info_.Format + " frames", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("room for %d rows", len(rows)), Got: fmt.Sprint(len(out))}
	}
	st := &s.Streams[i]
	var raws []robocache.Raw
	if st.How == Pixels {
		raws = make([]robocache.Raw, len(rows))
	}
	for at := 0; at < len(rows); {
		n, err := s.run(rows[at:])
		if err != nil {
			return err
		}
		e := rows[at].Episode
		d, err := s.dataset(ctx, e, i)
		if err != nil {
			return err
		}
		first := int64(rows[at].Index)
		if d.Filtered() && n > 1 {
			want := make([]int64, n)
			for k := range want {
				want[k] = first + int64(k)
			}
			if err := d.Warm(ctx, want); err != nil {
				return s.placed(err, e, key)
			}
		}
		for k := 0; k < n; {
			if st.How == Encoded {
				b, err := d.Bytes(ctx, first+int64(k), 1)
				if err != nil {
					return s.placed(err, e, key)
				}
				if out[at+k], err = st.encoded(b[0]); err != nil {
					return s.placed(err, e, key)
				}
				k++
				continue
			}
			b, m, err := l.view(ctx, d, first+int64(k), int64(n-k))
			if err != nil {
				return s.placed(err, e, key)
			}
			size := int(d.RowBytes())
			for j := range int(m) {
				row := b[j*size : (j+1)*size : (j+1)*size]
				if st.How == Padded {
					if out[at+k+j], err = st.encoded(row); err != nil {
						return s.placed(err, e, key)
					}
					continue
				}
				r := &raws[at+k+j]
				*r = robocache.Raw{Pix: row, Height: st.Height, Width: st.Width, Channels: st.Channels, DType: st.DType, BGR: st.BGR}
				out[at+k+j] = robocache.FrameRef{Raw: r}
			}
			k += int(m)
		}
		at += n
	}
	return nil
}

// encoded is a picture in the bytes of a row; a row of zeros holds none.
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
	return robocache.FrameRef{Raw: &robocache.Raw{Pix: pix, Height: info.Height, Width: info.Width, Channels: 3, DType: robocache.Uint8, BGR: true}}, nil
}
