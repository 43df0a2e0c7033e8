package h5

import (
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
	blocks         map[uint64]*block
	held           int64 // bytes of blocks
}

// block is a direct or indirect block that was read.
type block struct {
	data     []byte   // direct: with its head
	children []uint64 // indirect
}

func (f *File) fractalHeap(ctx context.Context, addr uint64) (*fractal, error) {
	n := 4 + 1 + 2 + 2 + 1 + 4 + 12*f.lsz + 3*f.osz + 2 + 2 + 2 + 2 + 4
	c, err := f.structure(ctx, addr, uint64(n), "FRHP", false)
	if err != nil {
		return nil, err
	}
	h := &fractal{f: f, addr: addr, blocks: map[uint64]*block{}}
	version := c.u8()
	h.idLength = int(c.u16())
	filters := c.u16()
	if version != 0 {
		return nil, f.unsupported(addr, fmt.Sprintf("fractal heap version %d", version), "")
	}
	if filters != 0 {
		return nil, f.unsupported(addr, "a fractal heap with filters", "write the file again with h5repack")
	}
	if c, err = f.structure(ctx, addr, uint64(n), "FRHP", true); err != nil {
		return nil, err
	}
	c.skip(5)
	h.checked = c.u8()&2 != 0
	largestObject := c.u32()
	c.length()
	h.hugeTree = c.addr()
	c.length()
	c.addr()
	for range 8 {
		c.length()
	}
	h.width, h.start, h.largest = uint64(c.u16()), c.length(), c.length()
	heapBits := int(c.u16())
	c.skip(2)
	h.root, h.rows = c.addr(), int(c.u16())
	pow := func(v uint64) bool { return v != 0 && v&(v-1) == 0 }
	if c.short || !pow(h.width) || !pow(h.start) || !pow(h.largest) || h.start > h.largest || h.largest > maxMetadata || heapBits > 64 || h.idLength < 3 || h.idLength > 64 {
		return nil, f.bad(addr, "the sizes of a fractal heap")
	}
	h.offSize = (heapBits + 7) / 8
	h.lenSize = min((log2(h.largest)+7)/8, encodedSize(uint64(largestObject)))
	h.directRows = log2(h.largest) - log2(h.start) + 2
	if 1+h.offSize+h.lenSize > h.idLength || h.rows > heapBits+1 {
		return nil, f.bad(addr, "the sizes of a fractal heap")
	}
	return h, nil
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
func (h *fractal) object(ctx context.Context, id []byte) ([]byte, error) {
	if len(id) < h.idLength {
		return nil, h.f.bad(h.addr, "an id of a fractal heap is cut off")
	}
	c := h.f.cursor(id[:h.idLength])
	head := c.u8()
	if head>>6 != 0 {
		return nil, h.f.unsupported(h.addr, fmt.Sprintf("version %d of a fractal heap's ids", head>>6), "")
	}
	switch head >> 4 & 3 {
	case 0:
		off, n := c.uint(h.offSize), c.uint(h.lenSize)
		b, at, err := h.find(ctx, off)
		if err != nil {
			return nil, err
		}
		if n > uint64(len(b.data)) || at > uint64(len(b.data))-n {
			return nil, h.f.bad(h.addr, "an object of a fractal heap ends after its block")
		}
		return b.data[at : at+n : at+n], nil
	case 1:
		s, err := h.hugeObject(ctx, c)
		if err != nil {
			return nil, err
		}
		// Any number of ids may name one object.
		if h.held += int64(min(s.size, maxMetadata)); h.held > maxMetadata {
			return nil, h.f.limit(h.addr, "the large objects of a fractal heap", uint64(h.held), maxMetadata)
		}
		return h.f.metadata(ctx, s.addr, s.size, "a large object of a fractal heap")
	case 2:
		n := int(head&15) + 1
		if h.idLength > 18 {
			n = int(head&15)<<8 | int(c.u8()) + 1
		}
		b := c.take(n)
		if b == nil {
			return nil, h.f.bad(h.addr, "a small object of a fractal heap is cut off")
		}
		return b, nil
	}
	return nil, h.f.bad(h.addr, "an id of a fractal heap of unknown kind")
}

// hugeObject finds an object that is too large for a block.
func (h *fractal) hugeObject(ctx context.Context, c *cursor) (stretch, error) {
	f := h.f
	if h.idLength-1 >= f.osz+f.lsz { // the id is the place
		return stretch{c.addr(), c.length()}, nil
	}
	n := c.uint(min(f.lsz, h.idLength-1))
	if h.huge == nil {
		h.huge = map[uint64]stretch{}
		err := f.tree2(ctx, h.hugeTree, []uint8{recHuge}, func(_ uint8, rec []byte) error {
			r := f.cursor(rec)
			s := stretch{r.addr(), r.length()}
			h.huge[r.length()] = s
			if r.short {
				return f.bad(h.hugeTree, "a record of a fractal heap's large objects is cut off")
			}
			return nil
		})
		if err != nil {
			return stretch{}, err
		}
	}
	s, ok := h.huge[n]
	if !ok {
		return stretch{}, f.bad(h.addr, fmt.Sprintf("no large object %d in a fractal heap", n))
	}
	return s, nil
}

// find gives the direct block that holds an offset of the heap, and where in it.
func (h *fractal) find(ctx context.Context, off uint64) (*block, uint64, error) {
	if h.rows == 0 {
		b, err := h.direct(ctx, h.root, 0, h.start)
		return b, off, err
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
			return nil, 0, h.f.bad(h.addr, fmt.Sprintf("offset %d is not in the fractal heap", off))
		}
		b, err := h.indirect(ctx, addr, rows, base)
		if err != nil {
			return nil, 0, err
		}
		i := uint64(row)*h.width + col
		if i >= uint64(len(b.children)) || b.children[i] == undefined {
			return nil, 0, h.f.bad(h.addr, fmt.Sprintf("offset %d is in no block of the fractal heap", off))
		}
		addr, base = b.children[i], base+begin
		size := h.rowSize(row)
		if row < h.directRows {
			d, err := h.direct(ctx, addr, base, size)
			return d, off - base, err
		}
		if rows = log2(size) - log2(h.start*h.width) + 1; rows <= 0 {
			break
		}
	}
	return nil, 0, h.f.bad(h.addr, "a fractal heap is nested too deep")
}

func (h *fractal) keep(addr uint64, b *block) error {
	if h.held += int64(len(b.data) + 8*len(b.children)); h.held > maxMetadata {
		return h.f.limit(h.addr, "blocks of a fractal heap", uint64(h.held), maxMetadata)
	}
	h.blocks[addr] = b
	return nil
}

func (h *fractal) direct(ctx context.Context, addr, offset, size uint64) (*block, error) {
	if b := h.blocks[addr]; b != nil && b.data != nil {
		return b, nil
	}
	f := h.f
	c, err := f.structure(ctx, addr, size, "FHDB", false)
	if err != nil {
		return nil, err
	}
	c.skip(1)
	if c.addr() != h.addr || c.uint(h.offSize) != offset {
		return nil, f.bad(addr, "a block of another fractal heap")
	}
	b := &block{data: c.b}
	if h.checked && !f.lax {
		at := c.off
		sum := c.u32()
		if c.short {
			return nil, f.bad(addr, "a block of a fractal heap is cut off")
		}
		plain := append([]byte(nil), c.b...)
		copy(plain[at:at+4], []byte{0, 0, 0, 0})
		if lookup3(plain) != sum {
			return nil, f.bad(addr, "the checksum of a fractal heap's block does not match its bytes")
		}
	}
	return b, h.keep(addr, b)
}

func (h *fractal) indirect(ctx context.Context, addr uint64, rows int, offset uint64) (*block, error) {
	if b := h.blocks[addr]; b != nil && b.children != nil {
		return b, nil
	}
	f := h.f
	n := rows * int(h.width)
	c, err := f.structure(ctx, addr, uint64(4+1+f.osz+h.offSize+n*f.osz+4), "FHIB", true)
	if err != nil {
		return nil, err
	}
	c.skip(1)
	if c.addr() != h.addr || c.uint(h.offSize) != offset {
		return nil, f.bad(addr, "a block of another fractal heap")
	}
	b := &block{children: make([]uint64, n)}
	for i := range b.children {
		b.children[i] = c.addr()
	}
	return b, h.keep(addr, b)
}
