package write

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
)

// outColumn describes one column of a written file for Parquet, Arrow and the Hugging Face
// metadata.
type outColumn struct {
	name  string
	node  parquet.Node // optional, a field of the root
	field pqw.Arrow
	hf    json.RawMessage // nil if the file has no such metadata
}

// float16Type is FIXED_LEN_BYTE_ARRAY(2) with the Float16 annotation.
type float16Type struct{ parquet.Type }

// float16Logical is the Float16 annotation.
var float16Logical = format.LogicalType{Value: &format.Float16Type{}}

// LogicalType returns the Float16 annotation.
func (float16Type) LogicalType() *format.LogicalType { return &float16Logical }

// plainEncoded selects the plain encoding. The library's default for texts is a delta encoding that
// not every reader supports.
func plainEncoded(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.Plain) }

// uncompressed disables the compression of frames, which are compressed already. Compressing them
// again would take half of the writing time.
func uncompressed(
	n parquet.Node,
) parquet.Node {
	return parquet.Compressed(n, &parquet.Uncompressed)
}

// leafOf returns the Parquet and Arrow types of d. The node is nil if there is none.
func leafOf(d robocache.DType) (parquet.Node, pqw.ArrowType) {
	t := map[robocache.DType]struct {
		node  parquet.Node
		arrow pqw.ArrowType
	}{
		robocache.Bool:   {parquet.Leaf(parquet.BooleanType), pqw.ArrowBool},
		robocache.Int8:   {parquet.Int(8), pqw.ArrowInt8},
		robocache.Int16:  {parquet.Int(16), pqw.ArrowInt16},
		robocache.Int32:  {parquet.Leaf(parquet.Int32Type), pqw.ArrowInt32},
		robocache.Int64:  {parquet.Leaf(parquet.Int64Type), pqw.ArrowInt64},
		robocache.Uint8:  {parquet.Uint(8), pqw.ArrowUint8},
		robocache.Uint16: {parquet.Uint(16), pqw.ArrowUint16},
		robocache.Uint32: {parquet.Uint(32), pqw.ArrowUint32},
		robocache.Uint64: {parquet.Uint(64), pqw.ArrowUint64},
		robocache.Float16: {
			parquet.Leaf(float16Type{parquet.FixedLenByteArrayType(2)}),
			pqw.ArrowFloat16,
		},
		robocache.Float32: {parquet.Leaf(parquet.FloatType), pqw.ArrowFloat32},
		robocache.Float64: {parquet.Leaf(parquet.DoubleType), pqw.ArrowFloat64},
		robocache.String:  {plainEncoded(parquet.String()), pqw.ArrowText},
	}[d]
	return t.node, t.arrow
}

// scalarColumn returns a column with one value per row.
func scalarColumn(name string, d robocache.DType, dictionary bool) outColumn {
	leaf, arrowType := leafOf(d)
	if dictionary {
		leaf = parquet.Encoded(leaf, &parquet.RLEDictionary)
	}
	return outColumn{
		name: name, node: parquet.Optional(leaf), field: pqw.Arrow{Name: name, Type: arrowType},
		hf: rawJSON(`{"dtype": %q, "_type": "Value"}`, d),
	}
}

// listColumn returns a column with depth nested lists per row. If fixed > 0, Arrow and the Hugging
// Face metadata state it as the innermost length.
func listColumn(name string, d robocache.DType, depth, fixed int) outColumn {
	node, arrowType := leafOf(d)
	field := pqw.Arrow{Type: arrowType}
	for range depth {
		node = parquet.List(parquet.Optional(node))
		field.Name = "element"
		field = pqw.Arrow{Type: pqw.ArrowList, Children: []pqw.Arrow{field}}
	}
	field.Name = name
	if fixed > 0 && depth == 1 {
		field.Type = pqw.ArrowFixedList(fixed)
	}
	c := outColumn{name: name, node: parquet.Optional(node), field: field}
	if fixed > 0 {
		c.hf = rawJSON(
			`{"feature": {"dtype": %q, "_type": "Value"}, "length": %d, "_type": "List"}`,
			d,
			fixed,
		)
	}
	return c
}

// rawJSON formats JSON text.
func rawJSON(format string, a ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, a...))
}

// nodeOf returns the column of a feature, or nil for video, which has no column.
func nodeOf(f *robocache.Feature) (*outColumn, error) {
	var c outColumn
	switch f.Kind {
	case robocache.KindVideo:
		return nil, nil
	case robocache.KindImage:
		c = outColumn{
			name: f.Key,
			node: parquet.Optional(pqw.Group(
				[]string{"bytes", "path"},
				[]parquet.Node{
					parquet.Optional(
						uncompressed(plainEncoded(parquet.Leaf(parquet.ByteArrayType))),
					),
					parquet.Optional(plainEncoded(parquet.String())),
				},
			)),
			field: pqw.Arrow{
				Name: f.Key,
				Type: pqw.ArrowStruct,
				Children: []pqw.Arrow{
					{Name: "bytes", Type: pqw.ArrowBinary},
					{Name: "path", Type: pqw.ArrowText},
				},
			},
			hf: json.RawMessage(`{"_type": "Image"}`),
		}
	case robocache.KindText:
		if !f.Scalar() {
			return nil, unsupported(f.Key, "lerobot has text features of shape [1] only")
		}
		c = scalarColumn(f.Key, robocache.String, true)
	case robocache.KindEvent:
		var err error
		if c, err = languageColumn(f.Key); err != nil {
			return nil, err
		}
	case robocache.KindNumeric, robocache.KindPointCloud:
		var err error
		if c, err = numberColumn(f); err != nil {
			return nil, err
		}
	default:
		return nil, unsupported(f.Key, "lerobot has no streams of kind "+string(f.Kind))
	}
	return &c, nil
}

// numberColumn returns the column of a feature of numbers: a scalar, a list, or an array.
func numberColumn(f *robocache.Feature) (c outColumn, err error) {
	if leaf, _ := leafOf(f.DType); leaf == nil || f.DType == robocache.String {
		return c, unsupported(f.Key, "lerobot has no column of type "+f.DType.String())
	}
	axes := len(f.Shape)
	switch {
	case f.Scalar():
		return scalarColumn(f.Key, f.DType, false), nil
	case axes == 1:
		return listColumn(f.Key, f.DType, 1, f.Shape[0]), nil
	case axes > 5:
		return c, unsupported(f.Key, "lerobot has at most 5 axes")
	}
	c = listColumn(f.Key, f.DType, axes, 0)
	shape := shapeText(f.Shape)
	c.hf = rawJSON(`{"shape": %s, "dtype": %q, "_type": "Array%dD"}`, shape, f.DType, axes)
	c.field.Meta = [][2]string{
		{"ARROW:extension:metadata", fmt.Sprintf(`[%s, "%s"]`, shape, f.DType)},
		{
			"ARROW:extension:name",
			fmt.Sprintf("datasets.features.features.Array%dDExtensionType", axes),
		},
	}
	return c, nil
}

// unsupported returns an error for a stream that LeRobot cannot store.
func unsupported(key, msg string) error {
	return robocache.Unsupported("write lerobot", robocache.Where{"stream": key}, "%s", msg)
}

// shapeText formats a shape as Python's json module does.
func shapeText(shape []int) string { return strings.ReplaceAll(jsonText(shape), ",", ", ") }

// schemaOf returns the Parquet schema and the metadata of a file. extraKey with the value extra is
// one more key ("pandas") for both Parquet and Arrow.
func schemaOf(columns []outColumn, extraKey, extra string) (*parquet.Schema, map[string]string) {
	names := make([]string, len(columns))
	nodes := make([]parquet.Node, len(columns))
	fields := make([]pqw.Arrow, len(columns))
	hf := []byte(`{"info": {"features": {`)
	withHF := true
	for i, c := range columns {
		names[i], nodes[i], fields[i] = c.name, c.node, c.field
		if c.hf == nil {
			withHF = false
			continue
		}
		if i > 0 {
			hf = append(hf, ", "...)
		}
		hf = append(append(append(hf, jsonText(c.name)...), ": "...), c.hf...)
	}
	hf = append(hf, "}}}"...)
	meta := map[string]string{}
	if extraKey != "" {
		meta[extraKey] = extra
	} else if withHF {
		meta["huggingface"] = string(hf)
	}
	var pairs [][2]string
	for k, v := range meta { // at most one entry, so the order is fixed
		pairs = append(pairs, [2]string{k, v})
	}
	meta["ARROW:schema"] = pqw.ArrowSchema(fields, pairs)
	return parquet.NewSchema("schema", pqw.Group(names, nodes)), meta
}
