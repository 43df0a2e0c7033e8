package delta

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
)

// field is a column in the schema of a table.
type field struct {
	Name     string                     `json:"name"`
	Type     json.RawMessage            `json:"type"`
	Nullable bool                       `json:"nullable"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

type arrayType struct {
	Type     string          `json:"type"`
	Element  json.RawMessage `json:"elementType"`
	Contains bool            `json:"containsNull"`
}

type structType struct {
	Type   string  `json:"type"`
	Fields []field `json:"fields"`
}

const maxDepth = 16 // depth of nested lists

// element returns the type of a column's values, and the number of lists around them.
func (f *field) element() (name string, lists int) {
	for t := f.Type; lists < maxDepth; lists++ {
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

// feature returns the feature that our writer stored with the column, or nil.
func (f *field) feature() *robocache.Feature {
	var text string
	out := &robocache.Feature{}
	if json.Unmarshal(f.Metadata["robocache"], &text) != nil ||
		json.Unmarshal([]byte(text), out) != nil {
		return nil
	}
	return out
}

// dtypes maps the types of a table to the types in which they are read. Timestamps are
// microseconds.
var dtypes = map[string]robocache.DType{
	"boolean":       robocache.Bool,
	"byte":          robocache.Int8,
	"short":         robocache.Int16,
	"integer":       robocache.Int32,
	"long":          robocache.Int64,
	"float":         robocache.Float32,
	"double":        robocache.Float64,
	"timestamp":     robocache.Int64,
	"timestamp_ntz": robocache.Int64,
}

// columnTypes maps types to the smallest column type that holds all values. Delta has no unsigned
// types.
var columnTypes = map[robocache.DType]string{
	robocache.Bool:     "boolean",
	robocache.Int8:     "byte",
	robocache.Uint8:    "short",
	robocache.Int16:    "short",
	robocache.Uint16:   "integer",
	robocache.Int32:    "integer",
	robocache.Uint32:   "long",
	robocache.Int64:    "long",
	robocache.Uint64:   "long",
	robocache.Float16:  "float",
	robocache.BFloat16: "float",
	robocache.Float32:  "float",
	robocache.Float64:  "double",
}

// leaves maps column types to the Parquet leaves that are written.
var leaves = map[string]parquet.Node{
	"boolean": parquet.Leaf(
		parquet.BooleanType,
	),
	"byte":    parquet.Int(8),
	"short":   parquet.Int(16),
	"integer": parquet.Leaf(parquet.Int32Type),
	"long":    parquet.Leaf(parquet.Int64Type),
	"float": parquet.Leaf(
		parquet.FloatType,
	),
	"double": parquet.Leaf(parquet.DoubleType),
	"string": parquet.Encoded(parquet.String(), &parquet.RLEDictionary),
	"binary": parquet.Compressed(
		parquet.Encoded(parquet.Leaf(parquet.ByteArrayType), &parquet.Plain),
		&parquet.Uncompressed,
	),
}

// videoFields are the fields of a video column, in which each row refers to a frame (delta.D5).
var videoFields = []field{
	nullableField("path", "string"),
	nullableField("frame", "long"),
	nullableField("offset", "long"),
	nullableField("length", "long"),
	nullableField("checksum", "string"),
}

// nullableField returns a field of a type that may be null.
func nullableField(name string, typ any) field {
	encoded, err := json.Marshal(typ)
	if err != nil {
		panic(err) // types are strings and maps of strings
	}
	return field{Name: name, Type: encoded, Nullable: true, Metadata: map[string]json.RawMessage{}}
}

// column is a column to write.
type column struct {
	field
	feature *robocache.Feature // nil for a bookkeeping column
	elem    string             // type of its values
	dims    []int              // of lists
}

const (
	secondsColumn = "timestamp"
	nanosColumn   = "timestamp_ns"
)

// bookkeeping lists the columns of every table that Write creates.
var bookkeeping = []column{
	bookColumn("episode_index", "long"),
	bookColumn("frame_index", "long"),
	bookColumn(secondsColumn, "double"),
	bookColumn(nanosColumn, "long"),
	bookColumn("source", "string"),
	bookColumn("task", "string"),
}

// sourceColumn names, in the first row of each episode, the recording that the episode was made
// from (robocache.Origin as JSON). The other rows are null. A table has the column if such a
// recording is known.
const sourceColumn = "robocache_source"

func bookColumn(
	name, typ string,
) column {
	return column{field: nullableField(name, typ), elem: typ}
}

// kind returns the kind of the column's stream; for events it is text.
func (c *column) kind() robocache.Kind {
	switch {
	case c.elem == "string":
		return robocache.KindText
	case c.feature == nil:
		return robocache.KindNumeric
	}
	return c.feature.Kind
}

// key returns the key of the stream that the column holds.
func (c *column) key() string {
	if c.feature == nil {
		return c.Name
	}
	return c.feature.Key
}

// columnOf returns the column of a feature. Its elem is "" if a table cannot hold the feature.
func columnOf(f *robocache.Feature) (column, error) {
	// Without column mapping, names must not contain these characters.
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" ,;{}()\n\t=", r) {
			return '_'
		}
		return r
	}, f.Key)
	c := column{feature: f}
	var typ any
	switch {
	case f.Kind == robocache.KindVideo:
		c.elem, typ = "struct", structType{"struct", videoFields}
	case f.Kind == robocache.KindImage:
		c.elem = "binary"
	case f.Kind == robocache.KindText && f.Scalar() || f.Kind == robocache.KindEvent:
		c.elem = "string"
	case f.Kind == robocache.KindNumeric && len(f.Shape) < maxDepth &&
		!slices.ContainsFunc(f.Shape, func(n int) bool { return n < 1 }):
		if c.elem = columnTypes[f.DType]; !f.Scalar() {
			c.dims = f.Shape
		}
	}
	if typ == nil {
		typ = c.elem
	}
	for range c.dims {
		encoded, err := json.Marshal(typ)
		if err != nil {
			return column{}, err
		}
		typ = arrayType{"array", encoded, true}
	}
	own := *f
	own.Default, own.Clock, own.FPS = false, "", robocache.Rate{}
	if own.DType == robocache.BFloat16 {
		own.DType = robocache.Float32
	}
	c.field = nullableField(name, typ)
	encoded, err := json.Marshal(own)
	if err != nil {
		return column{}, err
	}
	if c.Metadata["robocache"], err = json.Marshal(string(encoded)); err != nil {
		return column{}, err
	}
	return c, nil
}

// node returns the Parquet node. All columns and their elements may be null.
func (c *column) node() parquet.Node {
	n := leaves[c.elem]
	if c.elem == "struct" {
		var names []string
		var nodes []parquet.Node
		for _, f := range videoFields {
			t, _ := f.element()
			names, nodes = append(names, f.Name), append(nodes, parquet.Optional(leaves[t]))
		}
		n = pqw.Group(names, nodes)
	}
	for range c.dims {
		n = parquet.List(parquet.Optional(n))
	}
	return parquet.Optional(n)
}

// storedNumbers converts numbers to the stored type of a column, and returns the size of each. A
// value that does not fit is an error.
func storedNumbers(elem string, from robocache.DType, b []byte) (out []byte, size int, err error) {
	to := dtypes[elem]
	if to == from && to.Size() != 2 && to != robocache.Int8 {
		return b, to.Size(), nil
	}
	if to.Float() {
		for _, v := range robocache.Float64s(nil, from, b) {
			out = append(out, make([]byte, to.Size())...)
			pq.PutFloat(out[len(out)-to.Size():], to, v)
		}
		return out, to.Size(), nil
	}
	size = max(4, to.Size()) // Parquet has no integers below 32 bits
	out = make([]byte, 0, len(b)/from.Size()*size)
	for _, v := range robocache.Int64s(nil, from, b) {
		var fits, wide [8]byte
		if !pq.PutInt(fits[:], to, v, from == robocache.Uint64 && v < 0) {
			return out, size, robocache.Unsupported(string(op), nil, "").
				Expected("integers that fit the type "+elem, from.String())
		}
		pq.PutInt(wide[:], robocache.Int64, v, false)
		out = append(out, wide[:size]...)
	}
	return out, size, nil
}
