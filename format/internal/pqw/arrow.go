package pqw

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
)

// Arrow is a nullable field of an Arrow schema.
type Arrow struct {
	Name     string
	Type     ArrowType
	Children []Arrow
	Meta     [][2]string // keys and values
}

// ArrowType is a member of the union Type in Arrow's Schema.fbs, with the fields of its table.
type ArrowType struct {
	kind   uint32
	fields []any
}

// The types that our files use.
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

// ArrowFixedList returns the type of a list of n elements.
func ArrowFixedList(n int) ArrowType { return ArrowType{16, []any{uint32(n)}} }

// ArrowSchema returns a schema in the form of the metadata entry ARROW:schema: one encapsulated
// message of Arrow's IPC format, in base64. It does not use arrow-go, because arrow-go and its
// dependencies would add 1.3 MB to the Python package for this function alone.
func ArrowSchema(fields []Arrow, meta [][2]string) string {
	f := &flatbufferWriter{b: make([]byte, 4)}
	schema := func() int {
		return f.writeTable(
			nil,
			func() int { return f.writeFields(fields) },
			func() int { return f.writeKeyValues(meta) },
		)
	}
	// version 5, message type schema
	binary.LittleEndian.PutUint32(f.b, uint32(f.writeTable(uint32(4), uint32(1), schema)))
	f.b = append(f.b, make([]byte, -len(f.b)&7)...)
	head := binary.LittleEndian.AppendUint32([]byte{255, 255, 255, 255}, uint32(len(f.b)))
	return base64.StdEncoding.EncodeToString(append(head, f.b...))
}

// flatbufferWriter writes a flatbuffer starting at its root. The objects that a table refers to
// follow the table. Every field that is set takes four bytes in little-endian order, so a reader of
// a narrower field finds its value at the same position.
type flatbufferWriter struct{ b []byte }

// writeTable writes a table and returns its position. A field is nil, a uint32, or a func() int.
// The func writes the object that the field refers to and returns its position.
func (f *flatbufferWriter) writeTable(fields ...any) int {
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
	f.writeSlots(slices.DeleteFunc(slices.Clone(fields), func(v any) bool { return v == nil }))
	return at
}

// writeSlots writes four bytes per value, followed by the objects that the values refer to.
func (f *flatbufferWriter) writeSlots(values []any) {
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

// writeVector writes a vector of references.
func (f *flatbufferWriter) writeVector(values []any) int {
	f.b = append(f.b, make([]byte, -len(f.b)&3)...)
	at := len(f.b)
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(len(values)))
	f.writeSlots(values)
	return at
}

func (f *flatbufferWriter) textWriter(s string) func() int {
	return func() int {
		f.b = append(f.b, make([]byte, -len(f.b)&3)...)
		at := len(f.b)
		f.b = append(append(binary.LittleEndian.AppendUint32(f.b, uint32(len(s))), s...), 0)
		return at
	}
}

func (f *flatbufferWriter) writeFields(fields []Arrow) int {
	values := make([]any, len(fields))
	for i, a := range fields {
		kind := func() int { return f.writeTable(a.Type.fields...) }
		// also written if empty, because readers require the vector
		children := func() int { return f.writeFields(a.Children) }
		meta := func() int { return f.writeKeyValues(a.Meta) }
		values[i] = func() int {
			return f.writeTable(
				f.textWriter(a.Name),
				uint32(1),
				a.Type.kind,
				kind,
				nil,
				children,
				meta,
			)
		}
	}
	return f.writeVector(values)
}

func (f *flatbufferWriter) writeKeyValues(meta [][2]string) int {
	values := make([]any, len(meta))
	for i, m := range meta {
		values[i] = func() int { return f.writeTable(f.textWriter(m[0]), f.textWriter(m[1])) }
	}
	return f.writeVector(values)
}
