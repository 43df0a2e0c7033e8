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

// Limits on the sizes that a file may declare.
const (
	maxChunk    = 256 << 20 // bytes of a decoded chunk, or of a band of rows
	maxRow      = 1 << 30   // bytes of a row that is not cached
	maxMetadata = 64 << 20  // bytes of one piece of metadata
	maxRatio    = 1040      // deflate reaches at most 1,032
	maxDepth    = 32        // nesting of types, and levels of trees
	maxSoft     = 16        // soft links on the way to one object
	maxPath     = 4096
)

// File is an open HDF5 file. It is safe for concurrent use.
type File struct {
	r     robocache.Ranged
	name  string
	size  uint64
	id    uint32
	cache *Cache
	block int64 // bytes that one read of metadata fetches

	base     uint64 // added to every address
	osz, lsz int
	root     uint64
	lax      bool // skips the checksums of metadata; for fuzzing
	// Superblock is the version of the superblock.
	Superblock int
	// Open reports that the writer has not closed the file: the flags are set, or bytes follow the
	// end of file that the superblock declares.
	Open bool
}

var signature = []byte("\x89HDF\r\n\x1a\n")

// Detect reports whether the file begins with the HDF5 signature, with or without a user block.
func Detect(ctx context.Context, r robocache.Ranged) (bool, error) {
	_, ok, err := findSignature(ctx, r)
	return ok, err
}

func findSignature(ctx context.Context, r robocache.Ranged) (at int64, ok bool, err error) {
	var b [8]byte
	for at = 0; at <= r.Size()-8 && at < 1<<40; at = max(2*at, 512) {
		if err := r.ReadAt(ctx, b[:], at); err != nil || bytes.Equal(b[:], signature) {
			return at, err == nil, err
		}
	}
	return 0, false, nil
}

// Open reads the superblock of a file. Errors mention name. Close of the File does not close r.
func Open(ctx context.Context, r robocache.Ranged, name string, cache *Cache) (*File, error) {
	return openSuperblock(
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

func openSuperblock(ctx context.Context, f *File) (_ *File, err error) {
	defer guard.Recover("hdf5", &err)
	if store.Remote(f.r) {
		f.block = 64 << 10
	}
	f.readSuperblock(ctx)
	return f, nil
}

// Named returns a File that has only a name, for error messages.
func Named(name string) *File { return &File{name: name} }

// Close removes the entries of the file from the cache.
func (f *File) Close() { f.cache.entries.Forget(func(k key) bool { return k.file == f.id }) }

// Name returns the name of the file.
func (f *File) Name() string { return f.name }

// Size returns the length of the file in bytes.
func (f *File) Size() int64 { return int64(f.size) }

func (f *File) readSuperblock(ctx context.Context) {
	at, ok, err := findSignature(ctx, f.r)
	guard.Check(err)
	if !ok {
		guard.Fail(robocache.Malformed("hdf5", robocache.Where{"file": f.name}, "").
			Expected("an HDF5 signature at 0, 512, 1024, …", "none"))
	}
	b := make([]byte, min(256, int64(f.size)-at))
	guard.Check(f.r.ReadAt(ctx, b, at))
	c := f.newCursor(uint64(at), "the superblock", b)
	c.skip(8)
	f.Superblock = int(c.u8())
	sizes := func() {
		f.osz, f.lsz = int(c.u8()), int(c.u8())
		for _, n := range []int{f.osz, f.lsz} {
			if n != 2 && n != 4 && n != 8 {
				f.failUnsupported(
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
		f.base = c.readAddr()
		c.readAddr()
		eof, driver = c.readAddr(), c.readAddr()
		c.readAddr()
		f.root = c.readAddr()
	case 2, 3:
		sizes()
		f.Open = c.u8()&5 != 0 && f.Superblock == 3
		f.base = c.readAddr()
		c.readAddr()
		eof, f.root = c.readAddr(), c.readAddr()
		if sum := lookup3Hash(b[:c.off]); c.u32() != sum && !f.lax {
			f.failMalformed(uint64(at), "the superblock's checksum does not match its bytes")
		}
	default:
		f.failUnsupported(
			uint64(at),
			fmt.Sprintf("superblock version %d", f.Superblock),
			"versions 0 to 3 are read",
		)
	}
	if driver != undefined {
		f.failUnsupported(uint64(at), "a file of several parts (driver information block)", "")
	}
	if f.base > uint64(at) || f.base >= f.size {
		f.failMalformed(uint64(at), "base address %d after the superblock", f.base)
	}
	if eof != undefined && eof < f.size && eof+f.base < f.size {
		f.Open = true
	}
	if eof != undefined && eof > f.size {
		guard.Fail(robocache.Malformed("hdf5", robocache.Where{"file": f.name}, "").
			Expected(
				fmt.Sprintf("%d bytes, as the superblock says", eof),
				fmt.Sprintf("%d", f.size),
			).
			WithHint("the file looks truncated, or its writer was stopped; fetch it again, or " +
				"repair it with h5clear"),
		)
	}
}

// fileOffset returns the offset in the file of n bytes at an address. It fails the read if they are
// not inside the file.
func (f *File) fileOffset(addr, n uint64, what string) int64 {
	at := addr + f.base
	if addr == undefined || at < addr || at > f.size || n > f.size-at || at > math.MaxInt64 {
		guard.Fail(
			robocache.Malformed(
				"hdf5",
				robocache.Where{"file": f.name, "offset": addr},
				"%s",
				what,
			).
				Expected(
					"a place inside the file",
					fmt.Sprintf("%d bytes at %d of %d", n, addr, f.size),
				).
				WithHint("the file may be cut off: fetch it again"),
		)
	}
	return int64(at)
}

// readMetadata returns n bytes at an address. The caller must not modify them.
func (f *File) readMetadata(ctx context.Context, addr uint64, n uint64, what string) []byte {
	at := f.fileOffset(addr, n, what)
	f.checkLimit(addr, what, n, maxMetadata)
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

// blockAt returns the i-th block of the file.
func (f *File) blockAt(ctx context.Context, i int64) []byte {
	return loadCached(ctx, f, key{f.id, kindBlock, 0, i}, func() ([]byte, int64) {
		b := make([]byte, min(f.block, int64(f.size)-i*f.block))
		guard.Check(f.r.ReadAt(ctx, b, i*f.block))
		return b, int64(len(b))
	})
}

// readStructure reads a piece of metadata that begins with the signature sig. If sum is set, the
// piece ends with a checksum of the bytes before.
func (f *File) readStructure(ctx context.Context, addr, n uint64, sig string, sum bool) *cursor {
	b := f.readMetadata(ctx, addr, n, sig)
	if len(b) < len(sig) || string(b[:len(sig)]) != sig {
		f.failMalformed(addr, "expected %q, found %q", sig, b[:min(len(sig), len(b))])
	}
	if sum {
		end := len(b) - 4
		if end < len(sig) {
			f.failMalformed(addr, "%s is too small", sig)
		}
		if !f.lax && uint64(lookup3Hash(b[:end])) != leUint(b[end:]) {
			f.failMalformed(addr, "the checksum of %s does not match its bytes", sig)
		}
		b = b[:end:end]
	}
	c := f.newCursor(addr, sig, b)
	c.off = len(sig)
	return c
}

// newError returns an error that contains the file name and an address.
func (f *File) newError(class error, addr uint64, format string, args ...any) *robocache.Error {
	return robocache.NewError(
		class,
		"hdf5",
		robocache.Where{"file": f.name, "offset": addr},
		format,
		args...)
}

// failMalformed fails the read because the file is malformed.
func (f *File) failMalformed(addr uint64, format string, args ...any) {
	guard.Fail(f.newError(robocache.ErrMalformed, addr, format, args...))
}

// failUnsupported fails the read because the file uses an unsupported feature.
func (f *File) failUnsupported(addr uint64, what, hint string) {
	e := f.newError(robocache.ErrUnsupported, addr, "%s", what)
	e.Hint = hint
	guard.Fail(e)
}

// checkLimit fails the read if got is larger than limit.
func (f *File) checkLimit(addr uint64, what string, got, limit uint64) {
	if got > limit {
		guard.Fail(f.limitError(addr, what, got, limit))
	}
}

func (f *File) limitError(addr uint64, what string, got, limit uint64) *robocache.Error {
	e := f.newError(robocache.ErrResourceLimit, addr, "%s", what)
	e.Want, e.Got = fmt.Sprintf("at most %d bytes", limit), fmt.Sprint(got)
	return e
}
