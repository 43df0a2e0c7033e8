package h5

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
)

// fractalHeap is the heap in which newer files store the links of large groups, and objects with
// many attributes.
type fractalHeap struct {
	f              *File
	addr           uint64
	idLength       int
	checked        bool // direct blocks have a checksum
	width          uint64
	start, largest uint64
	offSize        int // bytes of an offset of the heap, in ids and blocks
	lenSize        int
	root           uint64
	rows           int // rows of the root block; 0 means that the root is a direct block
	hugeTree       uint64
	huge           map[uint64]extent
	directRows     int
	blocks         map[uint64][]byte   // direct blocks that were read, with their headers
	children       map[uint64][]uint64 // children of indirect blocks that were read
	heldBytes      uint64              // bytes of blocks and children
}

func (f *File) openFractalHeap(ctx context.Context, addr uint64) *fractalHeap {
	n := uint64(4 + 1 + 2 + 2 + 1 + 4 + 12*f.lsz + 3*f.osz + 2 + 2 + 2 + 2 + 4)
	c := f.readStructure(ctx, addr, n, "FRHP", false)
	h := &fractalHeap{
		f:        f,
		addr:     addr,
		blocks:   map[uint64][]byte{},
		children: map[uint64][]uint64{},
	}
	version := c.u8()
	h.idLength = int(c.u16())
	filters := c.u16()
	if version != 0 {
		f.failUnsupported(addr, fmt.Sprintf("fractal heap version %d", version), "")
	}
	if filters != 0 {
		f.failUnsupported(addr, "a fractal heap with filters", "write the file again with h5repack")
	}
	c = f.readStructure(ctx, addr, n, "FRHP", true)
	c.skip(5)
	h.checked = c.u8()&2 != 0
	largestObject := c.u32()
	c.readLength()
	h.hugeTree = c.readAddr()
	c.readLength()
	c.readAddr()
	c.skip(8 * f.lsz)
	h.width, h.start, h.largest = uint64(c.u16()), c.readLength(), c.readLength()
	heapBits := int(c.u16())
	c.skip(2)
	h.root, h.rows = c.readAddr(), int(c.u16())
	pow := func(v uint64) bool { return v != 0 && v&(v-1) == 0 }
	if !pow(h.width) || !pow(h.start) || !pow(h.largest) || h.start > h.largest ||
		h.largest > maxMetadata ||
		heapBits > 64 ||
		h.idLength < 3 ||
		h.idLength > 64 {
		f.failMalformed(addr, "the sizes of a fractal heap")
	}
	h.offSize = (heapBits + 7) / 8
	h.lenSize = min((log2(h.largest)+7)/8, encodedSize(uint64(largestObject)))
	h.directRows = log2(h.largest) - log2(h.start) + 2
	if 1+h.offSize+h.lenSize > h.idLength || h.rows > heapBits+1 {
		f.failMalformed(addr, "the sizes of a fractal heap")
	}
	return h
}

// forEachDense calls each for every object that the B-tree records of the given kind refer to. The
// message m contains the addresses of the heap and the tree, after skip optional bytes.
func (o *Object) forEachDense(
	ctx context.Context,
	m *message,
	skip int,
	kind uint8,
	each func(heap uint64, object []byte, rec *cursor),
) {
	f := o.f
	c := f.newCursor(o.addr, "a message of dense links or attributes", m.data)
	version, flags := c.u8(), c.u8()
	if version != 0 {
		f.failMalformed(o.addr, "a message of dense links or attributes of version %d", version)
	}
	c.skip(int(flags&1) * skip)
	heap, tree := c.readAddr(), c.readAddr()
	if heap == undefined {
		return
	}
	h := f.openFractalHeap(ctx, heap)
	f.walkBTree2(ctx, tree, func(_ uint8, rec *cursor) {
		if kind == recLinkName {
			rec.skip(4) // the hash of the name
		}
		each(heap, h.objectBytes(ctx, rec), rec)
	}, kind)
}

func log2(v uint64) int { return bits.Len64(v) - 1 }

// rowSize returns the size of the blocks in a row of the doubling table.
func (h *fractalHeap) rowSize(row int) uint64 {
	if row == 0 {
		return h.start
	}
	return h.start << (row - 1)
}

// objectBytes returns the bytes of the object that a record refers to.
func (h *fractalHeap) objectBytes(ctx context.Context, rec *cursor) []byte {
	f := h.f
	c := f.newCursor(h.addr, "an id of a fractal heap", rec.takeBytes(h.idLength))
	head := c.u8()
	if head>>6 != 0 {
		f.failUnsupported(h.addr, fmt.Sprintf("version %d of a fractal heap's ids", head>>6), "")
	}
	switch head >> 4 & 3 {
	case 0:
		off, n := c.uint(h.offSize), c.uint(h.lenSize)
		b, at := h.findBlock(ctx, off)
		if n > uint64(len(b)) || at > uint64(len(b))-n {
			f.failMalformed(h.addr, "an object of a fractal heap ends after its block")
		}
		return b[at : at+n : at+n]
	case 1:
		s := h.hugeObject(ctx, c)
		h.countHeld(min(s.size, maxMetadata)) // any number of ids may refer to one object
		return f.readMetadata(ctx, s.addr, s.size, "a large object of a fractal heap")
	case 2:
		n := int(head&15) + 1
		if h.idLength > 18 {
			n = int(head&15)<<8 | int(c.u8()) + 1
		}
		return c.takeBytes(n)
	}
	f.failMalformed(h.addr, "an id of a fractal heap of unknown kind")
	return nil
}

// hugeObject returns the location of an object that is too large for a block.
func (h *fractalHeap) hugeObject(ctx context.Context, c *cursor) extent {
	f := h.f
	if h.idLength-1 >= f.osz+f.lsz { // the id contains the location
		return extent{c.readAddr(), c.readLength()}
	}
	n := c.uint(min(f.lsz, h.idLength-1))
	if h.huge == nil {
		h.huge = map[uint64]extent{}
		f.walkBTree2(ctx, h.hugeTree, func(_ uint8, rec *cursor) {
			s := extent{rec.readAddr(), rec.readLength()}
			h.huge[rec.readLength()] = s
		}, recHuge)
	}
	s, ok := h.huge[n]
	if !ok {
		f.failMalformed(h.addr, "no large object %d in a fractal heap", n)
	}
	return s
}

// findBlock returns the direct block that contains an offset of the heap, and the position in that
// block.
func (h *fractalHeap) findBlock(ctx context.Context, off uint64) ([]byte, uint64) {
	if h.rows == 0 {
		return h.directBlock(ctx, h.root, 0, h.start), off
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
			h.f.failMalformed(h.addr, "offset %d is not in the fractal heap", off)
		}
		children := h.childBlocks(ctx, addr, rows, base)
		i := uint64(row)*h.width + col
		if i >= uint64(len(children)) || children[i] == undefined {
			h.f.failMalformed(h.addr, "offset %d is in no block of the fractal heap", off)
		}
		addr, base = children[i], base+begin
		size := h.rowSize(row)
		if row < h.directRows {
			return h.directBlock(ctx, addr, base, size), off - base
		}
		if rows = log2(size) - log2(h.start*h.width) + 1; rows <= 0 {
			break
		}
	}
	h.f.failMalformed(h.addr, "a fractal heap is nested too deep")
	return nil, 0
}

// countHeld adds n to the bytes that are kept in memory for the heap.
func (h *fractalHeap) countHeld(n uint64) {
	h.heldBytes += n
	h.f.checkLimit(h.addr, "the blocks of a fractal heap", h.heldBytes, maxMetadata)
}

// readBlockHeader reads the header that both kinds of blocks share.
func (h *fractalHeap) readBlockHeader(
	ctx context.Context,
	addr, offset, size uint64,
	sig string,
	sum bool,
) *cursor {
	c := h.f.readStructure(ctx, addr, size, sig, sum)
	c.skip(1)
	if c.readAddr() != h.addr || c.uint(h.offSize) != offset {
		h.f.failMalformed(addr, "a block of another fractal heap")
	}
	return c
}

func (h *fractalHeap) directBlock(ctx context.Context, addr, offset, size uint64) []byte {
	if b := h.blocks[addr]; b != nil {
		return b
	}
	c := h.readBlockHeader(ctx, addr, offset, size, "FHDB", false)
	if h.checked && !h.f.lax {
		at := c.off
		sum := c.u32()
		plain := bytes.Clone(c.b)
		clear(plain[at : at+4])
		if lookup3Hash(plain) != sum {
			h.f.failMalformed(
				addr,
				"the checksum of a fractal heap's block does not match its bytes",
			)
		}
	}
	h.countHeld(uint64(len(c.b)))
	h.blocks[addr] = c.b
	return c.b
}

func (h *fractalHeap) childBlocks(
	ctx context.Context,
	addr uint64,
	rows int,
	offset uint64,
) []uint64 {
	if b := h.children[addr]; b != nil {
		return b
	}
	n := rows * int(h.width)
	c := h.readBlockHeader(
		ctx,
		addr,
		offset,
		uint64(4+1+h.f.osz+h.offSize+n*h.f.osz+4),
		"FHIB",
		true,
	)
	out := make([]uint64, n)
	for i := range out {
		out[i] = c.readAddr()
	}
	h.countHeld(uint64(8 * n))
	h.children[addr] = out
	return out
}
