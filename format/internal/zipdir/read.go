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

// maxRatio is the maximum ratio of deflate: 258 bytes in two bits.
const maxRatio = 1032

// slack is the space for the extra field of a local header that is read together with a member. It
// avoids a separate request for the header.
const slack = 1 << 10

// checkReadable checks zipdir.Z3 and zipdir.Z4 for a member.
func (d *Dir) checkReadable(f *File) {
	var err error
	switch {
	case f.Flags&1 != 0:
		err = robocache.Unsupported("zip", nil, "an encrypted member")
	case f.Method != Stored && f.Method != Deflate:
		err = robocache.Unsupported("zip", nil, "compression method %d", f.Method).
			WithHint("Supported methods are stored and deflate.")
	case f.Method == Stored && f.Size != f.Packed:
		err = malformed("a stored member of %d bytes that takes %d", f.Size, f.Packed)
	case f.Method == Deflate && f.Size/maxRatio > f.Packed:
		err = malformed("%d bytes declared, more than %d packed ones can hold", f.Size, f.Packed)
	case f.Size > d.limit || f.Packed-f.Packed/8 > d.limit:
		// deflate adds at most five bytes per 65535
		err = robocache.ResourceLimit("zip", nil, "").
			Expected(fmt.Sprintf("at most %d bytes", d.limit), fmt.Sprint(max(f.Size, f.Packed)))
	}
	guard.Check(f.withMember(err))
}

// Bytes returns whole members after checking their CRC. The caller owns the results.
func (d *Dir) Bytes(
	ctx context.Context,
	r robocache.Ranged,
	files []*File,
) (out [][]byte, err error) {
	defer guard.Recover("zip", &err)
	spans := make([]store.Span, len(files))
	for i, f := range files {
		d.checkReadable(f)
		spans[i].Off = f.Header
	}
	guard.Check(readMembers(ctx, r, files, spans))
	out = make([][]byte, len(files))
	for i, f := range files {
		out[i] = f.unpackMember(ctx, r, spans[i].P, newBuffer)
	}
	return out, nil
}

func newBuffer(n int64) []byte { return make([]byte, n) }

// ByteIn returns one whole member in memory from room. The caller may reuse that memory when it no
// longer needs the bytes.
func (d *Dir) ByteIn(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	room func(n int64) []byte,
) (_ []byte, err error) {
	defer guard.Recover("zip", &err)
	d.checkReadable(f)
	b := room(f.bytesToRead())
	guard.Check(f.withMember(r.ReadAt(ctx, b, f.Header)))
	return f.unpackMember(ctx, r, b, room), nil
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
	d.checkReadable(f)
	n = min(n, f.Size)
	packed := min(n+slack, f.Packed) // incompressible data grows by less than slack
	b := make([]byte, min(f.Room, localSize+int64(len(f.Name))+slack+packed))
	guard.Check(f.withMember(r.ReadAt(ctx, b, f.Header)))
	at := f.dataOffset(b)
	if at+packed > int64(len(b)) {
		b = make([]byte, packed)
		guard.Check(f.withMember(r.ReadAt(ctx, b, f.Header+at)))
		at = 0
	}
	b = b[at : at+packed]
	if f.Method == Stored {
		return b[:n], nil
	}
	out := make([]byte, n)
	got, err := io.ReadFull(flate.NewReader(bytes.NewReader(b)), out)
	if err != nil {
		return nil, f.withMember(
			malformed("deflate data of the first %d bytes ends after %d: %v", n, got, err),
		)
	}
	return out, nil
}

// unpackMember returns the content of a member. b is the data that was read from its local header
// on.
func (f *File) unpackMember(
	ctx context.Context,
	r robocache.Ranged,
	b []byte,
	room func(n int64) []byte,
) []byte {
	at := f.dataOffset(b)
	if at+f.Packed > int64(len(b)) {
		// The local extra field is larger than slack.
		b = room(f.Packed)
		guard.Check(f.withMember(r.ReadAt(ctx, b, f.Header+at)))
		at = 0
	}
	b = b[at : at+f.Packed : at+f.Packed]
	if f.Method == Deflate {
		out := room(f.Size)
		guard.Check(f.withMember(inflate.Raw(out, b)))
		b = out
	}
	if sum := crc32.ChecksumIEEE(b); sum != f.CRC {
		guard.Fail(f.withMember(robocache.Malformed("zip", nil, "CRC").
			Expected(fmt.Sprintf("%08x", f.CRC), fmt.Sprintf("%08x", sum))))
	}
	return b
}

// bytesToRead returns the number of bytes to read for a member, including its header.
func (f *File) bytesToRead() int64 {
	return min(f.Room, localSize+int64(len(f.Name))+slack+f.Packed)
}

// mergeGap is the maximum number of unneeded bytes between members that are read in one request.
const mergeGap = 4 << 10

// readMembers reads the headers and bytes of members. Close members are read in one request.
func readMembers(ctx context.Context, r robocache.Ranged, files []*File, spans []store.Span) error {
	lo, hi, sum := r.Size(), int64(0), int64(0)
	for _, f := range files {
		n := f.bytesToRead()
		lo, hi, sum = min(lo, f.Header), max(hi, f.Header+n), sum+n
	}
	if len(files) > 1 && hi-lo <= sum+mergeGap {
		b := newBuffer(hi - lo)
		for i, f := range files {
			spans[i].P = b[f.Header-lo:][:f.bytesToRead()]
		}
		return r.ReadAt(ctx, b, lo)
	}
	for i, f := range files {
		spans[i].P = newBuffer(f.bytesToRead())
	}
	return store.ReadRanges(ctx, r, spans)
}

// Section returns the offset of the bytes of a stored member in the archive.
func (d *Dir) Section(ctx context.Context, r robocache.Ranged, f *File) (off int64, err error) {
	defer guard.Recover("zip", &err)
	if d.checkReadable(f); f.Method != Stored {
		guard.Fail(
			f.withMember(robocache.Misuse("zip", nil, "a deflated member has no bytes in place")),
		)
	}
	return f.Header + f.dataOffset(bytesAt(ctx, r, f.Header, localSize)), nil
}

// dataOffset returns the offset of a member's bytes from its local header. b begins with the
// header.
func (f *File) dataOffset(b []byte) int64 {
	if string(b[:4]) != "PK\x03\x04" {
		guard.Fail(f.withMember(malformed("no local header at %d", f.Header)))
	}
	at := localSize + int64(le.Uint16(b[26:])) + int64(le.Uint16(b[28:]))
	if at+f.Packed > f.Room {
		guard.Fail(
			f.withMember(
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
