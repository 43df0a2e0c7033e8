package calvin

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
)

// Frames gives the pixels of pictures: of stored members they are the file's bytes, as they were read.
func (d *Dataset) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) error {
	return d.frames(ctx, key, rows, out, func(n int64) []byte { return make([]byte, n) })
}

// loan is memory of pictures that are lent.
type loan struct {
	mu      sync.Mutex
	buffers []*[]byte
}

var (
	loans   = sync.Pool{New: func() any { return new(loan) }}
	buffers = sync.Pool{New: func() any { return new([]byte) }}
)

// keepBuffer is the size from which on a buffer is not kept for the next call.
const keepBuffer = 4 << 20

func (l *loan) room(n int64) []byte {
	b := buffers.Get().(*[]byte)
	if int64(cap(*b)) < n {
		*b = make([]byte, n)
	}
	l.mu.Lock()
	l.buffers = append(l.buffers, b)
	l.mu.Unlock()
	return (*b)[:n]
}

func (l *loan) done() {
	for i, b := range l.buffers {
		if cap(*b) <= keepBuffer {
			buffers.Put(b)
		}
		l.buffers[i] = nil
	}
	l.buffers = l.buffers[:0]
	loans.Put(l)
}

// LendFrames is Frames without garbage: pixels lie in memory that is used again after done.
func (d *Dataset) LendFrames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (done func(), err error) {
	l := loans.Get().(*loan)
	if err := d.frames(ctx, key, rows, out, l.room); err != nil {
		l.done()
		return nil, err
	}
	return l.done, nil
}

func (d *Dataset) frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef, room func(n int64) []byte) (err error) {
	defer guard("frames", &err)
	s, err := d.get(key, robocache.KindImage)
	if err != nil {
		return err
	}
	if len(out) != len(rows) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "calvin frames", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("%d places", len(rows)), Got: fmt.Sprint(len(out))}
	}
	return d.each(ctx, rows, func(ctx context.Context, i int) error {
		b, err := d.array(ctx, d.eps[rows[i].Episode], rows[i].Index, s.member, room)
		if err != nil {
			return err
		}
		ft := s.feature
		if size := ft.DType.Size(); d.members[s.member].shared {
			all := len(b) / (ft.Height * ft.Width * size)
			part := room(int64(ft.Height * ft.Width * ft.Channels * size))
			channels(part, b[s.from*size:], all*size, ft.Channels*size)
			b = part
		}
		out[i] = robocache.FrameRef{Raw: &robocache.Raw{Pix: b, Height: ft.Height, Width: ft.Width, Channels: ft.Channels, DType: ft.DType}}
		return nil
	})
}

// part names an array of a frame that several streams are made of.
type part struct {
	frame  int64
	member int
}

// array reads one array of a frame. One that several streams want is kept for the others.
func (d *Dataset) array(ctx context.Context, e episode, row, member int, room func(n int64) []byte) ([]byte, error) {
	if !d.members[member].shared {
		return d.load(ctx, e, row, member, room)
	}
	return d.parts.Get(ctx, part{d.frameID(e, row), member}, func() ([]byte, int64, error) {
		b, err := d.load(ctx, e, row, member, func(n int64) []byte { return make([]byte, n) })
		return b, int64(cap(b)), err
	})
}

func (d *Dataset) load(ctx context.Context, e episode, row, member int, room func(n int64) []byte) ([]byte, error) {
	f, h, name, err := d.open(ctx, e, row, true)
	if err != nil {
		return nil, err
	}
	defer d.files.put(h)
	contents, err := f.dir.BytesIn(ctx, h.r, []*zipdir.File{&f.dir.Files[f.files[member]]}, room)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": name})
	}
	b, err := d.members[member].data(contents[0])
	return b, robocache.At(err, robocache.Where{"file": name})
}

// channels copies width bytes of every step bytes of src. dst is as long as what comes of it.
func channels(dst, src []byte, step, width int) {
	p, at := 0, 0
	if width == 3 || width == 4 {
		// Four bytes at a time: of three channels the fourth byte is written over by the next pixel.
		for ; p+4 <= len(src) && at+4 <= len(dst); p, at = p+step, at+width {
			binary.LittleEndian.PutUint32(dst[at:], binary.LittleEndian.Uint32(src[p:]))
		}
	}
	for ; p+width <= len(src) && at+width <= len(dst); p, at = p+step, at+width {
		copy(dst[at:at+width], src[p:p+width])
	}
}
