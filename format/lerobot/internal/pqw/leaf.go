package pqw

import (
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/goatnote-inc/robocache"
)

// Leaf is a column of a schema.
type Leaf struct {
	path       []string
	kind       parquet.Kind
	size       int // bytes of a value; 0 = a byte array
	rep, def   uint8
	dictionary bool
	codec      format.CompressionCodec
	unsigned   bool
	bounded    bool
	limit      int // bytes of a page, with its header: Parquet counts them in 31 bits
}

// Leaves lists the columns of a schema, in file order.
func Leaves(s *parquet.Schema) ([]*Leaf, error) {
	var out []*Leaf
	for _, path := range s.Columns() {
		c, ok := s.Lookup(path...)
		if !ok {
			return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "write parquet", Where: robocache.Where{"column": path}, Msg: "no such column"}
		}
		t := c.Node.Type()
		l := &Leaf{path: path, kind: t.Kind(), rep: uint8(c.MaxRepetitionLevel), def: uint8(c.MaxDefinitionLevel), codec: format.Snappy, limit: math.MaxInt32}
		switch l.kind {
		case parquet.Boolean:
			l.size = 1
		case parquet.Int32, parquet.Float:
			l.size = 4
		case parquet.Int64, parquet.Double:
			l.size = 8
		case parquet.FixedLenByteArray:
			l.size = t.Length()
		case parquet.ByteArray:
		default:
			return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "write parquet", Where: robocache.Where{"column": path}, Msg: "a column of type " + t.String()}
		}
		l.bounded = l.kind != parquet.FixedLenByteArray
		if lt := t.LogicalType(); lt != nil {
			if it, ok := lt.Value.(*format.IntType); ok {
				l.unsigned = !it.IsSigned
			}
		}
		if e := c.Node.Encoding(); e != nil {
			l.dictionary = e.Encoding() == format.RLEDictionary
		}
		if z := c.Node.Compression(); z != nil {
			l.codec = z.CompressionCodec()
		}
		out = append(out, l)
	}
	return out, nil
}
