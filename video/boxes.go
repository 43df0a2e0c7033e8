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

// box is one box, with its payload where that is in memory. off is where its header stands in the
// file.
type box struct {
	kind string
	data []byte
	off  int64
}

// present says whether the box was found at all.
func (b box) present() bool { return b.kind != "" }

func (b box) malformed(format string, args ...any) *robocache.Error {
	return b.failed(robocache.ErrMalformed, format, args...)
}

func (b box) tooLarge(format string, args ...any) *robocache.Error {
	return b.failed(robocache.ErrResourceLimit, format, args...)
}

func (b box) unsupported(hint, format string, args ...any) *robocache.Error {
	e := b.failed(robocache.ErrUnsupported, format, args...)
	e.Hint = hint
	return e
}

func (b box) failed(class error, format string, args ...any) *robocache.Error {
	kind := b.kind
	for _, c := range []byte(kind) {
		if c < 0x20 || c > 0x7e {
			kind = fmt.Sprintf("0x%x", b.kind) // fit for messages
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

// parser reads boxes; it fails into the guard of ReadIndex.
type parser struct {
	lim      Limits
	fileSize int64
}

// header reads the header of the box at off, of which h is the beginning, at least 8 bytes; left is
// what there is from off on.
func header(h []byte, off, left int64) (b box, head, size int64, err error) {
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

// children calls fn for each box inside data, which begins at file offset base.
// Fewer than 8 bytes at the end are QuickTime's terminator, or padding.
func (p *parser) children(parent string, data []byte, base int64, fn func(box) error) error {
	for pos := int64(0); int64(len(data))-pos >= 8; {
		rest := data[pos:]
		b, head, size, err := header(rest, base+pos, int64(len(rest)))
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

// full splits a full box into its version and what follows the flags, at least so many bytes.
func (p *parser) full(b box, least int) (version byte, rest []byte, err error) {
	if len(b.data) < 4+least {
		return version, rest, b.malformed("%d bytes, at least %d expected", len(b.data), 4+least)
	}
	return b.data[0], b.data[4:], nil
}

// table gives the entries of a full box that holds a count and count entries of width bytes.
func (p *parser) table(b box, width int) (entries []byte, n int, err error) {
	_, rest, err := p.full(b, 4)
	if err != nil {
		return entries, n, err
	}
	count := int64(be.Uint32(rest))
	if count > int64(len(rest)-4)/int64(width) {
		return entries, n, b.malformed(
			"%d entries of %d bytes declared, %d bytes are there",
			count,
			width,
			len(rest)-4,
		)
	}
	return rest[4 : 4+int(count)*width], int(count), nil
}

// window reads a file in pieces that a box walk wants: small reads come from the last piece where
// they can.
type window struct {
	f    robocache.Ranged
	off  int64
	data []byte
}

// headRead is the first and the usual piece: the moov of a short episode fits, so that one or two
// reads make an index. What is left of a file behind its media is read whole up to tailRead: it is
// the moov mostly.
const (
	headRead = 8 << 10
	tailRead = 64 << 10
)

// at gives n bytes at off, reading more than asked when it must read. The slice is valid until the
// next call.
func (w *window) at(ctx context.Context, off int64, n int) ([]byte, error) {
	if off >= w.off && off+int64(n) <= w.off+int64(len(w.data)) {
		return w.data[off-w.off:][:n], nil
	}
	left := w.f.Size() - off
	size := min(max(int64(n), headRead), left)
	if off > 0 && left <= tailRead {
		size = left
	}
	if size < int64(n) {
		return nil, box{
			"file",
			nil,
			off,
		}.malformed(
			"%d bytes expected, %d are left: the file is cut",
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
	maxBoxes  = 4096 // before the moov
)

// readMoov finds the moov box among the top-level boxes and reads it whole.
func readMoov(ctx context.Context, f robocache.Ranged, lim Limits) (box, error) {
	size := f.Size()
	bad := func(msg, hint string) error {
		return robocache.Malformed(opIndex, robocache.Where{"offset": size}, "%s", msg).
			WithHint("%s", hint)
	}
	if size == 0 {
		if err := bad("the file is empty", ""); err != nil {
			return box{}, err
		}
	}
	w := &window{f: f}
	head, err := w.at(ctx, 0, int(min(size, 256)))
	if err != nil {
		return box{}, err
	}
	if bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/")) {
		if err := bad(
			"the file is a git-LFS pointer, not a video (LFS pointer)",
			"fetch the real bytes: git lfs pull",
		); err != nil {
			return box{}, err
		}
	}
	if name := otherContainer(head); name != "" {
		return box{}, robocache.Unsupported(opIndex, nil, "the file is %s, whatever its name says; mp4 is read", name).
			WithHint("%s", containerHint)
	}
	boxes := 0
	for pos := int64(0); size-pos >= 8; boxes++ {
		h, err := w.at(ctx, pos, int(min(16, size-pos)))
		if err != nil {
			return box{}, err
		}
		if kind := string(h[4:8]); pos == 0 && !topLevel[kind] {
			return box{}, box{
				kind: kind,
			}.malformed(
				"this is no mp4: the first box is none that such a file begins with",
			)
		}
		b, headLen, n, err := header(h, pos, size-pos)
		if err != nil {
			return box{}, err
		}
		switch {
		case b.kind == "moov" && n > size-pos:
			return box{}, b.malformed(
				"size %d ends after the file (%d bytes): the file is cut",
				n,
				size,
			)
		case b.kind == "moov" && n > lim.MaxMoov:
			return box{}, b.tooLarge("%d bytes, limit %d", n, lim.MaxMoov)
		case b.kind == "moov":
			if b.data, err = w.at(ctx, pos+headLen, int(n-headLen)); err != nil {
				return box{}, err
			}
			return b, nil
		case b.kind == "moof":
			return box{}, b.unsupported(remuxHint, "a movie fragment stands before the moov")
		case n > size-pos:
			return box{}, b.malformed(
				"size %d ends after the file (%d bytes), and no moov came before: the file is cut or was never finished",
				n,
				size,
			)
		case boxes > maxBoxes:
			return box{}, b.tooLarge("more than %d boxes before the moov", maxBoxes)
		}
		pos += n
	}
	if err := bad(
		"no moov box: the file is cut or was never finished",
		"write it again; a recording that was killed has no index",
	); err != nil {
		return box{}, err
	}
	return box{}, nil
}

// topLevel lists what an ISO or QuickTime file may begin with.
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
