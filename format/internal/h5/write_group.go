package h5

import (
	"encoding/json"
	"math"

	"github.com/goatnote-inc/robocache"
)

// GroupWriter is a group in the making.
type GroupWriter struct {
	w      *Writer
	parent *GroupWriter
	name   string
	attrs  headerWriter
	links  headerWriter
	names  map[string]bool
	open   int // children that are not closed
	closed bool
}

// Group begins a group below g.
func (g *GroupWriter) Group(name string) (*GroupWriter, error) {
	if err := g.claim(name); err != nil {
		return nil, err
	}
	return &GroupWriter{w: g.w, parent: g, name: name}, nil
}

// claim takes a name for a child.
func (g *GroupWriter) claim(name string) error {
	switch {
	case g.w.err != nil:
		return g.w.err
	case g.closed:
		return writeMisuse("the group is closed")
	case !validName(name):
		return writeMisuse("%q is no name of a link", name)
	case g.names[name]:
		return writeMisuse("%q is there already", name)
	}
	if g.names == nil {
		g.names = map[string]bool{}
	}
	g.names[name] = true
	g.open++
	return nil
}

func validName(name string) bool {
	if name == "" || name == "." {
		return false
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return false
		}
	}
	return len(name) < 1<<15
}

// link enters a child that was closed.
func (g *GroupWriter) link(name string, addr uint64) {
	var b buffer
	b.u8(1)
	width := uint8(0)
	if len(name) > math.MaxUint8 {
		width = 1
	}
	if plainASCII(name) {
		b.u8(width)
	} else {
		b.u8(width | 0x10)
		b.u8(1) // UTF-8
	}
	if width == 0 {
		b.u8(uint8(len(name)))
	} else {
		b.u16(uint16(len(name)))
	}
	b.text(name)
	b.u64(addr)
	g.links.message(msgLink, b)
	g.open--
}

func plainASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Drop gives the group up, with all that was begun in it: nothing refers to it. Its room stays in the file.
func (g *GroupWriter) Drop() {
	if g.parent != nil && !g.closed {
		g.closed = true
		g.parent.open--
		delete(g.parent.names, g.name)
	}
}

// Close ends the group. What was begun in it must be closed.
func (g *GroupWriter) Close() error {
	if g.parent == nil {
		return writeMisuse("the root group is closed by the writer")
	}
	addr, err := g.end()
	if err != nil {
		return err
	}
	g.parent.link(g.name, addr)
	return nil
}

func (g *GroupWriter) end() (uint64, error) {
	switch {
	case g.w.err != nil:
		return 0, g.w.err
	case g.closed:
		return 0, writeMisuse("the group is closed")
	case g.open > 0:
		return 0, writeMisuse("%d children of the group are not closed", g.open)
	}
	g.closed = true
	var h headerWriter
	var info buffer
	info.u8(0)
	info.u8(0)
	h.message(msgGroupInfo, info)
	info.u64(undefined) // no fractal heap: links are messages
	info.u64(undefined)
	h.message(msgLinkInfo, info)
	h.messages = append(append(h.messages, g.links.messages...), g.attrs.messages...)
	return g.w.header(&h), g.w.err
}

// Attribute gives the group an attribute: text, an integer, a float, a bool, a slice of these, or JSON as text.
func (g *GroupWriter) Attribute(name string, value any) error {
	if g.closed {
		return writeMisuse("the group is closed")
	}
	return g.w.attribute(&g.attrs, name, value)
}

func (w *Writer) attribute(h *headerWriter, name string, value any) error {
	if w.err != nil {
		return w.err
	}
	if name == "" || len(name) >= 1<<15 {
		return writeMisuse("%q is no name of an attribute", name)
	}
	var space, data buffer
	space.u8(2)
	scalar := func() {
		space.u8(0)
		space.u8(0)
		space.u8(0)
	}
	list := func(n int) {
		space.u8(1)
		space.u8(0)
		space.u8(1)
		space.u64(uint64(n))
	}
	var kind []byte
	number := func(d robocache.DType, v uint64) {
		kind = numericType(d)
		switch d.Size() {
		case 1:
			data.u8(uint8(v))
		default:
			data.u64(v)
		}
	}
	switch v := value.(type) {
	case string:
		scalar()
		kind, data = textType(), w.reference(v)
	case json.RawMessage:
		return w.attribute(h, name, string(v))
	case []string:
		list(len(v))
		kind = textType()
		for _, s := range v {
			data.bytes(w.reference(s))
		}
	case bool:
		scalar()
		n := uint64(0)
		if v {
			n = 1
		}
		number(robocache.Bool, n)
	case int:
		scalar()
		number(robocache.Int64, uint64(v))
	case int64:
		scalar()
		number(robocache.Int64, uint64(v))
	case float64:
		scalar()
		number(robocache.Float64, math.Float64bits(v))
	case []int64:
		list(len(v))
		kind = numericType(robocache.Int64)
		for _, x := range v {
			number(robocache.Int64, uint64(x))
		}
	case []float64:
		list(len(v))
		kind = numericType(robocache.Float64)
		for _, x := range v {
			number(robocache.Float64, math.Float64bits(x))
		}
	default:
		return writeMisuse("an attribute of %T", value)
	}
	var b buffer
	b.u8(3)
	b.u8(0)
	b.u16(uint16(len(name) + 1))
	b.u16(uint16(len(kind)))
	b.u16(uint16(len(space)))
	charset := uint8(0)
	if !plainASCII(name) {
		charset = 1
	}
	b.u8(charset)
	b.text(name)
	b.u8(0)
	b.bytes(kind)
	b.bytes(space)
	b.bytes(data)
	if len(b) > math.MaxUint16-16 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "write hdf5", Where: robocache.Where{"pointer": name}, Msg: "an attribute of more than 64 KB", Hint: "make it a data set, or text"}
	}
	h.message(msgAttribute, b)
	return w.err
}
