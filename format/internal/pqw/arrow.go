package pqw

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
)

// Arrow is a field of an Arrow schema, which may be null.
type Arrow struct {
	Name     string
	Type     ArrowType
	Children []Arrow
	Meta     [][2]string // keys and values
}

// ArrowType is one of the union Type in Arrow's Schema.fbs, and the fields of its table.
type ArrowType struct {
	kind   uint32
	fields []any
}

// The types that our files have.
var (
	ArrowBinary, ArrowText, ArrowBool = ArrowType{
		kind: 4,
	}, ArrowType{
		kind: 5,
	}, ArrowType{
		kind: 6,
	}
	ArrowList, ArrowStruct                   = ArrowType{kind: 12}, ArrowType{kind: 13}
	ArrowFloat16, ArrowFloat32, ArrowFloat64 = arrowFloat(0), arrowFloat(1), arrowFloat(2)
	ArrowInt8, ArrowInt16                    = arrowInt(8, 1), arrowInt(16, 1)
	ArrowInt32, ArrowInt64                   = arrowInt(32, 1), arrowInt(64, 1)
	ArrowUint8, ArrowUint16                  = arrowInt(8, 0), arrowInt(16, 0)
	ArrowUint32, ArrowUint64                 = arrowInt(32, 0), arrowInt(64, 0)
)

func arrowInt(bits, signed uint32) ArrowType { return ArrowType{2, []any{bits, signed}} }
func arrowFloat(precision uint32) ArrowType  { return ArrowType{3, []any{precision}} }

// ArrowFixedList is a list of n elements.
func ArrowFixedList(n int) ArrowType { return ArrowType{16, []any{uint32(n)}} }

// ArrowSchema is a schema as ARROW:schema holds it: one encapsulated message of Arrow's IPC format,
// in base64. It is written here because arrow-go, and what it brings, takes 1.3 MB of the Python
// package, and this is all that it was for.
func ArrowSchema(fields []Arrow, meta [][2]string) string {
	f := &flatWriter{b: make([]byte, 4)}
	schema := func() int {
		return f.table(
			nil,
			func() int { return f.fields(fields) },
			func() int { return f.pairs(meta) },
		)
	}
	// version 5, a schema
	binary.LittleEndian.PutUint32(f.b, uint32(f.table(uint32(4), uint32(1), schema)))
	f.b = append(f.b, make([]byte, -len(f.b)&7)...)
	head := binary.LittleEndian.AppendUint32([]byte{255, 255, 255, 255}, uint32(len(f.b)))
	return base64.StdEncoding.EncodeToString(append(head, f.b...))
}

// flatWriter writes a flatbuffer from its root on: what a table refers to stands behind it. Every
// field that is set takes four bytes, little-endian, so that narrower ones lie where a reader
// looks.
type flatWriter struct{ b []byte }

// table writes a table, and gives its place. A field is nil, a uint32, or a func() int, which
// writes what the field refers to and gives its place.
func (f *flatWriter) table(fields ...any) int {
	f.b = append(f.b, make([]byte, (-len(f.b)-4-2*len(fields))&3)...)
	layout, size := len(f.b), 4
	f.b = append(f.b, make([]byte, 4+2*len(fields))...)
	for i, v := range fields {
		if v != nil {
			binary.LittleEndian.PutUint16(f.b[layout+4+2*i:], uint16(size))
			size += 4
		}
	}
	binary.LittleEndian.PutUint16(f.b[layout:], uint16(4+2*len(fields)))
	binary.LittleEndian.PutUint16(f.b[layout+2:], uint16(size))
	at := len(f.b)
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(at-layout))
	f.slots(slices.DeleteFunc(slices.Clone(fields), func(v any) bool { return v == nil }))
	return at
}

// slots writes four bytes a value, and behind them what they refer to.
func (f *flatWriter) slots(values []any) {
	at := len(f.b)
	f.b = append(f.b, make([]byte, 4*len(values))...)
	for i, v := range values {
		n, ok := v.(uint32)
		if !ok {
			n = uint32(v.(func() int)() - at - 4*i)
		}
		binary.LittleEndian.PutUint32(f.b[at+4*i:], n)
	}
}

// vector writes references.
func (f *flatWriter) vector(values []any) int {
	f.b = append(f.b, make([]byte, -len(f.b)&3)...)
	at := len(f.b)
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(len(values)))
	f.slots(values)
	return at
}

func (f *flatWriter) text(s string) func() int {
	return func() int {
		f.b = append(f.b, make([]byte, -len(f.b)&3)...)
		at := len(f.b)
		f.b = append(append(binary.LittleEndian.AppendUint32(f.b, uint32(len(s))), s...), 0)
		return at
	}
}

func (f *flatWriter) fields(fields []Arrow) int {
	values := make([]any, len(fields))
	for i, a := range fields {
		kind := func() int { return f.table(a.Type.fields...) }
		// an empty vector, too: readers ask for it
		children := func() int { return f.fields(a.Children) }
		meta := func() int { return f.pairs(a.Meta) }
		values[i] = func() int { return f.table(f.text(a.Name), uint32(1), a.Type.kind, kind, nil, children, meta) }
	}
	return f.vector(values)
}

func (f *flatWriter) pairs(meta [][2]string) int {
	values := make([]any, len(meta))
	for i, m := range meta {
		values[i] = func() int { return f.table(f.text(m[0]), f.text(m[1])) }
	}
	return f.vector(values)
}
