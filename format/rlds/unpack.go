package rlds

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/lru"
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

const (
	defaultUnpackBytes = 64 << 30
	scratchBlock       = 1 << 20
)

// scratch is the temporary file in which the compressed shards of an open data set lie decompressed, in blocks of scratchBlock bytes.
// It has no name: the system takes it back with the process, however that ends, and other processes never see it.
type scratch struct {
	limit  int64 // in bytes
	shards *lru.Cache[string, *plainShard]

	mu   sync.Mutex
	file *os.File
	used int64   // blocks
	free []int64 // blocks of shards whose decompression failed
}

func newScratch(option string) (*scratch, error) {
	s := &scratch{limit: defaultUnpackBytes, shards: lru.New[string, *plainShard](0)} // of no budget, entries of no size: every one stays
	if option != "" {
		var err error
		if s.limit, err = strconv.ParseInt(option, 10, 64); err != nil || s.limit < 0 {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds", Where: robocache.Where{"option": "unpack_bytes"}, Want: "a number of bytes", Got: clip(option)}
		}
	}
	return s, nil
}

// plainShard is the whole records of a compressed shard.
type plainShard struct {
	in      *scratch
	blocks  []int64
	size    int64
	version string
	written int64
	damage  error // why the shard ends here: ErrMalformed or ErrResourceLimit
}

// shard decompresses a shard once. A record is taken only when all of it came: of a damaged shard those before the damage are given.
func (s *scratch) shard(ctx context.Context, name string, r robocache.Ranged, p packing, limit int64) (*plainShard, error) {
	return s.shards.Get(ctx, name+"\x00"+r.Version(), func() (*plainShard, int64, error) {
		u := &plainShard{in: s, version: r.Version()}
		out := bufio.NewWriterSize(u, 256<<10)
		src := &fileReader{ctx: ctx, r: r}
		var err error
		u.damage = u.copyRecords(out, src, p, limit)
		if err = out.Flush(); err == nil {
			err = src.err // of the store, which the decompressor wraps
		}
		if err == nil {
			return u, 0, nil
		}
		s.mu.Lock()
		s.free = append(s.free, u.blocks...)
		s.mu.Unlock()
		return nil, 0, err
	})
}

// copyRecords goes record by record: what is no record, or goes on for ever, ends it before it takes much room.
func (u *plainShard) copyRecords(out io.Writer, src *fileReader, p packing, limit int64) error {
	fault := func(msg string, err error) error {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Where: robocache.Where{"offset": u.size}, Msg: msg, Err: err}
	}
	const broken = "the compressed shard is damaged or cut"
	var z io.Reader
	var err error
	if in := bufio.NewReaderSize(src, 64<<10); p == gzipped {
		z, err = gzip.NewReader(in)
	} else {
		z, err = zlib.NewReader(in)
	}
	if err != nil {
		return fault(broken, err)
	}
	head := make([]byte, headBytes)
	for {
		if _, err := io.ReadFull(z, head); err == io.EOF {
			return nil
		} else if err != nil {
			return fault(broken, err)
		}
		n, ok := recordLength(head)
		if !ok {
			return fault("the check sum of a record's length does not hold", nil)
		}
		if n > uint64(limit) || n > uint64(src.r.Size())*maxRatio {
			return tooLarge(int64(min(n, 1<<62)), limit)
		}
		_, err := out.Write(head)
		if err == nil {
			_, err = io.CopyN(out, z, int64(n)+tailBytes)
		}
		if err != nil {
			return fault(broken, err)
		}
		u.size += headBytes + int64(n) + tailBytes
	}
}

// Write puts bytes behind those before, into blocks of the temporary file.
func (u *plainShard) Write(p []byte) (done int, err error) {
	for done < len(p) {
		at := u.written % scratchBlock
		if at == 0 {
			b, err := u.in.block()
			if err != nil {
				return done, err
			}
			u.blocks = append(u.blocks, b)
		}
		n := min(len(p)-done, int(scratchBlock-at))
		if _, err := u.in.file.WriteAt(p[done:done+n], u.blocks[len(u.blocks)-1]*scratchBlock+at); err != nil {
			return done, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "rlds", Where: robocache.Where{"file": os.TempDir()}, Msg: "a compressed shard is decompressed into a temporary file", Hint: unpackHint, Err: err}
		}
		done += n
		u.written += int64(n)
	}
	return done, nil
}

const unpackHint = "set TMPDIR to a folder with more room, or decompress the shards: gzip -d"

// block gives a free block of the temporary file.
func (s *scratch) block() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b, nil
	}
	if (s.used+1)*scratchBlock > s.limit {
		return 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "rlds", Where: robocache.Where{"option": "unpack_bytes"}, Msg: "the compressed shards, decompressed", Want: fmt.Sprintf("at most %d bytes", s.limit), Got: "more",
			Hint: "raise it (--option unpack_bytes=…) where the temporary folder has the room, or open one split"}
	}
	if s.file == nil {
		f, err := os.CreateTemp("", "robocache-rlds-*")
		if err == nil {
			err = os.Remove(f.Name())
		}
		if err != nil {
			return 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "rlds", Where: robocache.Where{"file": os.TempDir()}, Msg: "compressed shards need a temporary file", Hint: unpackHint, Err: err}
		}
		s.file = f
	}
	s.used++
	return s.used - 1, nil
}

func (s *scratch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
	}
}

// ReadAt reads of the decompressed bytes.
func (u *plainShard) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 || off > u.size-int64(len(p)) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "rlds", Where: robocache.Where{"offset": off}, Msg: "a range outside the decompressed shard", Err: io.ErrUnexpectedEOF}
	}
	for len(p) > 0 {
		at := off % scratchBlock
		n := min(int64(len(p)), scratchBlock-at)
		if _, err := u.in.file.ReadAt(p[:n], u.blocks[off/scratchBlock]*scratchBlock+at); err != nil {
			return robocache.At(err, robocache.Where{"file": os.TempDir()})
		}
		p, off = p[n:], off+n
	}
	return nil
}

// Size is that of the whole records.
func (u *plainShard) Size() int64 { return u.size }

// Version is that of the compressed file.
func (u *plainShard) Version() string { return u.version }

// Close does nothing: the temporary file stays as long as the data set is open.
func (u *plainShard) Close() error { return nil }

// fileReader reads a file from its start.
type fileReader struct {
	ctx context.Context
	r   robocache.Ranged
	off int64
	err error
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
