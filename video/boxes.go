package video

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

var be = binary.BigEndian

// box is one box whose payload is in memory. off is where its header stands in the file.
type box struct {
	kind string
	data []byte
	off  int64
}

// present says whether the box was found at all.
func (b box) present() bool { return b.kind != "" }

// children calls fn for each box inside data, which begins at file offset base.
// Fewer than 8 bytes at the end are QuickTime's terminator, or padding.
func children(parent string, data []byte, base int64, fn func(box) error) error {
	for pos := 0; len(data)-pos >= 8; {
		rest := data[pos:]
		size, head := int64(be.Uint32(rest)), int64(8)
		kind := string(rest[4:8])
		switch {
		case size == 0:
			size = int64(len(rest))
		case size == 1:
			if len(rest) < 16 {
				return malformed(kind, base+int64(pos), "a 64-bit size does not fit into %s", parent)
			}
			size, head = int64(be.Uint64(rest[8:])), 16
		}
		if size < head || size > int64(len(rest)) {
			return malformed(kind, base+int64(pos), "size %d, but %d bytes are left in %s", uint64(size), len(rest), parent)
		}
		if err := fn(box{kind, rest[head:size], base + int64(pos)}); err != nil {
			return err
		}
		pos += int(size)
	}
	return nil
}

// printable keeps a four-character code fit for messages.
func printable(kind string) string {
	for _, c := range []byte(kind) {
		if c < 0x20 || c > 0x7e {
			return fmt.Sprintf("0x%x", kind)
		}
	}
	return kind
}

// full splits a full box into version, flags and the rest.
func (b box) full(least int) (version byte, flags uint32, rest []byte, err error) {
	if len(b.data) < 4+least {
		return 0, 0, nil, malformed(b.kind, b.off, "%d bytes, at least %d expected", len(b.data), 4+least)
	}
	v := be.Uint32(b.data)
	return byte(v >> 24), v & 0xffffff, b.data[4:], nil
}

// table gives the entries of a full box that holds a count and count entries of width bytes.
func (b box) table(width int) (version byte, entries []byte, n int, err error) {
	version, _, rest, err := b.full(4)
	if err != nil {
		return 0, nil, 0, err
	}
	count := int64(be.Uint32(rest))
	if count > int64(len(rest)-4)/int64(width) {
		return 0, nil, 0, malformed(b.kind, b.off, "%d entries of %d bytes declared, %d bytes are there", count, width, len(rest)-4)
	}
	return version, rest[4 : 4+int(count)*width], int(count), nil
}

// window reads a file in pieces that a box walk wants: small reads come from the last piece where they can.
type window struct {
	f    robocache.Ranged
	off  int64
	data []byte
}

// headRead is the first and the usual piece: the moov of a short episode fits, so that one or two reads make an index. What is left of a
// file behind its media is read whole up to tailRead: it is the moov mostly.
const (
	headRead = 8 << 10
	tailRead = 64 << 10
)

// at gives n bytes at off, reading more than asked when it must read. The slice is valid until the next call.
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
		return nil, malformed("file", off, "%d bytes expected, %d are left: the file is cut", n, max(size, 0))
	}
	if int64(cap(w.data)) < size {
		w.data = make([]byte, size)
	}
	w.data, w.off = w.data[:size], off
	if err := w.f.ReadAt(ctx, w.data, off); err != nil {
		w.data = w.data[:0]
		return nil, err
	}
	return w.data[:n], nil
}

// readMoov finds the moov box among the top-level boxes and reads it whole.
func readMoov(ctx context.Context, f robocache.Ranged, lim Limits) (box, error) {
	size := f.Size()
	if size == 0 {
		return box{}, &robocache.Error{Class: robocache.ErrMalformed, Op: opIndex, Msg: "the file is empty"}
	}
	w := &window{f: f}
	head, err := w.at(ctx, 0, int(min(size, 64)))
	if err != nil {
		return box{}, err
	}
	if bytes.HasPrefix(head, []byte("version https://git-lfs.github.com/spec/")) {
		return box{}, &robocache.Error{Class: robocache.ErrMalformed, Op: opIndex, Msg: "the file is a git-LFS pointer, not a video (LFS pointer)", Hint: "fetch the real bytes: git lfs pull"}
	}
	boxes := 0
	for pos := int64(0); pos < size; boxes++ {
		if size-pos < 8 {
			break
		}
		h, err := w.at(ctx, pos, int(min(16, size-pos)))
		if err != nil {
			return box{}, err
		}
		n, headLen := int64(be.Uint32(h)), int64(8)
		kind := string(h[4:8])
		if pos == 0 && !topLevel[kind] {
			return box{}, malformed(kind, 0, "this is no mp4: the first box is none that such a file begins with")
		}
		switch {
		case n == 0:
			n = size - pos
		case n == 1:
			if len(h) < 16 {
				return box{}, malformed(kind, pos, "the file ends inside the header of this box")
			}
			n, headLen = int64(be.Uint64(h[8:])), 16
		}
		if n < headLen {
			return box{}, malformed(kind, pos, "size %d is smaller than its header", n)
		}
		if kind == "moov" {
			if n > size-pos {
				return box{}, malformed(kind, pos, "size %d ends after the file (%d bytes): the file is cut", n, size)
			}
			if n > lim.MaxMoov {
				return box{}, tooLarge(kind, pos, "%d bytes, limit %d", n, lim.MaxMoov)
			}
			body, err := w.at(ctx, pos+headLen, int(n-headLen))
			if err != nil {
				return box{}, err
			}
			return box{kind, body, pos}, nil
		}
		if kind == "moof" {
			return box{}, unsupported(kind, pos, remuxHint, "a movie fragment stands before the moov")
		}
		if n > size-pos {
			return box{}, malformed(kind, pos, "size %d ends after the file (%d bytes), and no moov came before: the file is cut or was never finished", n, size)
		}
		if boxes > 4096 {
			return box{}, tooLarge(kind, pos, "more than 4096 boxes before the moov")
		}
		pos += n
	}
	return box{}, &robocache.Error{Class: robocache.ErrMalformed, Op: opIndex, Where: robocache.Where{"offset": size}, Msg: "no moov box: the file is cut or was never finished", Hint: "write it again; a recording that was killed has no index"}
}

const remuxHint = "rewrite it without re-encoding: ffmpeg -i IN -c copy -movflags +faststart OUT.mp4"

// topLevel lists what an ISO or QuickTime file may begin with.
var topLevel = map[string]bool{"ftyp": true, "styp": true, "moov": true, "mdat": true, "free": true, "skip": true, "wide": true, "pnot": true, "uuid": true, "moof": true, "sidx": true, "meta": true, "udta": true, "emsg": true, "pdin": true}
