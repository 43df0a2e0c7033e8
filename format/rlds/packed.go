package rlds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache"
)

// packing is how a whole shard is compressed. Nothing in the metadata says it: the first bytes do.
type packing uint8

const (
	unpacked packing = iota
	gzipped
	zlibStream
)

// maxRatio is the most that compressed bytes may grow.
const maxRatio = 1000

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

// stream gives the records of a compressed shard, one after the other: there is no way into its middle.
type stream struct {
	src   *fileReader
	r     io.Reader
	pos   int64 // in the unpacked bytes
	limit int64 // of a record
}

func openStream(ctx context.Context, r robocache.Ranged, p packing, limit int64) (*stream, error) {
	s := &stream{src: &fileReader{ctx: ctx, r: r}, limit: limit}
	in := bufio.NewReaderSize(s.src, 256<<10)
	var err error
	if p == gzipped {
		s.r, err = gzip.NewReader(in)
	} else {
		s.r, err = zlib.NewReader(in)
	}
	return s, s.fault(err)
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

// next gives the next record with its frame, or io.EOF. grab: false skips its bytes.
func (s *stream) next(grab func(off, n int64) bool) (b []byte, off, n int64, err error) {
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
	if grab != nil && !grab(off, n) {
		k, err := io.CopyN(io.Discard, s.r, n+tailBytes)
		s.pos += k
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, off, n, s.fault(err)
	}
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
	s, err := openStream(ctx, r, b.x.packed, b.limit)
	for err == nil {
		var data []byte
		var off, n int64
		if data, off, n, err = s.next(nil); err != nil {
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

// readPacked gives the record at off of a compressed shard. Those that pass by are offered to keep, which says whether it wants their bytes.
func readPacked(ctx context.Context, r robocache.Ranged, p packing, limit, off int64) ([]byte, error) {
	s, err := openStream(ctx, r, p, limit)
	if err != nil {
		return nil, err
	}
	for {
		b, at, _, err := s.next(func(at, _ int64) bool { return at == off })
		if err == io.EOF || err == nil && at > off {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Where: robocache.Where{"offset": off}, Msg: "no record begins where one was indexed"}
		}
		if err != nil {
			return nil, err
		}
		if at == off {
			return b, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read of a compressed shard: %w", err)
		}
	}
}
