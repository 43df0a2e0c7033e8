package h5

import (
	"bytes"
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// heapObjects maps the numbers of a global heap collection to the bytes of its objects.
type heapObjects map[uint32][]byte

// globalHeap returns the collection at an address.
func (f *File) globalHeap(ctx context.Context, addr uint64) heapObjects {
	return loadCached(ctx, f, key{f.id, kindHeap, addr, 0}, func() (heapObjects, int64) {
		c := f.readStructure(ctx, addr, uint64(8+f.lsz), "GCOL", false)
		if v := c.u8(); v != 1 {
			f.failUnsupported(addr, fmt.Sprintf("global heap version %d", v), "")
		}
		c.skip(3)
		size := c.readLength()
		at := f.fileOffset(addr, size, "a global heap collection")
		f.checkLimit(addr, "a global heap collection", size, maxChunk)
		b := make([]byte, size)
		guard.Check(f.r.ReadAt(ctx, b, at))
		c = f.newCursor(addr, "an object of a global heap", b)
		c.skip(8 + f.lsz)
		out := heapObjects{}
		for c.bytesLeft() >= 8+f.lsz {
			index := uint32(c.u16())
			c.skip(6)
			n := c.readLength()
			if index == 0 {
				break // object 0 is the free space
			}
			if n > uint64(c.bytesLeft()) {
				c.failCutOff()
			}
			out[index] = c.takeBytes(int(n))
			c.skip(min(int(-n&7), c.bytesLeft()))
		}
		return out, int64(size) + int64(len(out))*64
	})
}

// varyingElement follows the reference of one element of variable length. Each of its items has
// item bytes.
func (f *File) varyingElement(ctx context.Context, ref []byte, item int) []byte {
	c := f.newCursor(0, "an element of varying length", ref)
	n, addr, index := uint64(c.u32()), c.readAddr(), c.u32()
	if n == 0 || addr == 0 || addr == undefined {
		return nil
	}
	b, ok := f.globalHeap(ctx, addr)[index]
	if !ok || n > uint64(len(b))/uint64(max(item, 1)) {
		f.failMalformed(addr, "no object %d of %d items in a global heap", index, n)
	}
	end := int(n) * item
	return b[:end:end]
}

// maxTexts is the maximum number of texts or sequences that one call returns.
const maxTexts = maxMetadata / 24

// Bytes returns the elements of n rows of a data set of variable-length or fixed-length text. A
// sequence is returned as raw bytes, with items of more than one byte in little-endian order.
// Fixed-length text is returned without padding.
func (d *Dataset) Bytes(ctx context.Context, row, n int64) (out [][]byte, err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("pointer", d.name)
	t := d.Type
	guard.Check((&Piece{D: d, Row: row, N: n}).checkRange())
	if t.Class != Text && t.Class != Varying {
		d.f.failUnsupported(d.addr, "text or sequences of a data set of "+t.String(), "")
	}
	per := d.rowBytes / int64(t.Size)
	d.f.checkLimit(d.addr, fmt.Sprintf("%d rows of text", n), uint64(n*d.rowBytes), maxChunk)
	d.f.checkLimit(
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
		b := d.f.elementBytes(ctx, t, raw[:t.Size])
		// these elements are copied, and several may share one sequence of a heap
		if t.Class == Varying && !t.IsText && t.Base.Big {
			held += uint64(len(b))
			d.f.checkLimit(d.addr, "sequences of varying length", held, maxChunk)
		}
		out = append(out, b)
	}
	return out, nil
}

// elementBytes returns the bytes of an element of text or of variable length.
func (f *File) elementBytes(ctx context.Context, t *Type, raw []byte) []byte {
	if t.Class == Text {
		return trimText(raw, t.Pad)
	}
	b := f.varyingElement(ctx, raw, t.Base.Size)
	if t.IsText {
		return trimText(b, 0)
	}
	if t.Base.Big && t.Base.DType.Size() > 1 {
		b = bytes.Clone(b)
		t.Base.Native(b)
	}
	return b
}

// trimText removes the padding of a text. pad is 0 for text that ends with NUL, 1 for NUL padding,
// 2 for spaces.
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
