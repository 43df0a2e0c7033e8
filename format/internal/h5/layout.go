package h5

import (
	"fmt"
	"slices"
)

// The storage classes of data sets.
const (
	layoutCompact = iota
	layoutContiguous
	layoutChunked
	layoutVirtual
)

// The kinds of chunk indexes.
const (
	indexTree1 = iota
	indexSingle
	indexImplicit
	indexFixed
	indexExtensible
	indexTree2
)

// layout describes where the elements of a data set are stored.
type layout struct {
	class   int
	data    []byte // elements of a compact data set
	addr    uint64
	size    uint64  // bytes of a contiguous data set, or stored size of a single filtered chunk
	chunk   []int64 // dimensions of a chunk, without the element size
	element int64   // element size according to the layout
	index   int
	mask    uint32 // filter mask of a single filtered chunk
	// rawEdges means that chunks which extend over the edge are stored without filters.
	rawEdges bool
}

func (f *File) parseLayout(addr uint64, b []byte) *layout {
	c := f.newCursor(addr, "the data layout", b)
	l := &layout{addr: undefined}
	version := c.u8()
	if version < 1 || version > 5 {
		f.failUnsupported(
			addr,
			fmt.Sprintf("data layout version %d", version),
			"versions 1 to 5 are read",
		)
	}
	n := 0
	if version < 3 { // HDF5 1.6 and older
		n = int(c.u8())
	}
	l.class = int(c.u8())
	switch {
	case l.class > layoutVirtual:
		f.failMalformed(addr, "the data layout is of unknown class")
	case l.class == layoutVirtual:
		f.failUnsupported(
			addr,
			"a virtual data set",
			"its data lies in other files: open those, or copy it with h5repack",
		)
	case version < 3:
		c.skip(5)
		if l.class != layoutCompact {
			l.addr = c.readAddr()
		}
		if l.class == layoutChunked {
			l.parseChunkDims(c, n, 4)
			break
		}
		c.skip(4 * n)
		l.size = undefined // computed from the dataspace
		if l.class == layoutCompact {
			l.data = c.takeBytes(int(c.u32()))
		}
	case l.class == layoutCompact:
		l.data = c.takeBytes(int(c.u16()))
	case l.class == layoutContiguous:
		l.addr, l.size = c.readAddr(), c.readLength()
	case version == 3:
		n := int(c.u8())
		l.addr = c.readAddr()
		l.parseChunkDims(c, n, 4)
	default:
		l.parseChunkIndex(c)
	}
	return l
}

// parseChunkDims reads the dimensions of a chunk. The last number is the size of an element.
func (l *layout) parseChunkDims(c *cursor, n, width int) {
	if n < 1 || n > maxRank+1 {
		c.failCutOff()
	}
	for range n {
		l.chunk = append(l.chunk, int64(c.uint(width)))
	}
	l.chunk, l.element = l.chunk[:n-1], l.chunk[n-1]
	if slices.ContainsFunc(l.chunk, func(d int64) bool { return d <= 0 }) {
		c.f.failMalformed(c.pieceAddr, "a chunk of no elements")
	}
}

// parseChunkIndex reads the chunk layout of versions 4 and 5.
func (l *layout) parseChunkIndex(c *cursor) {
	flags := c.u8()
	l.rawEdges = flags&1 != 0
	n, width := int(c.u8()), int(c.u8())
	l.parseChunkDims(c, n, width)
	l.index = int(c.u8())
	switch l.index {
	case indexSingle:
		if flags&2 != 0 {
			l.size, l.mask = c.readLength(), c.u32()
		}
	case indexImplicit:
	case indexFixed:
		c.skip(1)
	case indexExtensible:
		c.skip(5)
	case indexTree2:
		c.skip(6)
	default:
		c.f.failUnsupported(c.pieceAddr, fmt.Sprintf("chunk index type %d", l.index), "")
	}
	l.addr = c.readAddr()
}

// parseFillValue returns the fill value from a header message. nil means zeros.
func (f *File) parseFillValue(addr uint64, kind uint16, b []byte, element int) []byte {
	c := f.newCursor(addr, "the fill value", b)
	if kind != msgOldFill {
		switch version := c.u8(); version {
		case 1, 2:
			c.skip(2)
			if c.u8() == 0 {
				return nil
			}
		case 3:
			if c.u8()&0x20 == 0 {
				return nil
			}
		default:
			f.failUnsupported(addr, fmt.Sprintf("fill value version %d", version), "")
		}
	}
	n := int32(c.u32())
	if n <= 0 {
		return nil
	}
	v := c.takeBytes(int(n))
	if len(v) != element {
		f.failMalformed(addr, "a fill value of %d bytes for elements of %d", n, element)
	}
	if slices.Max(v) == 0 {
		return nil
	}
	return v
}
