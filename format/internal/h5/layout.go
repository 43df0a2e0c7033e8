package h5

import (
	"fmt"
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
	pageBits int    // fixed array
	array    [5]int // extensible array: bits of the most elements, elements in the index block, …
}

func (f *File) layout(addr uint64, b []byte) (*layout, error) {
	c := f.cursor(b)
	l := &layout{addr: undefined}
	version := c.u8()
	switch version {
	case 1, 2:
		f.layoutOld(c, l)
	case 3:
		l.class = int(c.u8())
		switch l.class {
		case layoutCompact:
			l.data = c.take(int(c.u16()))
		case layoutContiguous:
			l.addr, l.size = c.addr(), c.length()
		case layoutChunked:
			n := int(c.u8())
			l.addr = c.addr()
			l.dims(c, n, 4)
		}
	case 4, 5:
		l.class = int(c.u8())
		switch l.class {
		case layoutCompact:
			l.data = c.take(int(c.u16()))
		case layoutContiguous:
			l.addr, l.size = c.addr(), c.length()
		case layoutChunked:
			if err := f.layoutIndexed(addr, c, l); err != nil {
				return nil, err
			}
		}
	default:
		return nil, f.unsupported(addr, fmt.Sprintf("data layout version %d", version), "versions 1 to 5 are read")
	}
	if l.class == layoutVirtual {
		return nil, f.unsupported(addr, "a virtual data set", "its data lies in other files: open those, or copy it with h5repack")
	}
	if c.short || l.class > layoutVirtual {
		return nil, f.bad(addr, "the data layout is cut off, or of unknown class")
	}
	for _, d := range l.chunk {
		if d <= 0 {
			return nil, f.bad(addr, "a chunk of no elements")
		}
	}
	return l, nil
}

// dims reads the dimensions of chunks; the last is the size of an element.
func (l *layout) dims(c *cursor, n, width int) {
	if n < 1 || n > maxRank+1 {
		c.short = true
		return
	}
	for range n - 1 {
		l.chunk = append(l.chunk, int64(c.uint(width)))
	}
	l.element = int64(c.uint(width))
}

// layoutOld reads versions 1 and 2, of HDF5 1.6 and older.
func (f *File) layoutOld(c *cursor, l *layout) {
	n := int(c.u8())
	l.class = int(c.u8())
	c.skip(5)
	if l.class != layoutCompact {
		l.addr = c.addr()
	}
	if n > maxRank+1 {
		c.short = true
		return
	}
	switch l.class {
	case layoutChunked:
		l.dims(c, n, 4)
	default:
		c.skip(4 * n)
		l.size = undefined // follows from the space
		if l.class == layoutCompact {
			l.data = c.take(int(c.u32()))
		}
	}
}

func (f *File) layoutIndexed(addr uint64, c *cursor, l *layout) error {
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
		l.pageBits = int(c.u8())
	case indexExtensible:
		for i := range l.array {
			l.array[i] = int(c.u8())
		}
	case indexTree2:
		c.skip(6)
	default:
		return f.unsupported(addr, fmt.Sprintf("chunk index type %d", l.index), "")
	}
	l.addr = c.addr()
	return nil
}

// fill gives the fill value of the messages of a header; nil is zeros.
func (f *File) fill(addr uint64, kind uint16, b []byte, element int) ([]byte, error) {
	c := f.cursor(b)
	if kind == msgOldFill {
		return f.fillValue(addr, c, element)
	}
	switch version := c.u8(); version {
	case 1, 2:
		c.skip(2)
		if defined := c.u8(); defined == 0 || c.short {
			return nil, nil
		}
		return f.fillValue(addr, c, element)
	case 3:
		if flags := c.u8(); flags&0x20 == 0 {
			return nil, nil
		}
		return f.fillValue(addr, c, element)
	default:
		return nil, f.unsupported(addr, fmt.Sprintf("fill value version %d", version), "")
	}
}

func (f *File) fillValue(addr uint64, c *cursor, element int) ([]byte, error) {
	n := int32(c.u32())
	if n <= 0 {
		return nil, nil
	}
	v := c.take(int(n))
	if v == nil || len(v) != element {
		return nil, f.bad(addr, fmt.Sprintf("a fill value of %d bytes for elements of %d", n, element))
	}
	for _, b := range v {
		if b != 0 {
			return v, nil
		}
	}
	return nil, nil
}
