package h5

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
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
	// Open says that the file was not closed by its writer.
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
	for at = 0; at <= r.Size()-8 && at < 1<<40; {
		if err := r.ReadAt(ctx, b[:], at); err != nil {
			return 0, false, err
		}
		if bytes.Equal(b[:], signature) {
			return at, true, nil
		}
		if at = 2 * at; at == 0 {
			at = 512
		}
	}
	return 0, false, nil
}

// Open reads the superblock of a file. name is for errors. Close of the File does not close r.
func Open(ctx context.Context, r robocache.Ranged, name string, cache *Cache) (*File, error) {
	return open(ctx, &File{r: r, name: name, size: uint64(r.Size()), cache: cache, id: cache.files.Add(1), block: 4 << 10})
}

func open(ctx context.Context, f *File) (*File, error) {
	if store.Remote(f.r) {
		f.block = 64 << 10
	}
	if err := f.superblock(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// Named is a file of which nothing but the name is known.
func Named(name string) *File { return &File{name: name} }

// Close lets go of what is cached of the file.
func (f *File) Close() { f.cache.forget(f.id) }

// Name is the file's name.
func (f *File) Name() string { return f.name }

// Size is the file's length in bytes.
func (f *File) Size() int64 { return int64(f.size) }

func (f *File) superblock(ctx context.Context) error {
	at, ok, err := find(ctx, f.r)
	if err != nil {
		return err
	}
	if !ok {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": f.name}, Want: "an HDF5 signature at 0, 512, 1024, …", Got: "none"}
	}
	b := make([]byte, min(256, int64(f.size)-at))
	if err := f.r.ReadAt(ctx, b, at); err != nil {
		return err
	}
	c := &cursor{b: b, off: 8}
	f.Superblock = int(c.u8())
	var eof, driver uint64 = 0, undefined
	switch f.Superblock {
	case 0, 1:
		c.skip(4)
		f.osz, f.lsz = int(c.u8()), int(c.u8())
		c.skip(1 + 4 + 4)
		if f.Superblock == 1 {
			c.skip(4)
		}
		if err := f.sizes(c); err != nil {
			return err
		}
		f.base = c.addr()
		c.addr()
		eof, driver = c.addr(), c.addr()
		c.addr()
		f.root = c.addr()
	case 2, 3:
		f.osz, f.lsz = int(c.u8()), int(c.u8())
		flags := c.u8()
		if err := f.sizes(c); err != nil {
			return err
		}
		f.Open = f.Superblock == 3 && flags&5 != 0
		f.base = c.addr()
		c.addr()
		eof = c.addr()
		f.root = c.addr()
		if sum := lookup3(b[:min(c.off, len(b))]); !c.short && c.u32() != sum && !f.lax {
			return f.bad(uint64(at), "the superblock's checksum does not match its bytes")
		}
	default:
		return f.unsupported(uint64(at), fmt.Sprintf("superblock version %d", f.Superblock), "versions 0 to 3 are read")
	}
	if c.short {
		return f.bad(uint64(at), "the superblock is cut off")
	}
	if driver != undefined {
		return f.unsupported(uint64(at), "a file of several parts (driver information block)", "")
	}
	if f.base > uint64(at) || f.base >= f.size {
		return f.bad(uint64(at), fmt.Sprintf("base address %d after the superblock", f.base))
	}
	if eof != undefined && eof > f.size {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": f.name}, Want: fmt.Sprintf("%d bytes, as the superblock says", eof), Got: fmt.Sprintf("%d", f.size),
			Hint: "the file looks truncated, or its writer was stopped; fetch it again, or repair it with h5clear"}
	}
	return nil
}

func (f *File) sizes(c *cursor) error {
	for _, n := range []int{f.osz, f.lsz} {
		if n != 2 && n != 4 && n != 8 {
			return f.unsupported(0, fmt.Sprintf("addresses of %d and lengths of %d bytes", f.osz, f.lsz), "")
		}
	}
	c.osz, c.lsz = f.osz, f.lsz
	return nil
}

func (f *File) cursor(b []byte) *cursor { return &cursor{b: b, osz: f.osz, lsz: f.lsz} }

// place is where an address lies in the file; false where n bytes from there are not inside.
func (f *File) place(addr, n uint64) (int64, bool) {
	at := addr + f.base
	if addr == undefined || at < addr || at > f.size || n > f.size-at || at > math.MaxInt64 {
		return 0, false
	}
	return int64(at), true
}

// metadata gives n bytes at an address. They must not be changed.
func (f *File) metadata(ctx context.Context, addr uint64, n uint64, what string) ([]byte, error) {
	at, ok := f.place(addr, n)
	if !ok {
		return nil, f.outside(addr, n, what)
	}
	if n > maxMetadata {
		return nil, f.limit(addr, what, n, maxMetadata)
	}
	first, last := at/f.block, (at+int64(n)-1)/f.block
	if n > 0 && first == last {
		b, err := f.blockAt(ctx, first)
		if err != nil {
			return nil, err
		}
		at -= first * f.block
		return b[at : at+int64(n) : at+int64(n)], nil
	}
	out := make([]byte, n)
	if last-first > 2 {
		return out, f.r.ReadAt(ctx, out, at)
	}
	for done := int64(0); done < int64(n); {
		i := (at + done) / f.block
		b, err := f.blockAt(ctx, i)
		if err != nil {
			return nil, err
		}
		done += int64(copy(out[done:], b[at+done-i*f.block:]))
	}
	return out, nil
}

// blockAt gives the i-th block of the file.
func (f *File) blockAt(ctx context.Context, i int64) ([]byte, error) {
	v, err := f.cache.get(ctx, key{f.id, kindBlock, 0, i}, func() (any, int64, error) {
		b := make([]byte, min(f.block, int64(f.size)-i*f.block))
		if err := f.r.ReadAt(ctx, b, i*f.block); err != nil {
			return nil, 0, err
		}
		return b, int64(len(b)), nil
	})
	if err != nil {
		return nil, err
	}
	return v.([]byte), nil
}

// structure reads a piece of metadata that begins with a signature and, where sum is set, ends with a checksum of what is before.
func (f *File) structure(ctx context.Context, addr, n uint64, sig string, sum bool) (*cursor, error) {
	b, err := f.metadata(ctx, addr, n, sig)
	if err != nil {
		return nil, err
	}
	if len(b) < len(sig) || string(b[:len(sig)]) != sig {
		return nil, f.bad(addr, fmt.Sprintf("expected %q, found %q", sig, b[:min(len(sig), len(b))]))
	}
	if sum {
		if len(b) < 4+len(sig) {
			return nil, f.bad(addr, sig+" is too small")
		}
		end := len(b) - 4
		if !f.lax && uint64(lookup3(b[:end])) != leUint(b[end:]) {
			return nil, f.bad(addr, "the checksum of "+sig+" does not match its bytes")
		}
		b = b[:end:end]
	}
	c := f.cursor(b)
	c.off = len(sig)
	return c, nil
}

func (f *File) bad(addr uint64, msg string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": f.name, "offset": addr}, Msg: msg}
}

func (f *File) outside(addr, n uint64, what string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": f.name, "offset": addr}, Msg: what, Want: "a place inside the file", Got: fmt.Sprintf("%d bytes at %d of %d", n, addr, f.size),
		Hint: "the file may be cut off: fetch it again"}
}

func (f *File) unsupported(addr uint64, what, hint string) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "hdf5", Where: robocache.Where{"file": f.name, "offset": addr}, Msg: what, Hint: hint}
}

func (f *File) limit(addr uint64, what string, got, limit uint64) *robocache.Error {
	return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "hdf5", Where: robocache.Where{"file": f.name, "offset": addr}, Msg: what, Want: fmt.Sprintf("at most %d bytes", limit), Got: fmt.Sprint(got)}
}
