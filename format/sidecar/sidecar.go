// Package sidecar writes and reads small Parquet tables that belong to a dataset, such as the
// metrics of its episodes.
//
// # Contract
//
//	sidecar.S1  The same columns give the same bytes.
//	sidecar.S2  A number that is NaN is written as null, and a null number is read as NaN.
//	sidecar.S3  Read checks a file of unknown origin: a damaged file is Malformed, and a column
//	            that exceeds the limit is ErrResourceLimit.
package sidecar

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
)

// groupRows is the number of rows of a row group.
const groupRows = 1 << 16

// Column is one column of a table. Exactly one of its lists is set.
type Column struct {
	Name     string
	Numbers  []float64 // NaN is null
	Integers []int64
	Texts    []string
	Vectors  []float32 // Width values in each row
	Words    []int64   // Width values in each row
	Width    int       // of Vectors or Words
}

// Rows returns the number of rows of the column.
func (c *Column) Rows() int {
	switch {
	case c.Vectors != nil:
		return len(c.Vectors) / max(1, c.Width)
	case c.Words != nil:
		return len(c.Words) / max(1, c.Width)
	}
	return len(c.Numbers) + len(c.Integers) + len(c.Texts)
}

// node returns the Parquet type of the column.
func (c *Column) node() parquet.Node {
	switch {
	case c.Vectors != nil:
		return parquet.Optional(
			parquet.List(parquet.Optional(parquet.Leaf(parquet.FloatType))))
	case c.Words != nil:
		return parquet.Optional(
			parquet.List(parquet.Optional(parquet.Leaf(parquet.Int64Type))))
	case c.Integers != nil:
		return parquet.Optional(parquet.Leaf(parquet.Int64Type))
	case c.Texts != nil:
		return parquet.Optional(parquet.Encoded(parquet.String(), &parquet.RLEDictionary))
	}
	return parquet.Optional(parquet.Leaf(parquet.DoubleType))
}

// encodeRows encodes rows [from, to) of the column.
func (c *Column) encodeRows(leaf *pqw.Leaf, from, to int) (*pqw.Chunk, error) {
	var plain []byte
	pattern := pqw.Pattern()
	switch {
	case c.Vectors != nil:
		for _, v := range c.Vectors[from*c.Width : to*c.Width] {
			plain = binary.LittleEndian.AppendUint32(plain, math.Float32bits(v))
		}
		pattern = pqw.Pattern(c.Width)
	case c.Words != nil:
		for _, v := range c.Words[from*c.Width : to*c.Width] {
			plain = binary.LittleEndian.AppendUint64(plain, uint64(v))
		}
		pattern = pqw.Pattern(c.Width)
	case c.Integers != nil:
		for _, v := range c.Integers[from:to] {
			plain = binary.LittleEndian.AppendUint64(plain, uint64(v))
		}
	case c.Texts != nil:
		values := leaf.NewValues()
		for _, v := range c.Texts[from:to] {
			values.Text(v, 0, 1)
		}
		return values.Encode()
	default:
		values := leaf.NewValues()
		for _, v := range c.Numbers[from:to] {
			if v != v {
				values.Null(0, 0)
			} else {
				values.Float64(v, 0, 1)
			}
		}
		return values.Encode()
	}
	return leaf.Rows(plain, pattern)
}

// Write writes a table as Parquet. All columns must have the same number of rows. meta is its
// key-value metadata.
func Write(w io.Writer, columns []Column, meta map[string]string) error {
	names, nodes := make([]string, len(columns)), make([]parquet.Node, len(columns))
	rows := 0
	for i := range columns {
		names[i], nodes[i] = columns[i].Name, columns[i].node()
		if n := columns[i].Rows(); i == 0 {
			rows = n
		} else if n != rows {
			return robocache.Misuse("write parquet", robocache.Where{"column": names[i]}, "").
				Expected(fmt.Sprintf("%d rows", rows), fmt.Sprint(n))
		}
	}
	schema := parquet.NewSchema("table", pqw.Group(names, nodes))
	leaves, err := pqw.Leaves(schema)
	if err != nil {
		return err
	}
	f, err := pqw.NewFile(w, schema, meta, "robocache")
	if err != nil {
		return err
	}
	for from := 0; from < rows; from += groupRows {
		to := min(rows, from+groupRows)
		chunks := make([]*pqw.Chunk, len(columns))
		for i := range columns {
			if chunks[i], err = columns[i].encodeRows(leaves[i], from, to); err != nil {
				return err
			}
		}
		if err := f.Append(int64(to-from), chunks); err != nil {
			return err
		}
	}
	return f.Close()
}

// Read reads all columns of a table that Write wrote, and its metadata. limit bounds the memory of
// the result in bytes. Columns of other types are left out.
func Read(
	ctx context.Context, r robocache.Ranged, limit int64,
) (columns []Column, meta map[string]string, err error) {
	f, err := pq.Open(ctx, r, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, top := range f.Root.Children {
		c := Column{Name: top.Name}
		leaf := top.OnlyLeaf()
		if leaf == nil || leaf.MaxRep > 1 {
			continue
		}
		for g := range f.Groups {
			n, err := c.readGroup(ctx, r, f, g, leaf, limit)
			if err != nil {
				return nil, nil, err
			}
			if limit -= n; limit < 0 {
				return nil, nil, robocache.ResourceLimit("parquet",
					robocache.Where{"column": top.Name}, "the table is too large")
			}
		}
		if int64(c.Rows()) == f.Rows {
			columns = append(columns, c)
		}
	}
	return columns, f.Meta, nil
}

// readGroup appends the rows of a row group to the column. It returns their bytes.
func (c *Column) readGroup(
	ctx context.Context, r robocache.Ranged, f *pq.File, group int, leaf *pq.Node, limit int64,
) (int64, error) {
	col, err := pq.ReadColumn(ctx, r, f, group, leaf, nil, pq.Limits{Bytes: limit})
	if err != nil {
		return 0, err
	}
	bytes := col.MemoryBytes()
	rows := int(f.Groups[group].Rows)
	malformed := func(why string) error {
		return robocache.Malformed("parquet", robocache.Where{"column": c.Name}, "%s", why)
	}
	if leaf.MaxRep == 1 {
		if rows == 0 || col.Len()%rows != 0 || col.Entries != col.Len() {
			return 0, malformed("the rows are not lists of one length")
		}
		width := col.Len() / rows
		if c.Width != 0 && c.Width != width {
			return 0, malformed("the row groups have lists of different lengths")
		}
		c.Width = width
		return bytes, c.appendList(col)
	}
	switch pq.DType(leaf) {
	case robocache.String:
		for i, k := 0, 0; i < rows; i++ {
			text := ""
			if isPresent(col, i, leaf) {
				text = string(col.Item(k))
				k++
			}
			c.Texts = append(c.Texts, text)
			bytes += int64(len(text)) + 16
		}
	case robocache.Int64:
		if col.Len() != rows {
			return 0, malformed("an integer is null")
		}
		values, err := pq.Int64s(col)
		if err != nil {
			return 0, err
		}
		c.Integers = append(c.Integers, values...)
	case robocache.Float64:
		values, err := pq.Float64s(col)
		if err != nil {
			return 0, err
		}
		for i, k := 0, 0; i < rows; i++ {
			v := math.NaN()
			if isPresent(col, i, leaf) {
				v = values[k]
				k++
			}
			c.Numbers = append(c.Numbers, v)
		}
	}
	return bytes, nil
}

// isPresent reports whether row i holds a value.
func isPresent(col *pq.Column, i int, leaf *pq.Node) bool {
	return col.Def == nil || int(col.Def[i]) == leaf.MaxDef
}

// appendList appends the values of lists.
func (c *Column) appendList(col *pq.Column) error {
	switch pq.DType(col.Leaf) {
	case robocache.Float32:
		data := bytes.NewReader(col.Data())
		part := make([]float32, col.Len())
		if err := binary.Read(data, binary.LittleEndian, part); err != nil {
			return err
		}
		c.Vectors = append(c.Vectors, part...)
	case robocache.Int64:
		values, err := pq.Int64s(col)
		if err != nil {
			return err
		}
		c.Words = append(c.Words, values...)
	}
	return nil
}
