package pq

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"
)

// CheckNames checks parts of the footer that other readers use and this package does not. Column
// names must be UTF-8. The Arrow schema that pyarrow stores in addition to Parquet's schema must be
// complete, because pyarrow trusts it. The file must have been opened with all columns.
func CheckNames(f *File) error {
	if !utf8Names(f.Root) {
		return malformed("footer: the name of a column is not UTF-8")
	}
	if f.arrowSchema == "" {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(f.arrowSchema)
	if err != nil {
		return malformed("footer: the Arrow schema is not base64: " + err.Error())
	}
	if len(b) >= 8 && binary.LittleEndian.Uint32(b) == 0xffffffff {
		b = b[4:]
	}
	if len(b) < 8 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return malformed("footer: the Arrow schema is cut")
	}
	m := &flatbuffer{b: b[4:]}
	message := m.checkTable(m.followOffset(0))
	version, header := m.scalarField(message, 0, 2), m.scalarField(message, 1, 1)
	schema := m.checkTable(m.followOffset(m.requiredField(message, 2)))
	if version > 4 || header != 1 || m.scalarField(schema, 0, 2) > 1 {
		m.bad = true
	}
	m.forEachTable(m.requiredField(schema, 1), func(at int) { m.checkArrowField(at, 0) })
	m.checkKeyValues(schema, 2)
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

// flatbuffer reads a flatbuffer. Positions are offsets, and 0 means none. An access outside the
// buffer sets bad.
type flatbuffer struct {
	b   []byte
	bad bool
}

// checkRange reports whether n bytes at a position are inside the buffer and the position is a
// multiple of align.
func (m *flatbuffer) checkRange(at, n, align int) bool {
	if at < 0 || n < 0 || at > len(m.b)-n || at%align != 0 {
		m.bad = true
	}
	return !m.bad
}

func (m *flatbuffer) readNumber(at, width int) uint64 {
	if !m.checkRange(at, width, width) {
		return 0
	}
	var v uint64
	for i := width - 1; i >= 0; i-- {
		v = v<<8 | uint64(m.b[at+i])
	}
	return v
}

// followOffset returns the position that the offset at a position refers to.
func (m *flatbuffer) followOffset(at int) int {
	v := int(m.readNumber(at, 4))
	if v == 0 {
		m.bad = true
	}
	return at + v
}

// checkTable checks the layout of a table and returns its position.
func (m *flatbuffer) checkTable(at int) int {
	v := at - int(int32(m.readNumber(at, 4)))
	size, body := int(m.readNumber(v, 2)), int(m.readNumber(v+2, 2))
	if m.checkRange(at, body, 4) && m.checkRange(v, size, 2) && (size < 4 || size%2 != 0) {
		m.bad = true
	}
	return at
}

// fieldOffset returns the position of a field of a table, or 0 if it is not set.
func (m *flatbuffer) fieldOffset(table, i int) int {
	v := table - int(int32(m.readNumber(table, 4)))
	if m.bad || 4+2*i+2 > int(m.readNumber(v, 2)) {
		return 0
	}
	if off := int(m.readNumber(v+4+2*i, 2)); off != 0 {
		return table + off
	}
	return 0
}

func (m *flatbuffer) requiredField(table, i int) int {
	at := m.fieldOffset(table, i)
	if at == 0 {
		m.bad = true
	}
	return at
}

func (m *flatbuffer) scalarField(table, i, width int) uint64 {
	if at := m.fieldOffset(table, i); at != 0 {
		return m.readNumber(at, width)
	}
	return 0
}

func (m *flatbuffer) checkString(at int) {
	at = m.followOffset(at)
	if n := int(m.readNumber(at, 4)); m.checkRange(at+4, n+1, 4) && m.b[at+4+n] != 0 {
		m.bad = true
	}
}

// forEachTable calls visit for each table of a vector.
func (m *flatbuffer) forEachTable(at int, visit func(table int)) {
	at = m.followOffset(at)
	n := int(m.readNumber(at, 4))
	for i := 0; m.checkRange(at+4, 4*n, 4) && i < n; i++ {
		visit(m.checkTable(m.followOffset(at + 4 + 4*i)))
	}
}

func (m *flatbuffer) checkKeyValues(table, i int) {
	if at := m.fieldOffset(table, i); at != 0 {
		m.forEachTable(at, func(pair int) {
			m.checkString(m.requiredField(pair, 0))
			m.checkString(m.requiredField(pair, 1))
		})
	}
}

const maxArrowType = 26 // LargeListView, the last type of the format

func (m *flatbuffer) checkArrowField(at, depth int) {
	if depth > 64 {
		m.bad = true
	}
	if m.bad {
		return
	}
	if name := m.fieldOffset(at, 0); name != 0 {
		m.checkString(name)
	}
	m.scalarField(at, 1, 1)
	kind := m.scalarField(at, 2, 1)
	typ := m.checkTable(m.followOffset(m.requiredField(at, 3)))
	switch {
	case kind == 0 || kind > maxArrowType:
		m.bad = true
	case kind == 2: // Int
		if bits := m.scalarField(typ, 0, 4); bits != 8 && bits != 16 && bits != 32 && bits != 64 {
			m.bad = true
		}
	case kind == 3: // FloatingPoint
		if m.scalarField(typ, 0, 2) > 2 {
			m.bad = true
		}
	}
	if dict := m.fieldOffset(at, 4); dict != 0 {
		m.checkTable(m.followOffset(dict))
	}
	if children := m.fieldOffset(at, 5); children != 0 {
		m.forEachTable(children, func(child int) { m.checkArrowField(child, depth+1) })
	}
	m.checkKeyValues(at, 6)
}
