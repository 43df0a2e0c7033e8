package delta

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// field is a column in the schema of a table.
type field struct {
	Name     string                     `json:"name"`
	Type     json.RawMessage            `json:"type"`
	Nullable bool                       `json:"nullable"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

// arrayType is a type that is not named by a text alone.
type arrayType struct {
	Type     string          `json:"type"`
	Element  json.RawMessage `json:"elementType,omitempty"`
	Contains bool            `json:"containsNull"`
}

type structType struct {
	Type   string  `json:"type"`
	Fields []field `json:"fields"`
}

const maxDepth = 16 // of lists

func parseSchema(text string) []field {
	var s structType
	if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Fields) == 0 {
		malformed("schemaString is no schema", err)
	}
	return s.Fields
}

// element is the type of the values of a column, and how many lists they are nested in.
func (f *field) element() (name string, lists int) {
	t := f.Type
	for ; lists < maxDepth; lists++ {
		var a arrayType
		if json.Unmarshal(t, &name) == nil {
			return name, lists
		}
		if json.Unmarshal(t, &a) != nil || a.Type != "array" {
			return a.Type, lists
		}
		t = a.Element
	}
	return "", lists
}

// feature is what a table that was written here says of a column; nil of others.
func (f *field) feature() *robocache.Feature {
	var text string
	out := &robocache.Feature{}
	if json.Unmarshal(f.Metadata["robocache"], &text) != nil || json.Unmarshal([]byte(text), out) != nil {
		return nil
	}
	return out
}

var dtypes = map[string]robocache.DType{"boolean": robocache.Bool, "byte": robocache.Int8, "short": robocache.Int16, "integer": robocache.Int32, "long": robocache.Int64,
	"float": robocache.Float32, "double": robocache.Float64, "timestamp": robocache.Int64, "timestamp_ntz": robocache.Int64}

// typeFor is Delta's type for numbers: the smallest that holds them all. It has none without a sign.
func typeFor(d robocache.DType) string {
	return map[robocache.DType]string{robocache.Bool: "boolean", robocache.Int8: "byte", robocache.Uint8: "short", robocache.Int16: "short", robocache.Uint16: "integer", robocache.Int32: "integer",
		robocache.Uint32: "long", robocache.Int64: "long", robocache.Uint64: "long", robocache.Float16: "float", robocache.BFloat16: "float", robocache.Float32: "float", robocache.Float64: "double"}[d]
}

// leafFor is the Parquet column of a type; nil for one that is not written.
func leafFor(name string) parquet.Node {
	dictionary := func(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.RLEDictionary) }
	switch name {
	case "boolean":
		return parquet.Leaf(parquet.BooleanType)
	case "byte":
		return parquet.Int(8)
	case "short":
		return parquet.Int(16)
	case "integer":
		return parquet.Leaf(parquet.Int32Type)
	case "long":
		return parquet.Leaf(parquet.Int64Type)
	case "float":
		return parquet.Leaf(parquet.FloatType)
	case "double":
		return parquet.Leaf(parquet.DoubleType)
	case "string":
		return dictionary(parquet.String())
	case "binary":
		return parquet.Compressed(parquet.Encoded(parquet.Leaf(parquet.ByteArrayType), &parquet.Plain), &parquet.Uncompressed)
	}
	return nil
}

// videoFields are those of a column of video, in which a row is a reference to a frame (D5).
var videoFields = []field{plain("path", "string"), plain("frame", "long"), plain("offset", "long"), plain("length", "long"), plain("checksum", "string")}

func plain(name, typ string) field {
	return field{Name: name, Type: guard.Must(json.Marshal(typ)), Nullable: true, Metadata: map[string]json.RawMessage{}}
}

// column is one that is written.
type column struct {
	field
	f    *robocache.Feature // nil: a bookkeeping column
	elem string             // type of its values
	dims []int              // of lists
}

// bookkeeping are the columns that every table has that is written here.
var bookkeeping = []column{book("episode_index", "long"), book("frame_index", "long"), book(secondsColumn, "double"), book(nanosColumn, "long"), book("source", "string"), book("task", "string")}

const (
	secondsColumn = "timestamp"
	nanosColumn   = "timestamp_ns"
)

func book(name, typ string) column { return column{field: plain(name, typ), elem: typ} }

// columnOf is the column of a feature; ok is false where a table has none for it.
func columnOf(f *robocache.Feature) (c column, ok bool) {
	// Without a mapping of columns, names have none of these.
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" ,;{}()\n\t=", r) {
			return '_'
		}
		return r
	}, f.Key)
	c = column{field: plain(name, ""), f: f}
	var typ any
	switch {
	case f.Ragged() || slices.Contains(f.Shape, 0) && f.Kind == robocache.KindNumeric:
		return c, false
	case f.Kind == robocache.KindVideo:
		c.elem, typ = "struct", structType{"struct", videoFields}
	case f.Kind == robocache.KindImage:
		c.elem, typ = "binary", "binary"
	case f.Kind == robocache.KindText && f.Scalar() || f.Kind == robocache.KindEvent:
		c.elem, typ = "string", "string"
	case f.Kind == robocache.KindNumeric && len(f.Shape) < maxDepth:
		if c.elem = typeFor(f.DType); c.elem == "" {
			return c, false
		}
		typ = c.elem
		if !f.Scalar() {
			c.dims = f.Shape
		}
		for range c.dims {
			typ = arrayType{"array", guard.Must(json.Marshal(typ)), true}
		}
	default:
		return c, false
	}
	c.Type = guard.Must(json.Marshal(typ))
	own := *f
	own.Default, own.Clock, own.FPS = false, "", robocache.Rate{}
	if own.DType == robocache.BFloat16 {
		own.DType = robocache.Float32
	}
	c.Metadata["robocache"] = guard.Must(json.Marshal(string(guard.Must(json.Marshal(own)))))
	return c, true
}

// node is the Parquet column; every one may be null, and so may its elements.
func (c *column) node() parquet.Node {
	if c.elem == "struct" {
		var names []string
		var nodes []parquet.Node
		for i := range videoFields {
			t, _ := videoFields[i].element()
			names, nodes = append(names, videoFields[i].Name), append(nodes, parquet.Optional(leafFor(t)))
		}
		return parquet.Optional(pqw.Group(names, nodes))
	}
	n := leafFor(c.elem)
	for range c.dims {
		n = parquet.List(parquet.Optional(n))
	}
	return parquet.Optional(n)
}

// stored gives numbers of one type as the bytes of a column of another, and the type of these; a value that does not fit fails.
func stored(elem string, from robocache.DType, b []byte) ([]byte, robocache.DType) {
	to := dtypes[elem]
	if to == from && to.Size() != 2 && to != robocache.Int8 {
		return b, to
	}
	if to.Float() {
		out := make([]byte, len(b)/from.Size()*to.Size())
		for i, v := range robocache.Float64s(nil, from, b) {
			pq.PutFloat(out[i*to.Size():], to, v)
		}
		return out, to
	}
	as := to // Parquet has no integers below 32 bits
	if to.Size() < 4 && to != robocache.Bool {
		as = robocache.Int32
	}
	out := make([]byte, len(b)/from.Size()*as.Size())
	var fits [8]byte
	for i, v := range robocache.Int64s(nil, from, b) {
		if !pq.PutInt(fits[:], to, v, from == robocache.Uint64 && v < 0) {
			guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "write delta", Want: "integers that fit the type " + elem, Got: from.String()})
		}
		pq.PutInt(out[i*as.Size():], as, v, false)
	}
	return out, as
}
