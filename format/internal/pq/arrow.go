package pq

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"
)

// CheckNames proves what other readers take from the footer and nothing here does: names of columns
// are UTF-8, and the Arrow schema that pyarrow keeps beside Parquet's own, and trusts, is whole.
// The file is one opened with all columns.
func CheckNames(f *File) error {
	if !utf8Names(f.Root) {
		return malformed("footer: the name of a column is not UTF-8")
	}
	if f.arrow == "" {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(f.arrow)
	if err != nil {
		return malformed("footer: the Arrow schema is not base64: " + err.Error())
	}
	if len(b) >= 8 && binary.LittleEndian.Uint32(b) == 0xffffffff {
		b = b[4:]
	}
	if len(b) < 8 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return malformed("footer: the Arrow schema is cut")
	}
	m := &flat{b: b[4:]}
	message := m.table(m.ref(0))
	version, header := m.scalar(message, 0, 2), m.scalar(message, 1, 1)
	schema := m.table(m.ref(m.need(message, 2)))
	if version > 4 || header != 1 || m.scalar(schema, 0, 2) > 1 {
		m.bad = true
	}
	m.each(m.need(schema, 1), func(at int) { m.arrowField(at, 0) })
	m.pairs(schema, 2)
	if m.bad {
		return malformed("footer: the Arrow schema (ARROW:schema) is damaged")
	}
	return nil
}

func utf8Names(n *Node) bool {
	for _, c := range n.Children {
		if !utf8Names(c) {
			return false
		}
	}
	return utf8.ValidString(n.Name)
}

// flat reads a flatbuffer. Places are offsets; 0 is none. What lies outside sets bad.
type flat struct {
	b   []byte
	bad bool
}

// fits says whether n bytes lie at a place that is a multiple of align.
func (m *flat) fits(at, n, align int) bool {
	if at < 0 || n < 0 || at > len(m.b)-n || at%align != 0 {
		m.bad = true
	}
	return !m.bad
}

func (m *flat) number(at, width int) uint64 {
	if !m.fits(at, width, width) {
		return 0
	}
	var v uint64
	for i := width - 1; i >= 0; i-- {
		v = v<<8 | uint64(m.b[at+i])
	}
	return v
}

// ref follows an offset.
func (m *flat) ref(at int) int {
	v := int(m.number(at, 4))
	if v == 0 {
		m.bad = true
	}
	return at + v
}

// table proves a table's layout.
func (m *flat) table(at int) int {
	v := at - int(int32(m.number(at, 4)))
	size, body := int(m.number(v, 2)), int(m.number(v+2, 2))
	if m.fits(at, body, 4) && m.fits(v, size, 2) && (size < 4 || size%2 != 0) {
		m.bad = true
	}
	return at
}

// field is the place of a table's field, 0 where it is not set.
func (m *flat) field(table, i int) int {
	v := table - int(int32(m.number(table, 4)))
	if m.bad || 4+2*i+2 > int(m.number(v, 2)) {
		return 0
	}
	if off := int(m.number(v+4+2*i, 2)); off != 0 {
		return table + off
	}
	return 0
}

func (m *flat) need(table, i int) int {
	at := m.field(table, i)
	if at == 0 {
		m.bad = true
	}
	return at
}

func (m *flat) scalar(table, i, width int) uint64 {
	if at := m.field(table, i); at != 0 {
		return m.number(at, width)
	}
	return 0
}

func (m *flat) text(at int) {
	at = m.ref(at)
	if n := int(m.number(at, 4)); m.fits(at+4, n+1, 4) && m.b[at+4+n] != 0 {
		m.bad = true
	}
}

// each visits the tables of a vector.
func (m *flat) each(at int, visit func(table int)) {
	at = m.ref(at)
	n := int(m.number(at, 4))
	for i := 0; m.fits(at+4, 4*n, 4) && i < n; i++ {
		visit(m.table(m.ref(at + 4 + 4*i)))
	}
}

func (m *flat) pairs(table, i int) {
	if at := m.field(table, i); at != 0 {
		m.each(at, func(pair int) {
			m.text(m.need(pair, 0))
			m.text(m.need(pair, 1))
		})
	}
}

const maxArrowType = 26 // LargeListView, the last that the format knows

func (m *flat) arrowField(at, depth int) {
	if depth > 64 {
		m.bad = true
	}
	if m.bad {
		return
	}
	if name := m.field(at, 0); name != 0 {
		m.text(name)
	}
	m.scalar(at, 1, 1)
	kind := m.scalar(at, 2, 1)
	typ := m.table(m.ref(m.need(at, 3)))
	switch {
	case kind == 0 || kind > maxArrowType:
		m.bad = true
	case kind == 2: // Int
		if bits := m.scalar(typ, 0, 4); bits != 8 && bits != 16 && bits != 32 && bits != 64 {
			m.bad = true
		}
	case kind == 3: // FloatingPoint
		if m.scalar(typ, 0, 2) > 2 {
			m.bad = true
		}
	}
	if dict := m.field(at, 4); dict != 0 {
		m.table(m.ref(dict))
	}
	if children := m.field(at, 5); children != 0 {
		m.each(children, func(child int) { m.arrowField(child, depth+1) })
	}
	m.pairs(at, 6)
}
