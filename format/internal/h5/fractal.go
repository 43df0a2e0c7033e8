package h5

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
)

// fractal is a fractal heap: where new files keep the links of large groups and many attributes.
type fractal struct {
	f              *File
	addr           uint64
	idLength       int
	checked        bool // direct blocks have a checksum
	width          uint64
	start, largest uint64
	offSize        int // bytes of an offset in the heap, in ids and blocks
	lenSize        int
	root           uint64
	rows           int // of the root; 0: the root is a direct block
	hugeTree       uint64
	huge           map[uint64]stretch
	directRows     int
	blocks         map[uint64][]byte   // direct blocks that were read, with their heads
	children       map[uint64][]uint64 // of indirect ones
	held           uint64              // bytes of both
}

func (f *File) fractalHeap(ctx context.Context, addr uint64) *fractal {
	n := uint64(4 + 1 + 2 + 2 + 1 + 4 + 12*f.lsz + 3*f.osz + 2 + 2 + 2 + 2 + 4)
	c := f.structure(ctx, addr, n, "FRHP", false)
	h := &fractal{f: f, addr: addr, blocks: map[uint64][]byte{}, children: map[uint64][]uint64{}}
	version := c.u8()
	h.idLength = int(c.u16())
	filters := c.u16()
	if version != 0 {
		f.unsupported(addr, fmt.Sprintf("fractal heap version %d", version), "")
	}
	if filters != 0 {
		f.unsupported(addr, "a fractal heap with filters", "write the file again with h5repack")
	}
	c = f.structure(ctx, addr, n, "FRHP", true)
	c.skip(5)
	h.checked = c.u8()&2 != 0
	largestObject := c.u32()
	c.length()
	h.hugeTree = c.addr()
	c.length()
	c.addr()
	c.skip(8 * f.lsz)
	h.width, h.start, h.largest = uint64(c.u16()), c.length(), c.length()
	heapBits := int(c.u16())
	c.skip(2)
	h.root, h.rows = c.addr(), int(c.u16())
	pow := func(v uint64) bool { return v != 0 && v&(v-1) == 0 }
	if !pow(h.width) || !pow(h.start) || !pow(h.largest) || h.start > h.largest ||
		h.largest > maxMetadata ||
		heapBits > 64 ||
		h.idLength < 3 ||
		h.idLength > 64 {
		f.bad(addr, "the sizes of a fractal heap")
	}
	h.offSize = (heapBits + 7) / 8
	h.lenSize = min((log2(h.largest)+7)/8, encodedSize(uint64(largestObject)))
	h.directRows = log2(h.largest) - log2(h.start) + 2
	if 1+h.offSize+h.lenSize > h.idLength || h.rows > heapBits+1 {
		f.bad(addr, "the sizes of a fractal heap")
	}
	return h
}

// dense calls each with what the records of a B-tree of a kind name in a heap; m is a message that
// says where both lie, behind skip bytes that it may have.
func (o *Object) dense(
	ctx context.Context,
	m *message,
	skip int,
	kind uint8,
	each func(heap uint64, object []byte, rec *cursor),
) {
	f := o.f
	c := f.cursor(o.addr, "a message of dense links or attributes", m.data)
	version, flags := c.u8(), c.u8()
	if version != 0 {
		f.bad(o.addr, "a message of dense links or attributes of version %d", version)
	}
	c.skip(int(flags&1) * skip)
	heap, tree := c.addr(), c.addr()
	if heap == undefined {
		return
	}
	h := f.fractalHeap(ctx, heap)
	f.tree2(ctx, tree, func(_ uint8, rec *cursor) {
		if kind == recLinkName {
			rec.skip(4) // the hash of its name
		}
		each(heap, h.object(ctx, rec), rec)
	}, kind)
}

func log2(v uint64) int { return bits.Len64(v) - 1 }

// rowSize is the size of the blocks of a row of the doubling table.
func (h *fractal) rowSize(row int) uint64 {
	if row == 0 {
		return h.start
	}
	return h.start << (row - 1)
}

// object gives the bytes of an object.
func (h *fractal) object(ctx context.Context, rec *cursor) []byte {
	f := h.f
	c := f.cursor(h.addr, "an id of a fractal heap", rec.take(h.idLength))
	head := c.u8()
	if head>>6 != 0 {
		f.unsupported(h.addr, fmt.Sprintf("version %d of a fractal heap's ids", head>>6), "")
	}
	switch head >> 4 & 3 {
	case 0:
		off, n := c.uint(h.offSize), c.uint(h.lenSize)
		b, at := h.find(ctx, off)
		if n > uint64(len(b)) || at > uint64(len(b))-n {
			f.bad(h.addr, "an object of a fractal heap ends after its block")
		}
		return b[at : at+n : at+n]
	case 1:
		s := h.hugeObject(ctx, c)
		h.hold(min(s.size, maxMetadata)) // any number of ids may name one object
		return f.metadata(ctx, s.addr, s.size, "a large object of a fractal heap")
	case 2:
		n := int(head&15) + 1
		if h.idLength > 18 {
			n = int(head&15)<<8 | int(c.u8()) + 1
		}
		return c.take(n)
	}
	f.bad(h.addr, "an id of a fractal heap of unknown kind")
	return nil
}

// hugeObject finds an object that is too large for a block.
func (h *fractal) hugeObject(ctx context.Context, c *cursor) stretch {
	f := h.f
	if h.idLength-1 >= f.osz+f.lsz { // the id is the place
		return stretch{c.addr(), c.length()}
	}
	n := c.uint(min(f.lsz, h.idLength-1))
	if h.huge == nil {
		h.huge = map[uint64]stretch{}
		f.tree2(ctx, h.hugeTree, func(_ uint8, rec *cursor) {
			s := stretch{rec.addr(), rec.length()}
			h.huge[rec.length()] = s
		}, recHuge)
	}
	s, ok := h.huge[n]
	if !ok {
		f.bad(h.addr, "no large object %d in a fractal heap", n)
	}
	return s
}

// find gives the direct block that holds an offset of the heap, and where in it.
func (h *fractal) find(ctx context.Context, off uint64) ([]byte, uint64) {
	if h.rows == 0 {
		return h.direct(ctx, h.root, 0, h.start), off
	}
	addr, rows, base := h.root, h.rows, uint64(0)
	for range maxDepth {
		rel := off - base
		row, col, begin := 0, uint64(0), uint64(0)
		if first := h.start * h.width; rel < first {
			col = rel / h.start
			begin = col * h.start
		} else {
			high := log2(rel)
			row = high - log2(first) + 1
			col = (rel - 1<<high) / h.rowSize(row)
			begin = 1<<high + col*h.rowSize(row)
		}
		if row >= rows {
			h.f.bad(h.addr, "offset %d is not in the fractal heap", off)
		}
		children := h.indirect(ctx, addr, rows, base)
		i := uint64(row)*h.width + col
		if i >= uint64(len(children)) || children[i] == undefined {
			h.f.bad(h.addr, "offset %d is in no block of the fractal heap", off)
		}
		addr, base = children[i], base+begin
		size := h.rowSize(row)
		if row < h.directRows {
			return h.direct(ctx, addr, base, size), off - base
		}
		if rows = log2(size) - log2(h.start*h.width) + 1; rows <= 0 {
			break
		}
	}
	h.f.bad(h.addr, "a fractal heap is nested too deep")
	return nil, 0
}

// hold counts bytes that are kept of the heap.
func (h *fractal) hold(n uint64) {
	h.held += n
	h.f.limit(h.addr, "the blocks of a fractal heap", h.held, maxMetadata)
}

// begin reads the head that both kinds of blocks have.
func (h *fractal) begin(
	ctx context.Context,
	addr, offset, size uint64,
	sig string,
	sum bool,
) *cursor {
	c := h.f.structure(ctx, addr, size, sig, sum)
	c.skip(1)
	if c.addr() != h.addr || c.uint(h.offSize) != offset {
		h.f.bad(addr, "a block of another fractal heap")
	}
	return c
}

func (h *fractal) direct(ctx context.Context, addr, offset, size uint64) []byte {
	if b := h.blocks[addr]; b != nil {
		return b
	}
	c := h.begin(ctx, addr, offset, size, "FHDB", false)
	if h.checked && !h.f.lax {
		at := c.off
		sum := c.u32()
		plain := bytes.Clone(c.b)
		clear(plain[at : at+4])
		if lookup3(plain) != sum {
			h.f.bad(addr, "the checksum of a fractal heap's block does not match its bytes")
		}
	}
	h.hold(uint64(len(c.b)))
	h.blocks[addr] = c.b
	return c.b
}

func (h *fractal) indirect(ctx context.Context, addr uint64, rows int, offset uint64) []uint64 {
	if b := h.children[addr]; b != nil {
		return b
	}
	n := rows * int(h.width)
	c := h.begin(ctx, addr, offset, uint64(4+1+h.f.osz+h.offSize+n*h.f.osz+4), "FHIB", true)
	out := make([]uint64, n)
	for i := range out {
		out[i] = c.addr()
	}
	h.hold(uint64(8 * n))
	h.children[addr] = out
	return out
}
