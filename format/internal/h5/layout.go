package h5

import (
	"fmt"
	"slices"
)

// The ways in which a data set's elements are stored.
const (
	layoutCompact = iota
	layoutContiguous
	layoutChunked
	layoutVirtual
)

// The indexes of chunks.
const (
	indexTree1 = iota
	indexSingle
	indexImplicit
	indexFixed
	indexExtensible
	indexTree2
)

// layout says where the elements are.
type layout struct {
	class   int
	data    []byte // compact
	addr    uint64
	size    uint64  // contiguous; of a single filtered chunk, its stored size
	chunk   []int64 // dimensions of a chunk, without that of the element
	element int64   // size of an element, as the layout has it
	index   int
	mask    uint32 // of a single filtered chunk
	// rawEdges: chunks that reach over the edge are stored without filters.
	rawEdges bool
}

func (f *File) layout(addr uint64, b []byte) *layout {
	c := f.cursor(addr, "the data layout", b)
	l := &layout{addr: undefined}
	version := c.u8()
	if version < 1 || version > 5 {
		f.unsupported(
			addr,
			fmt.Sprintf("data layout version %d", version),
			"versions 1 to 5 are read",
		)
	}
	n := 0
	if version < 3 { // of HDF5 1.6 and older
		n = int(c.u8())
	}
	l.class = int(c.u8())
	switch {
	case l.class > layoutVirtual:
		f.bad(addr, "the data layout is of unknown class")
	case l.class == layoutVirtual:
		f.unsupported(
			addr,
			"a virtual data set",
			"its data lies in other files: open those, or copy it with h5repack",
		)
	case version < 3:
		c.skip(5)
		if l.class != layoutCompact {
			l.addr = c.addr()
		}
		if l.class == layoutChunked {
			l.dims(c, n, 4)
			break
		}
		c.skip(4 * n)
		l.size = undefined // follows from the space
		if l.class == layoutCompact {
			l.data = c.take(int(c.u32()))
		}
	case l.class == layoutCompact:
		l.data = c.take(int(c.u16()))
	case l.class == layoutContiguous:
		l.addr, l.size = c.addr(), c.length()
	case version == 3:
		n := int(c.u8())
		l.addr = c.addr()
		l.dims(c, n, 4)
	default:
		l.indexed(c)
	}
	return l
}

// dims reads the dimensions of chunks; the last is the size of an element.
func (l *layout) dims(c *cursor, n, width int) {
	if n < 1 || n > maxRank+1 {
		c.cut()
	}
	for range n {
		l.chunk = append(l.chunk, int64(c.uint(width)))
	}
	l.chunk, l.element = l.chunk[:n-1], l.chunk[n-1]
	if slices.ContainsFunc(l.chunk, func(d int64) bool { return d <= 0 }) {
		c.f.bad(c.from, "a chunk of no elements")
	}
}

// indexed reads the chunks of versions 4 and 5.
func (l *layout) indexed(c *cursor) {
	flags := c.u8()
	l.rawEdges = flags&1 != 0
	n, width := int(c.u8()), int(c.u8())
	l.dims(c, n, width)
	l.index = int(c.u8())
	switch l.index {
	case indexSingle:
		if flags&2 != 0 {
			l.size, l.mask = c.length(), c.u32()
		}
	case indexImplicit:
	case indexFixed:
		c.skip(1)
	case indexExtensible:
		c.skip(5)
	case indexTree2:
		c.skip(6)
	default:
		c.f.unsupported(c.from, fmt.Sprintf("chunk index type %d", l.index), "")
	}
	l.addr = c.addr()
}

// fill gives the fill value of the messages of a header; nil is zeros.
func (f *File) fill(addr uint64, kind uint16, b []byte, element int) []byte {
	c := f.cursor(addr, "the fill value", b)
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
			f.unsupported(addr, fmt.Sprintf("fill value version %d", version), "")
		}
	}
	n := int32(c.u32())
	if n <= 0 {
		return nil
	}
	v := c.take(int(n))
	if len(v) != element {
		f.bad(addr, "a fill value of %d bytes for elements of %d", n, element)
	}
	if slices.Max(v) == 0 {
		return nil
	}
	return v
}
