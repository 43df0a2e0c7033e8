package h5

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
)

// GroupWriter writes one group.
type GroupWriter struct {
	w      *Writer
	parent *GroupWriter
	name   string
	attrs  messages
	links  messages
	names  map[string]bool
	open   int // children that are not closed
	closed bool
}

// Group begins a group below g.
func (g *GroupWriter) Group(name string) (*GroupWriter, error) {
	if err := g.claimName(name); err != nil {
		return nil, err
	}
	return &GroupWriter{w: g.w, parent: g, name: name}, nil
}

// claimName reserves a name for a child.
func (g *GroupWriter) claimName(name string) error {
	switch {
	case g.w.err != nil:
		return g.w.err
	case g.closed:
		return writeMisuse("the group is closed")
	case !validName(name):
		return writeMisuse("%q is not a valid link name", name)
	case g.names[name]:
		return writeMisuse("%q exists already", name)
	}
	if g.names == nil {
		g.names = map[string]bool{}
	}
	g.names[name] = true
	g.open++
	return nil
}

func validName(name string) bool {
	return name != "" && name != "." && len(name) < 1<<15 && !strings.ContainsAny(name, "/\x00")
}

// addLink adds a link to a closed child.
func (g *GroupWriter) addLink(name string, addr uint64) {
	flags, charset, length := u8(0), []byte(nil), any(u8(len(name)))
	if len(name) > math.MaxUint8 {
		flags, length = 1, u16(len(name))
	}
	if !plainASCII(name) {
		flags, charset = flags|0x10, []byte{1} // UTF-8
	}
	g.links.addMessage(msgLink, u8(1), flags, charset, length, name, addr)
	g.open--
}

// Link adds another name in g for a closed data set.
func (g *GroupWriter) Link(name string, d *DatasetWriter) error {
	if !d.closed {
		return writeMisuse("the data set %q is not closed", d.name)
	}
	if err := g.claimName(name); err != nil {
		return err
	}
	g.addLink(name, d.addr)
	return nil
}

func plainASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// Drop discards the group with everything below it: no link refers to it. Its space in the file is
// not reused.
func (g *GroupWriter) Drop() {
	if g.parent != nil && !g.closed {
		g.closed = true
		g.parent.open--
		delete(g.parent.names, g.name)
	}
}

// Close completes the group. Everything below it must be closed.
func (g *GroupWriter) Close() error {
	if g.parent == nil {
		return writeMisuse("the root group is closed by the writer")
	}
	addr, err := g.writeGroup()
	if err != nil {
		return err
	}
	g.parent.addLink(g.name, addr)
	return nil
}

func (g *GroupWriter) writeGroup() (uint64, error) {
	switch {
	case g.w.err != nil:
		return 0, g.w.err
	case g.closed:
		return 0, writeMisuse("the group is closed")
	case g.open > 0:
		return 0, writeMisuse("%d children of the group are not closed", g.open)
	}
	g.closed = true
	var m messages
	m.addMessage(msgGroupInfo, u16(0))
	m.addMessage(msgLinkInfo, u16(0), undefined, undefined) // no fractal heap: links are messages
	return g.w.writeHeader(slices.Concat(m, g.links, g.attrs)), g.w.err
}

// Attribute adds an attribute to the group: text, an integer, a float, a bool, a slice of these, or
// JSON as text.
func (g *GroupWriter) Attribute(name string, value any) error {
	if g.closed {
		return writeMisuse("the group is closed")
	}
	return g.w.writeAttribute(&g.attrs, name, value)
}

func (w *Writer) writeAttribute(m *messages, name string, value any) error {
	if w.err != nil {
		return w.err
	}
	if name == "" || len(name) >= 1<<15 {
		return writeMisuse("%q is not a valid attribute name", name)
	}
	space := packMetadata(u8(2), u8(0), u8(0), u8(0)) // one element
	list := func(n int) { space = packMetadata(u8(2), u8(1), u8(0), u8(1), uint64(n)) }
	kind, data := textType(), []byte(nil)
	number := func(d robocache.DType) { kind, data = numericType(d), packMetadata(value) }
	switch v := value.(type) {
	case json.RawMessage:
		return w.writeAttribute(m, name, string(v))
	case int:
		return w.writeAttribute(m, name, int64(v))
	case string:
		data = w.textReference(v)
	case []string:
		list(len(v))
		for _, s := range v {
			data = append(data, w.textReference(s)...)
		}
	case bool:
		number(robocache.Bool)
	case int64:
		number(robocache.Int64)
	case float64:
		number(robocache.Float64)
	case []int64:
		list(len(v))
		number(robocache.Int64)
	case []float64:
		list(len(v))
		number(robocache.Float64)
	default:
		return writeMisuse("an attribute of %T", value)
	}
	charset := u8(0)
	if !plainASCII(name) {
		charset = 1
	}
	b := packMetadata(
		u8(3),
		u8(0),
		u16(len(name)+1),
		u16(len(kind)),
		u16(len(space)),
		charset,
		name,
		u8(0),
		kind,
		space,
		data,
	)
	if len(b) > math.MaxUint16-16 {
		return robocache.Unsupported(
			"write hdf5",
			robocache.Where{"pointer": name},
			"an attribute of more than 64 KB",
		).
			WithHint("make it a data set, or text")
	}
	m.addMessage(msgAttribute, b)
	return w.err
}
