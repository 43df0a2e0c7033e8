package h5

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// The caps on what a file may claim.
const (
	maxChunk    = 256 << 20 // bytes of a decoded chunk, or of a band of rows
	maxRow      = 1 << 30   // bytes of a row that is read past the cache
	maxMetadata = 64 << 20  // bytes of one piece of metadata
	maxRatio    = 1040      // deflate's is 1,032
	maxDepth    = 32        // of types inside types, and of trees
	maxSoft     = 16        // soft links on the way to one object
	maxPath     = 4096
)

// File is an open HDF5 file. It may be used by many goroutines.
type File struct {
	r     robocache.Ranged
	name  string
	size  uint64
	id    uint32
	cache *Cache
	block int64 // bytes that a read of metadata takes at once

	base     uint64 // of addresses
	osz, lsz int
	root     uint64
	lax      bool // checksums of metadata are not compared: for fuzzing
	// Superblock is the version of the superblock.
	Superblock int
	// Open is set if the file's writer has not closed it: its flags say so, or bytes follow its
	// end.
	Open bool
}

var signature = []byte("\x89HDF\r\n\x1a\n")

// Detect says whether the file begins as an HDF5 file does, with or without a user block.
func Detect(ctx context.Context, r robocache.Ranged) (bool, error) {
	_, ok, err := find(ctx, r)
	return ok, err
}

func find(ctx context.Context, r robocache.Ranged) (at int64, ok bool, err error) {
	var b [8]byte
	for at = 0; at <= r.Size()-8 && at < 1<<40; at = max(2*at, 512) {
		if err := r.ReadAt(ctx, b[:], at); err != nil || bytes.Equal(b[:], signature) {
			return at, err == nil, err
		}
	}
	return 0, false, nil
}

// Open reads the superblock of a file. name is for errors. Close of the File does not close r.
func Open(ctx context.Context, r robocache.Ranged, name string, cache *Cache) (*File, error) {
	return open(
		ctx,
		&File{
			r:     r,
			name:  name,
			size:  uint64(r.Size()),
			cache: cache,
			id:    cache.files.Add(1),
			block: 4 << 10,
		},
	)
}

func open(ctx context.Context, f *File) (_ *File, err error) {
	defer guard.Recover("hdf5", &err)
	if store.Remote(f.r) {
		f.block = 64 << 10
	}
	f.superblock(ctx)
	return f, nil
}

// Named is a file of which nothing but the name is known.
func Named(name string) *File { return &File{name: name} }

// Close lets go of what is cached of the file.
func (f *File) Close() { f.cache.things.Forget(func(k key) bool { return k.file == f.id }) }

// Name is the file's name.
func (f *File) Name() string { return f.name }

// Size is the file's length in bytes.
func (f *File) Size() int64 { return int64(f.size) }

func (f *File) superblock(ctx context.Context) {
	at, ok, err := find(ctx, f.r)
	guard.Check(err)
	if !ok {
		guard.Fail(robocache.Malformed("hdf5", robocache.Where{"file": f.name}, "").
			Expected("an HDF5 signature at 0, 512, 1024, …", "none"))
	}
	b := make([]byte, min(256, int64(f.size)-at))
	guard.Check(f.r.ReadAt(ctx, b, at))
	c := f.cursor(uint64(at), "the superblock", b)
	c.skip(8)
	f.Superblock = int(c.u8())
	sizes := func() {
		f.osz, f.lsz = int(c.u8()), int(c.u8())
		for _, n := range []int{f.osz, f.lsz} {
			if n != 2 && n != 4 && n != 8 {
				f.unsupported(
					0,
					fmt.Sprintf("addresses of %d and lengths of %d bytes", f.osz, f.lsz),
					"",
				)
			}
		}
	}
	var eof, driver uint64 = 0, undefined
	switch f.Superblock {
	case 0, 1:
		c.skip(4)
		sizes()
		c.skip(9 + 4*f.Superblock)
		f.base = c.addr()
		c.addr()
		eof, driver = c.addr(), c.addr()
		c.addr()
		f.root = c.addr()
	case 2, 3:
		sizes()
		f.Open = c.u8()&5 != 0 && f.Superblock == 3
		f.base = c.addr()
		c.addr()
		eof, f.root = c.addr(), c.addr()
		if sum := lookup3(b[:c.off]); c.u32() != sum && !f.lax {
			f.bad(uint64(at), "the superblock's checksum does not match its bytes")
		}
	default:
		f.unsupported(
			uint64(at),
			fmt.Sprintf("superblock version %d", f.Superblock),
			"versions 0 to 3 are read",
		)
	}
	if driver != undefined {
		f.unsupported(uint64(at), "a file of several parts (driver information block)", "")
	}
	if f.base > uint64(at) || f.base >= f.size {
		f.bad(uint64(at), "base address %d after the superblock", f.base)
	}
	if eof != undefined && eof < f.size && eof+f.base < f.size {
		f.Open = true
	}
	if eof != undefined && eof > f.size {
		guard.Fail(robocache.Malformed("hdf5", robocache.Where{"file": f.name}, "").
			Expected(fmt.Sprintf("%d bytes, as the superblock says", eof), fmt.Sprintf("%d", f.size)).
			WithHint("the file looks truncated, or its writer was stopped; fetch it again, or repair it with h5clear"),
		)
	}
}

// place is where n bytes at an address lie in the file. Such as are not inside end the reading.
func (f *File) place(addr, n uint64, what string) int64 {
	at := addr + f.base
	if addr == undefined || at < addr || at > f.size || n > f.size-at || at > math.MaxInt64 {
		guard.Fail(
			robocache.Malformed("hdf5", robocache.Where{"file": f.name, "offset": addr}, "%s", what).
				Expected("a place inside the file", fmt.Sprintf("%d bytes at %d of %d", n, addr, f.size)).
				WithHint("the file may be cut off: fetch it again"),
		)
	}
	return int64(at)
}

// metadata gives n bytes at an address. They must not be changed.
func (f *File) metadata(ctx context.Context, addr uint64, n uint64, what string) []byte {
	at := f.place(addr, n, what)
	f.limit(addr, what, n, maxMetadata)
	first, last := at/f.block, (at+int64(n)-1)/f.block
	if n > 0 && first == last {
		at -= first * f.block
		return f.blockAt(ctx, first)[at : at+int64(n) : at+int64(n)]
	}
	out := make([]byte, n)
	if last-first > 2 {
		guard.Check(f.r.ReadAt(ctx, out, at))
		return out
	}
	for done := int64(0); done < int64(n); {
		i := (at + done) / f.block
		done += int64(copy(out[done:], f.blockAt(ctx, i)[at+done-i*f.block:]))
	}
	return out
}

// blockAt gives the i-th block of the file.
func (f *File) blockAt(ctx context.Context, i int64) []byte {
	return cached(ctx, f, key{f.id, kindBlock, 0, i}, func() ([]byte, int64) {
		b := make([]byte, min(f.block, int64(f.size)-i*f.block))
		guard.Check(f.r.ReadAt(ctx, b, i*f.block))
		return b, int64(len(b))
	})
}

// structure reads a piece of metadata that begins with a signature and, where sum is set, ends with
// a checksum of what is before.
func (f *File) structure(ctx context.Context, addr, n uint64, sig string, sum bool) *cursor {
	b := f.metadata(ctx, addr, n, sig)
	if len(b) < len(sig) || string(b[:len(sig)]) != sig {
		f.bad(addr, "expected %q, found %q", sig, b[:min(len(sig), len(b))])
	}
	if sum {
		end := len(b) - 4
		if end < len(sig) {
			f.bad(addr, "%s is too small", sig)
		}
		if !f.lax && uint64(lookup3(b[:end])) != leUint(b[end:]) {
			f.bad(addr, "the checksum of %s does not match its bytes", sig)
		}
		b = b[:end:end]
	}
	c := f.cursor(addr, sig, b)
	c.off = len(sig)
	return c
}

// error is one that names the file and the place in it.
func (f *File) error(class error, addr uint64, format string, args ...any) *robocache.Error {
	return robocache.NewError(
		class,
		"hdf5",
		robocache.Where{"file": f.name, "offset": addr},
		format,
		args...)
}

// bad ends the reading: the file is malformed.
func (f *File) bad(addr uint64, format string, args ...any) {
	guard.Fail(f.error(robocache.ErrMalformed, addr, format, args...))
}

// unsupported ends the reading: the file has something that is not read.
func (f *File) unsupported(addr uint64, what, hint string) {
	e := f.error(robocache.ErrUnsupported, addr, "%s", what)
	e.Hint = hint
	guard.Fail(e)
}

// limit ends the reading where something is larger than it may be.
func (f *File) limit(addr uint64, what string, got, limit uint64) {
	if got > limit {
		guard.Fail(f.above(addr, what, got, limit))
	}
}

func (f *File) above(addr uint64, what string, got, limit uint64) *robocache.Error {
	e := f.error(robocache.ErrResourceLimit, addr, "%s", what)
	e.Want, e.Got = fmt.Sprintf("at most %d bytes", limit), fmt.Sprint(got)
	return e
}
