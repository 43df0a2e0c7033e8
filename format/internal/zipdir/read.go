package zipdir

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/inflate"
	"github.com/goatnote-inc/robocache/store"
)

// Methods of a member.
const (
	Stored  = 0
	Deflate = 8
)

// maxRatio is the most that deflate can pack: 258 bytes in two bits.
const maxRatio = 1032

// slack is the room of a local header's extra field that is read along with a member, rather than asking for it first.
const slack = 1 << 10

// fits holds a member's declared sizes to Z3 and Z4.
func (d *Dir) fits(f *File) error {
	switch {
	case f.Flags&1 != 0:
		return robocache.At(&robocache.Error{Class: robocache.ErrUnsupported, Op: "zip", Msg: "an encrypted member"}, robocache.Where{"member": f.Name})
	case f.Method != Stored && f.Method != Deflate:
		return robocache.At(&robocache.Error{Class: robocache.ErrUnsupported, Op: "zip", Msg: fmt.Sprintf("compression method %d", f.Method), Hint: "stored and deflate are read"}, robocache.Where{"member": f.Name})
	case f.Method == Stored && f.Size != f.Packed:
		return robocache.At(bad("a stored member of %d bytes that takes %d", f.Size, f.Packed), robocache.Where{"member": f.Name})
	case f.Method == Deflate && f.Size/maxRatio > f.Packed:
		return robocache.At(bad("%d bytes declared, more than %d packed ones can hold", f.Size, f.Packed), robocache.Where{"member": f.Name})
	case f.Size > d.limit || f.Packed-f.Packed/8 > d.limit: // deflate adds five bytes for 65535 at worst
		return robocache.At(&robocache.Error{Class: robocache.ErrResourceLimit, Op: "zip", Want: fmt.Sprintf("at most %d bytes", d.limit), Got: fmt.Sprint(max(f.Size, f.Packed))}, robocache.Where{"member": f.Name})
	}
	return nil
}

// Bytes gives members whole, each checked by its CRC. What is given shares no memory with anything that changes.
func (d *Dir) Bytes(ctx context.Context, r robocache.Ranged, files []*File) ([][]byte, error) {
	return d.BytesIn(ctx, r, files, func(n int64) []byte { return make([]byte, n) })
}

// BytesIn is Bytes in memory that room gives, which it may use again once the bytes are not needed any more.
func (d *Dir) BytesIn(ctx context.Context, r robocache.Ranged, files []*File, room func(n int64) []byte) ([][]byte, error) {
	spans := make([]store.Span, len(files))
	for i, f := range files {
		if err := d.fits(f); err != nil {
			return nil, err
		}
		spans[i].Off = f.Header
	}
	if err := d.fill(ctx, r, files, spans, room); err != nil {
		return nil, err
	}
	out := make([][]byte, len(files))
	for i, f := range files {
		b, err := f.content(ctx, r, spans[i].P, room)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"member": f.Name})
		}
		out[i] = b
	}
	return out, nil
}

// ByteIn is BytesIn of one member.
func (d *Dir) ByteIn(ctx context.Context, r robocache.Ranged, f *File, room func(n int64) []byte) ([]byte, error) {
	if err := d.fits(f); err != nil {
		return nil, err
	}
	b := room(f.want())
	err := r.ReadAt(ctx, b, f.Header)
	if err == nil {
		if b, err = f.content(ctx, r, b, room); err == nil {
			return b, nil
		}
	}
	return nil, robocache.At(err, robocache.Where{"member": f.Name})
}

// content unpacks a member, of whose header and bytes b is what was read.
func (f *File) content(ctx context.Context, r robocache.Ranged, b []byte, room func(n int64) []byte) ([]byte, error) {
	at, err := f.data(b)
	if err != nil {
		return nil, err
	}
	if at+f.Packed > int64(len(b)) {
		// A local extra field beyond the slack.
		b = room(f.Packed)
		if err := r.ReadAt(ctx, b, f.Header+at); err != nil {
			return nil, err
		}
		at = 0
	}
	return f.unpack(b[at:at+f.Packed:at+f.Packed], room)
}

// want is how many bytes are read of a member, header and all.
func (f *File) want() int64 { return min(f.Room, localSize+int64(len(f.Name))+slack+f.Packed) }

// near is how many bytes between members are read along rather than asking twice.
const near = 4 << 10

// fill reads the members' headers and bytes: those that lie side by side at once.
func (d *Dir) fill(ctx context.Context, r robocache.Ranged, files []*File, spans []store.Span, room func(n int64) []byte) error {
	lo, hi, sum := r.Size(), int64(0), int64(0)
	for _, f := range files {
		n := f.want()
		lo, hi, sum = min(lo, f.Header), max(hi, f.Header+n), sum+n
	}
	if len(files) > 1 && hi-lo <= sum+near {
		b := room(hi - lo)
		for i, f := range files {
			spans[i].P = b[f.Header-lo:][:f.want()]
		}
		return r.ReadAt(ctx, b, lo)
	}
	for i, f := range files {
		spans[i].P = room(f.want())
	}
	return store.ReadRanges(ctx, r, spans)
}

// Section says where the bytes of a stored member lie in the archive.
func (d *Dir) Section(ctx context.Context, r robocache.Ranged, f *File) (off int64, err error) {
	if err := d.fits(f); err != nil {
		return 0, err
	}
	if f.Method != Stored {
		return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "zip", Where: robocache.Where{"member": f.Name}, Msg: "a deflated member has no bytes in place"}
	}
	var b [localSize]byte
	if err := r.ReadAt(ctx, b[:], f.Header); err != nil {
		return 0, err
	}
	at, err := f.data(b[:])
	return f.Header + at, robocache.At(err, robocache.Where{"member": f.Name})
}

// data says where in a member's room, of which b is the beginning, its bytes begin.
func (f *File) data(b []byte) (int64, error) {
	if string(b[:4]) != "PK\x03\x04" {
		return 0, bad("no local header at %d", f.Header)
	}
	at := localSize + int64(binary.LittleEndian.Uint16(b[26:])) + int64(binary.LittleEndian.Uint16(b[28:]))
	if at+f.Packed > f.Room {
		return 0, bad("%d bytes at %d reach into what comes next: members overlap", f.Packed, f.Header+at)
	}
	return at, nil
}

func (f *File) unpack(b []byte, room func(n int64) []byte) ([]byte, error) {
	if f.Method == Deflate {
		out := room(f.Size)
		if err := inflate.Raw(out, b); err != nil {
			return nil, err
		}
		b = out
	}
	if sum := crc32.ChecksumIEEE(b); sum != f.CRC {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zip", Msg: "CRC", Want: fmt.Sprintf("%08x", f.CRC), Got: fmt.Sprintf("%08x", sum)}
	}
	return b, nil
}
