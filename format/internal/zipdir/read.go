package zipdir

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
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

// slack is the room of a local header's extra field that is read along with a member, rather than
// asking for it first.
const slack = 1 << 10

// fits holds a member's declared sizes to Z3 and Z4.
func (d *Dir) fits(f *File) {
	var err error
	switch {
	case f.Flags&1 != 0:
		err = robocache.Unsupported("zip", nil, "an encrypted member")
	case f.Method != Stored && f.Method != Deflate:
		err = robocache.Unsupported("zip", nil, "compression method %d", f.Method).
			WithHint("stored and deflate are read")
	case f.Method == Stored && f.Size != f.Packed:
		err = malformed("a stored member of %d bytes that takes %d", f.Size, f.Packed)
	case f.Method == Deflate && f.Size/maxRatio > f.Packed:
		err = malformed("%d bytes declared, more than %d packed ones can hold", f.Size, f.Packed)
	case f.Size > d.limit || f.Packed-f.Packed/8 > d.limit:
		// deflate adds five bytes for 65535 at worst
		err = robocache.ResourceLimit("zip", nil, "").
			Expected(fmt.Sprintf("at most %d bytes", d.limit), fmt.Sprint(max(f.Size, f.Packed)))
	}
	guard.Check(f.at(err))
}

// Bytes gives members whole, each checked by its CRC. What is given shares no memory with anything
// that changes.
func (d *Dir) Bytes(
	ctx context.Context,
	r robocache.Ranged,
	files []*File,
) (out [][]byte, err error) {
	defer guard.Recover("zip", &err)
	spans := make([]store.Span, len(files))
	for i, f := range files {
		d.fits(f)
		spans[i].Off = f.Header
	}
	guard.Check(fill(ctx, r, files, spans))
	out = make([][]byte, len(files))
	for i, f := range files {
		out[i] = f.content(ctx, r, spans[i].P, room)
	}
	return out, nil
}

func room(n int64) []byte { return make([]byte, n) }

// ByteIn is Bytes of one member in memory that room gives, which it may use again once the bytes
// are not needed any more.
func (d *Dir) ByteIn(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	room func(n int64) []byte,
) (_ []byte, err error) {
	defer guard.Recover("zip", &err)
	d.fits(f)
	b := room(f.want())
	guard.Check(f.at(r.ReadAt(ctx, b, f.Header)))
	return f.content(ctx, r, b, room), nil
}

// Prefix returns the first n bytes of a member, or all of it if it is shorter. Its CRC is not
// checked.
func (d *Dir) Prefix(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	n int64,
) (_ []byte, err error) {
	defer guard.Recover("zip", &err)
	d.fits(f)
	n = min(n, f.Size)
	packed := min(n+slack, f.Packed) // incompressible data grows by less than slack
	b := make([]byte, min(f.Room, localSize+int64(len(f.Name))+slack+packed))
	guard.Check(f.at(r.ReadAt(ctx, b, f.Header)))
	at := f.data(b)
	if at+packed > int64(len(b)) {
		b = make([]byte, packed)
		guard.Check(f.at(r.ReadAt(ctx, b, f.Header+at)))
		at = 0
	}
	b = b[at : at+packed]
	if f.Method == Stored {
		return b[:n], nil
	}
	out := make([]byte, n)
	got, err := io.ReadFull(flate.NewReader(bytes.NewReader(b)), out)
	if err != nil {
		return nil, f.at(
			malformed("deflate data of the first %d bytes ends after %d: %v", n, got, err),
		)
	}
	return out, nil
}

// content unpacks a member, of whose header and bytes b is what was read.
func (f *File) content(
	ctx context.Context,
	r robocache.Ranged,
	b []byte,
	room func(n int64) []byte,
) []byte {
	at := f.data(b)
	if at+f.Packed > int64(len(b)) {
		// A local extra field beyond the slack.
		b = room(f.Packed)
		guard.Check(f.at(r.ReadAt(ctx, b, f.Header+at)))
		at = 0
	}
	b = b[at : at+f.Packed : at+f.Packed]
	if f.Method == Deflate {
		out := room(f.Size)
		guard.Check(f.at(inflate.Raw(out, b)))
		b = out
	}
	if sum := crc32.ChecksumIEEE(b); sum != f.CRC {
		guard.Fail(f.at(robocache.Malformed("zip", nil, "CRC").
			Expected(fmt.Sprintf("%08x", f.CRC), fmt.Sprintf("%08x", sum))))
	}
	return b
}

// want is how many bytes are read of a member, header and all.
func (f *File) want() int64 { return min(f.Room, localSize+int64(len(f.Name))+slack+f.Packed) }

// near is how many bytes between members are read along rather than asking twice.
const near = 4 << 10

// fill reads the members' headers and bytes: those that lie side by side at once.
func fill(ctx context.Context, r robocache.Ranged, files []*File, spans []store.Span) error {
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
	defer guard.Recover("zip", &err)
	if d.fits(f); f.Method != Stored {
		guard.Fail(f.at(robocache.Misuse("zip", nil, "a deflated member has no bytes in place")))
	}
	return f.Header + f.data(bytesAt(ctx, r, f.Header, localSize)), nil
}

// data says where in a member's room, of which b is the beginning, its bytes begin.
func (f *File) data(b []byte) int64 {
	if string(b[:4]) != "PK\x03\x04" {
		guard.Fail(f.at(malformed("no local header at %d", f.Header)))
	}
	at := localSize + int64(le.Uint16(b[26:])) + int64(le.Uint16(b[28:]))
	if at+f.Packed > f.Room {
		guard.Fail(
			f.at(
				malformed(
					"%d bytes at %d reach into what comes next: members overlap",
					f.Packed,
					f.Header+at,
				),
			),
		)
	}
	return at
}
