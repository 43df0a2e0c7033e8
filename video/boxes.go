package video

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

var be = binary.BigEndian

const opIndex = "read mp4 index"

// box is one box of an mp4 file. data is the payload if it was read. off is the file offset of the
// header.
type box struct {
	kind string
	data []byte
	off  int64
}

// isPresent reports whether the box was found.
func (b box) isPresent() bool { return b.kind != "" }

// malformed returns an error for a box whose contents are invalid.
func (b box) malformed(format string, args ...any) *robocache.Error {
	return b.boxError(robocache.ErrMalformed, format, args...)
}

// tooLarge returns an error for a box that exceeds a limit.
func (b box) tooLarge(format string, args ...any) *robocache.Error {
	return b.boxError(robocache.ErrResourceLimit, format, args...)
}

// unsupported returns an error for a box whose feature is not supported.
func (b box) unsupported(hint, format string, args ...any) *robocache.Error {
	e := b.boxError(robocache.ErrUnsupported, format, args...)
	e.Hint = hint
	return e
}

// boxError returns an error that names the kind and the offset of the box.
func (b box) boxError(class error, format string, args ...any) *robocache.Error {
	kind := b.kind
	for _, c := range []byte(kind) {
		if c < 0x20 || c > 0x7e {
			kind = fmt.Sprintf("0x%x", b.kind) // make the kind printable
			break
		}
	}
	return robocache.NewError(
		class,
		opIndex,
		robocache.Where{"box": kind, "offset": b.off},
		format,
		args...)
}

// boxParser reads boxes within limits.
type boxParser struct {
	lim      Limits
	fileSize int64
}

// parseBoxHeader parses the header of the box at file offset off. h holds at least the first 8
// bytes of the header; left is the number of bytes from off to the end. It returns the lengths of
// the header and of the whole box.
func parseBoxHeader(h []byte, off, left int64) (b box, head, size int64, err error) {
	b, head, size = box{kind: string(h[4:8]), off: off}, 8, int64(be.Uint32(h))
	switch {
	case size == 0:
		size = left
	case size == 1 && len(h) < 16:
		return b, head, size, b.malformed(
			"a 64-bit size does not fit into the %d bytes that are left",
			left,
		)
	case size == 1:
		head, size = 16, int64(be.Uint64(h[8:]))
	}
	if size < head {
		return b, head, size, b.malformed("size %d is smaller than its header", uint64(size))
	}
	return b, head, size, nil
}

// eachChild calls fn for each box in data, which begins at file offset base. Fewer than 8 bytes at
// the end are accepted: they are QuickTime's terminator or padding.
func (p *boxParser) eachChild(parent string, data []byte, base int64, fn func(box) error) error {
	for pos := int64(0); int64(len(data))-pos >= 8; {
		rest := data[pos:]
		b, head, size, err := parseBoxHeader(rest, base+pos, int64(len(rest)))
		if err != nil {
			return err
		}
		if size > int64(len(rest)) {
			return b.malformed("size %d, but %d bytes are left in %s", size, len(rest), parent)
		}
		b.data = rest[head:size]
		if err := fn(b); err != nil {
			return err
		}
		pos += size
	}
	return nil
}

// splitFullBox returns the version of a full box and the bytes after its flags. It returns an error
// if these are fewer than minBytes.
func (p *boxParser) splitFullBox(b box, minBytes int) (version byte, rest []byte, err error) {
	if len(b.data) < 4+minBytes {
		return version, rest, b.malformed("%d bytes, at least %d expected", len(b.data), 4+minBytes)
	}
	return b.data[0], b.data[4:], nil
}

// splitTable returns the entries of a full box that contains a count and count entries of width
// bytes.
func (p *boxParser) splitTable(b box, width int) (entries []byte, n int, err error) {
	_, rest, err := p.splitFullBox(b, 4)
	if err != nil {
		return entries, n, err
	}
	count := int64(be.Uint32(rest))
	if count > int64(len(rest)-4)/int64(width) {
		return entries, n, b.malformed(
			"%d entries of %d bytes are declared, but the box has %d bytes",
			count,
			width,
			len(rest)-4,
		)
	}
	return rest[4 : 4+int(count)*width], int(count), nil
}

// readWindow reads a file for a walk over its boxes. A small read is served from the last piece if
// possible.
type readWindow struct {
	f    robocache.Ranged
	off  int64
	data []byte
}

// headRead is the size of the first and of most reads. It covers the moov of a short episode, so
// that one or two reads produce an index. If at most tailRead bytes follow the media, they are read
// as a whole, because they are usually the moov.
const (
	headRead = 8 << 10
	tailRead = 64 << 10
)

// readBytes returns n bytes at off. It may read more than n from the file. The returned slice is
// valid until the next call.
func (w *readWindow) readBytes(ctx context.Context, off int64, n int) ([]byte, error) {
	if off >= w.off && off+int64(n) <= w.off+int64(len(w.data)) {
		return w.data[off-w.off:][:n], nil
	}
	left := w.f.Size() - off
	size := min(max(int64(n), headRead), left)
	if off > 0 && left <= tailRead { // read all the rest (see tailRead)
		size = left
	}
	if size < int64(n) {
		whole := box{kind: "file", off: off}
		return nil, whole.malformed(
			"expected %d bytes, but %d are left: the file is truncated",
			n,
			max(size, 0),
		)
	}
	if int64(cap(w.data)) < size {
		w.data = make([]byte, size)
	}
	w.data, w.off = w.data[:size], off
	if err := w.f.ReadAt(ctx, w.data, off); err != nil {
		return nil, err
	}
	return w.data[:n], nil
}

const (
	remuxHint = "rewrite it without re-encoding: ffmpeg -i IN -c copy -movflags +faststart OUT.mp4"
	maxBoxes  = 4096 // maximum number of boxes before the moov
)

// readMoov finds the moov box among the top-level boxes and reads it.
func readMoov(ctx context.Context, f robocache.Ranged, lim Limits) (box, error) {
	size := f.Size()
	bad := func(msg, hint string) error {
		return robocache.Malformed(opIndex, robocache.Where{"offset": size}, "%s", msg).
			WithHint("%s", hint)
	}
	if size == 0 {
		return box{}, bad("the file is empty", "")
	}
	w := &readWindow{f: f}
	head, err := w.readBytes(ctx, 0, int(min(size, 256)))
	if err != nil {
		return box{}, err
	}
	if bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/")) {
		return box{}, bad(
			"the file is a git-LFS pointer, not a video (LFS pointer)",
			"fetch the real bytes: git lfs pull",
		)
	}
	if name := otherContainer(head); name != "" {
		return box{}, robocache.Unsupported(opIndex, nil,
			"the file is %s, whatever its name says; mp4 is read", name).
			WithHint("%s", containerHint)
	}
	boxes := 0
	for pos := int64(0); size-pos >= 8; boxes++ {
		h, err := w.readBytes(ctx, pos, int(min(16, size-pos)))
		if err != nil {
			return box{}, err
		}
		if kind := string(h[4:8]); pos == 0 && !topLevel[kind] {
			first := box{kind: kind}
			return box{}, first.malformed("this is not an mp4 file: no mp4 begins with this box")
		}
		b, headLen, n, err := parseBoxHeader(h, pos, size-pos)
		if err != nil {
			return box{}, err
		}
		switch {
		case b.kind == "moov" && n > size-pos:
			return box{}, b.malformed(
				"size %d exceeds the file (%d bytes): the file is truncated",
				n,
				size,
			)
		case b.kind == "moov" && n > lim.MaxMoov:
			return box{}, b.tooLarge("%d bytes, limit %d", n, lim.MaxMoov)
		case b.kind == "moov":
			if b.data, err = w.readBytes(ctx, pos+headLen, int(n-headLen)); err != nil {
				return box{}, err
			}
			return b, nil
		case b.kind == "moof":
			return box{}, b.unsupported(remuxHint, "a movie fragment precedes the moov")
		case n > size-pos:
			return box{}, b.malformed(
				"size %d exceeds the file (%d bytes), and there is no moov before: "+
					"the file is truncated or was never finished",
				n,
				size,
			)
		case boxes > maxBoxes:
			return box{}, b.tooLarge("more than %d boxes before the moov", maxBoxes)
		}
		pos += n
	}
	return box{}, bad(
		"no moov box: the file is truncated or was never finished",
		"write it again; a recording that was killed has no index",
	)
}

// topLevel lists the boxes that an ISO or QuickTime file may begin with.
var topLevel = map[string]bool{
	"ftyp": true,
	"styp": true,
	"moov": true,
	"mdat": true,
	"free": true,
	"skip": true,
	"wide": true,
	"pnot": true,
	"uuid": true,
	"moof": true,
	"sidx": true,
	"meta": true,
	"udta": true,
	"emsg": true,
	"pdin": true,
}
