package rlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// packing is how a whole shard is compressed. Nothing in the metadata says it: the first bytes do.
type packing uint8

const (
	unpacked packing = iota
	gzipped
	zlibStream
)

// maxRatio is the most that deflate can pack: 258 bytes in two bits. Depth of zeros comes near it.
const maxRatio = 1032

// packingOf looks at the first bytes. A record's head that holds is never taken for a compressed stream.
func packingOf(w *window) (packing, error) {
	if w.size < headBytes {
		return unpacked, nil
	}
	b, err := w.at(0, headBytes)
	if err != nil {
		return unpacked, err
	}
	if _, ok := recordLength(b); ok {
		return unpacked, nil
	}
	switch {
	case b[0] == 0x1f && b[1] == 0x8b && b[2] == 8:
		return gzipped, nil
	case b[0]&0x0f == 8 && b[0]>>4 <= 7 && (uint16(b[0])<<8|uint16(b[1]))%31 == 0 && b[1]&0x20 == 0:
		return zlibStream, nil
	}
	return unpacked, nil
}

// fileReader reads a file from its start.
type fileReader struct {
	ctx context.Context
	r   robocache.Ranged
	off int64
	err error // of the store, which the decompressor would wrap
}

func (f *fileReader) Read(p []byte) (int, error) {
	left := f.r.Size() - f.off
	if left <= 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), left)]
	if f.err = f.r.ReadAt(f.ctx, p, f.off); f.err != nil {
		return 0, f.err
	}
	f.off += int64(len(p))
	return len(p), nil
}

// stream gives the records of a compressed shard, one after the other, from its start or from a mark.
type stream struct {
	src   *fileReader
	r     *inflater
	pos   int64 // in the unpacked bytes
	limit int64 // of a record
}

// fault gives the store's error where that was the cause, and Malformed else.
func (s *stream) fault(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case s.src.err != nil:
		return s.src.err
	}
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Where: robocache.Where{"offset": s.pos}, Msg: "the compressed shard is damaged or cut", Err: err}
}

// next gives the next record with its frame, or io.EOF.
func (s *stream) next() (b []byte, off, n int64, err error) {
	head := make([]byte, headBytes)
	off = s.pos
	if k, err := io.ReadFull(s.r, head); err != nil {
		if errors.Is(err, io.EOF) && k == 0 {
			return nil, off, 0, io.EOF
		}
		return nil, off, 0, s.fault(err)
	}
	s.pos += headBytes
	size, ok := recordLength(head)
	if !ok {
		return nil, off, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Where: robocache.Where{"offset": off}, Msg: "the check sum of a record's length does not hold: the rest of the shard is lost"}
	}
	if size > uint64(s.limit) || size > uint64(s.src.r.Size())*maxRatio {
		return nil, off, 0, tooLarge(int64(min(size, 1<<62)), s.limit)
	}
	n = int64(size)
	// Grown as bytes arrive: the length is a claim until then.
	b = append(make([]byte, 0, headBytes+min(n, 1<<20)+tailBytes), head...)
	for want := headBytes + n + tailBytes; int64(len(b)) < want; {
		k := min(want-int64(len(b)), max(int64(len(b)), 1<<16))
		at := len(b)
		b = append(b, make([]byte, k)...)
		got, err := io.ReadFull(s.r, b[at:])
		s.pos += int64(got)
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, off, n, s.fault(err)
		}
	}
	return b, off, n, nil
}

// packedRecords indexes a compressed shard in one pass.
func (b *indexer) packedRecords(ctx context.Context, r robocache.Ranged) error {
	x := b.x
	x.marks = &marks{spacing: markSpacing, most: b.marks}
	s, err := openMarked(ctx, r, x.packed, b.limit, nil)
	if err != nil {
		return err
	}
	s.r.marks = x.marks
	for err == nil {
		var data []byte
		var off, n int64
		if data, off, n, err = s.next(); err != nil {
			break
		}
		g, perr := b.parse(data)
		if err := b.add(off, n, g, perr); err != nil {
			return err
		}
		err = ctx.Err()
	}
	switch {
	case err == nil || err == io.EOF:
		return nil
	case errors.Is(err, robocache.ErrMalformed), errors.Is(err, robocache.ErrResourceLimit):
		b.find("truncated-shard", 0, "%v: the rest of the shard is lost", err)
		return nil
	}
	return err
}

// readPacked gives the record at off of a compressed shard, and the stream behind it, which goes on from there. from is such a stream, or nil.
func readPacked(ctx context.Context, r robocache.Ranged, x *shardIndex, limit, off int64, from *stream) ([]byte, *stream, error) {
	s := from
	k := x.marks.before(off)
	if s == nil || s.pos > off || k != nil && k.out > s.pos {
		var err error
		if s, err = openMarked(ctx, r, x.packed, limit, k); err != nil {
			return nil, nil, err
		}
	} else {
		s.src.ctx, s.src.r = ctx, r // of the same version: who asks has checked
	}
	if s.pos < off {
		n, err := io.CopyN(io.Discard, s.r, off-s.pos)
		s.pos += n
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, nil, s.fault(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("read of a compressed shard: %w", err)
		}
	}
	b, _, _, err := s.next()
	if err == io.EOF {
		err = &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Where: robocache.Where{"offset": off}, Msg: "no record begins where one was indexed"}
	}
	if err != nil {
		return nil, nil, err
	}
	return b, s, nil
}

// parked keeps streams of compressed shards where they stand, so that who reads on in order goes through a shard once. They are few: each holds
// a decompressor (about 0.4 MB).
type parked struct {
	mu   sync.Mutex
	list []parkedStream // the newest last
}

type parkedStream struct {
	shard int
	s     *stream
}

const maxParked = 8

// take gives the stream of a shard that stands nearest before an offset; nil where there is none.
func (p *parked) take(shard int, off int64) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, k := range p.list {
		if k.shard == shard && k.s.pos <= off && (best < 0 || k.s.pos > p.list[best].s.pos) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	s := p.list[best].s
	p.list = slices.Delete(p.list, best, best+1)
	return s
}

func (p *parked) put(shard int, s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.src.ctx, s.src.r = nil, nil
	if p.list = append(p.list, parkedStream{shard, s}); len(p.list) > maxParked {
		p.list = slices.Delete(p.list, 0, 1)
	}
}
