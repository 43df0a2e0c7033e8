package h5

import (
	"bytes"
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// heapObjects is a global heap collection: number → bytes.
type heapObjects map[uint32][]byte

// globalHeap reads the collection at an address.
func (f *File) globalHeap(ctx context.Context, addr uint64) heapObjects {
	return cached(ctx, f, key{f.id, kindHeap, addr, 0}, func() (heapObjects, int64) {
		c := f.structure(ctx, addr, uint64(8+f.lsz), "GCOL", false)
		if v := c.u8(); v != 1 {
			f.unsupported(addr, fmt.Sprintf("global heap version %d", v), "")
		}
		c.skip(3)
		size := c.length()
		at := f.place(addr, size, "a global heap collection")
		f.limit(addr, "a global heap collection", size, maxChunk)
		b := make([]byte, size)
		guard.Check(f.r.ReadAt(ctx, b, at))
		c = f.cursor(addr, "an object of a global heap", b)
		c.skip(8 + f.lsz)
		out := heapObjects{}
		for c.left() >= 8+f.lsz {
			index := uint32(c.u16())
			c.skip(6)
			n := c.length()
			if index == 0 {
				break // what is free
			}
			if n > uint64(c.left()) {
				c.cut()
			}
			out[index] = c.take(int(n))
			c.skip(min(int(-n&7), c.left()))
		}
		return out, int64(size) + int64(len(out))*64
	})
}

// varying follows the reference of one element of varying length; each of its items has item bytes.
func (f *File) varying(ctx context.Context, ref []byte, item int) []byte {
	c := f.cursor(0, "an element of varying length", ref)
	n, addr, index := uint64(c.u32()), c.addr(), c.u32()
	if n == 0 || addr == 0 || addr == undefined {
		return nil
	}
	b, ok := f.globalHeap(ctx, addr)[index]
	if !ok || n > uint64(len(b))/uint64(max(item, 1)) {
		f.bad(addr, "no object %d of %d items in a global heap", index, n)
	}
	end := int(n) * item
	return b[:end:end]
}

// maxTexts is how many texts or sequences are given at once.
const maxTexts = maxMetadata / 24

// Bytes gives the elements of n rows of a data set of varying length: raw bytes of each sequence,
// in the file's byte order for items of more than a byte turned to little-endian. Fixed-size text
// gives its bytes without padding.
func (d *Dataset) Bytes(ctx context.Context, row, n int64) (out [][]byte, err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("pointer", d.name)
	t := d.Type
	guard.Check((&Piece{D: d, Row: row, N: n}).inside())
	if t.Class != Text && t.Class != Varying {
		d.f.unsupported(d.addr, "text or sequences of a data set of "+t.String(), "")
	}
	per := d.rowBytes / int64(t.Size)
	d.f.limit(d.addr, fmt.Sprintf("%d rows of text", n), uint64(n*d.rowBytes), maxChunk)
	d.f.limit(
		d.addr,
		fmt.Sprintf("%d rows of %d texts each", n, per),
		uint64(n*per)*24,
		maxTexts*24,
	)
	raw := make([]byte, n*d.rowBytes)
	guard.Check(d.ReadRows(ctx, row, n, raw))
	out = make([][]byte, 0, n*per)
	held := uint64(0)
	for ; len(raw) > 0; raw = raw[t.Size:] {
		b := d.f.element(ctx, t, raw[:t.Size])
		// these have a copy each: elements may share one sequence of a heap
		if t.Class == Varying && !t.IsText && t.Base.Big {
			held += uint64(len(b))
			d.f.limit(d.addr, "sequences of varying length", held, maxChunk)
		}
		out = append(out, b)
	}
	return out, nil
}

// element gives the bytes of an element of text or of varying length.
func (f *File) element(ctx context.Context, t *Type, raw []byte) []byte {
	if t.Class == Text {
		return trimText(raw, t.Pad)
	}
	b := f.varying(ctx, raw, t.Base.Size)
	if t.IsText {
		return trimText(b, 0)
	}
	if t.Base.Big && t.Base.DType.Size() > 1 {
		b = bytes.Clone(b)
		t.Base.Native(b)
	}
	return b
}

// trimText takes off what fills a text up: pad is 0 for text ended by NUL, 1 for filled with NUL, 2
// with spaces.
func trimText(b []byte, pad uint8) []byte {
	switch pad {
	case 0:
		b, _, _ = bytes.Cut(b, []byte{0})
		return b
	case 1:
		return bytes.TrimRight(b, "\x00")
	}
	return bytes.TrimRight(b, " ")
}
