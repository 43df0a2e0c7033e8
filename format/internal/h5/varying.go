package h5

import (
	"bytes"
	"context"
	"fmt"
)

// heapObjects is a global heap collection: number → bytes.
type heapObjects map[uint32][]byte

// globalHeap reads the collection at an address.
func (f *File) globalHeap(ctx context.Context, addr uint64) (heapObjects, error) {
	v, err := f.cache.get(ctx, key{f.id, kindHeap, addr, 0}, func() (any, int64, error) {
		c, err := f.structure(ctx, addr, uint64(8+f.lsz), "GCOL", false)
		if err != nil {
			return nil, 0, err
		}
		if v := c.u8(); v != 1 {
			return nil, 0, f.unsupported(addr, fmt.Sprintf("global heap version %d", v), "")
		}
		c.skip(3)
		size := c.length()
		at, ok := f.place(addr, size)
		switch {
		case !ok:
			return nil, 0, f.outside(addr, size, "a global heap collection")
		case size > maxChunk:
			return nil, 0, f.limit(addr, "a global heap collection", size, maxChunk)
		}
		b := make([]byte, size)
		if err := f.r.ReadAt(ctx, b, at); err != nil {
			return nil, 0, err
		}
		c = f.cursor(b)
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
				return nil, 0, f.bad(addr, fmt.Sprintf("object %d of a global heap ends after its collection", index))
			}
			data := c.take(int(n))
			if pad := -n & 7; uint64(c.left()) >= pad {
				c.skip(int(pad))
			}
			out[index] = data
		}
		return out, int64(size) + int64(len(out))*64, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(heapObjects), nil
}

// varying follows the reference of one element of varying length; each of its items has item bytes.
func (f *File) varying(ctx context.Context, ref []byte, item int) ([]byte, error) {
	c := f.cursor(ref)
	n, addr, index := uint64(c.u32()), c.addr(), c.u32()
	if n == 0 || addr == 0 || addr == undefined {
		return nil, nil
	}
	h, err := f.globalHeap(ctx, addr)
	if err != nil {
		return nil, err
	}
	b, ok := h[index]
	if !ok || n > uint64(len(b))/uint64(max(item, 1)) {
		return nil, f.bad(addr, fmt.Sprintf("no object %d of %d items in a global heap", index, n))
	}
	end := int(n) * item
	return b[:end:end], nil
}

// maxTexts is how many texts or sequences are given at once.
const maxTexts = maxMetadata / 24

// Bytes gives the elements of n rows of a data set of varying length: raw bytes of each sequence, in the file's byte order for
// items of more than a byte turned to little-endian. Fixed-size text gives its bytes without padding.
func (d *Dataset) Bytes(ctx context.Context, row, n int64) ([][]byte, error) {
	t := d.Type
	if n < 0 || row < 0 || n > d.rows-row {
		return nil, (&Piece{D: d, Row: row, N: n}).check()
	}
	if t.Class != Text && t.Class != Varying {
		return nil, d.at(d.f.unsupported(d.addr, "text or sequences of a data set of "+t.String(), ""))
	}
	per := d.rowBytes / int64(t.Size)
	if uint64(n*d.rowBytes) > maxChunk {
		return nil, d.at(d.f.limit(d.addr, fmt.Sprintf("%d rows of text", n), uint64(n*d.rowBytes), maxChunk))
	}
	if n*per > maxTexts {
		return nil, d.at(d.f.limit(d.addr, fmt.Sprintf("%d rows of %d texts each", n, per), uint64(n*per)*24, maxTexts*24))
	}
	raw := make([]byte, n*d.rowBytes)
	if err := d.ReadRows(ctx, row, n, raw); err != nil {
		return nil, err
	}
	out := make([][]byte, 0, n*per)
	held := int64(0)
	for ; len(raw) > 0; raw = raw[t.Size:] {
		b, err := d.f.element(ctx, t, raw[:t.Size])
		// Elements may share one sequence of a heap: those whose bytes are turned round have a copy each.
		if held += int64(len(b)); err == nil && held > maxChunk && t.Class == Varying && !t.IsText && t.Base.Big {
			err = d.f.limit(d.addr, "sequences of varying length", uint64(held), maxChunk)
		}
		if err != nil {
			return nil, d.at(err)
		}
		out = append(out, b)
	}
	return out, nil
}

// element gives the bytes of an element of text or of varying length.
func (f *File) element(ctx context.Context, t *Type, raw []byte) ([]byte, error) {
	if t.Class == Text {
		return trimText(raw, t.Pad), nil
	}
	b, err := f.varying(ctx, raw, t.Base.Size)
	if err != nil {
		return nil, err
	}
	if t.IsText {
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
		return b, nil
	}
	if t.Base.Big && t.Base.DType.Size() > 1 {
		b = bytes.Clone(b)
		t.Base.Native(b)
	}
	return b, nil
}

func trimText(b []byte, pad uint8) []byte {
	switch pad {
	case 0:
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
	case 1:
		b = bytes.TrimRight(b, "\x00")
	default:
		b = bytes.TrimRight(b, " ")
	}
	return b
}
