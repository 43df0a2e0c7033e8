// Package columns reads one column of numbers or texts from a file of its own: a .npy array, or a Parquet table.
//
// # Contract
//
//	L1  A column keeps its type: float64 stays float64. Lists and arrays of one shape are rows of that shape; others are ErrMalformed.
//	L2  A table's rows are joined by its columns index, or episode_index and frame_index, which come beside the values; an array's by their order.
package columns

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Table is a column and what its rows are joined by.
type Table struct {
	Rows  int
	DType robocache.DType
	Shape []int    // of a row; [1] is a number
	Data  []byte   // little-endian, C order
	Text  []string // in place of Data
	// Which row each is of; nil where the file does not say.
	Index, Episode, Frame []int64
}

const op = "columns"

func bad(msg, want, got string) {
	guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: op, Msg: msg, Want: want, Got: got})
}

// Parse reads the bytes of a file, by its name's ending. key names the column of a table that has several.
func Parse(_ context.Context, name string, b []byte, key string) (_ *Table, err error) {
	defer guard.Malformed(op, &err)
	defer guard.In("file", name)
	if strings.EqualFold(filepath.Ext(name), ".npy") {
		return array(b), nil
	}
	return table(b, key), nil
}

func array(b []byte) *Table {
	a := guard.Must(npy.Decode(b))
	if len(a.Shape) == 0 {
		bad("a single value", "an array with a row for each row of the dataset", "")
	}
	t := &Table{Rows: a.Shape[0], DType: a.Type.DType(), Shape: slices.Clone(a.Shape[1:]), Data: a.Data}
	if len(t.Shape) == 0 {
		t.Shape = []int{1}
	}
	if text, ok := a.Strings(); ok {
		t.Text, t.Data = text, nil
	} else if t.DType == robocache.InvalidDType {
		bad("the array's type", "numbers or texts", a.Type.String())
	}
	return t
}

// leafTypes are what a Parquet column of a kind holds.
func leafType(n parquet.Node) robocache.DType {
	l := n.Type().LogicalType()
	switch kind := n.Type().Kind(); kind {
	case parquet.Boolean:
		return robocache.Bool
	case parquet.Int32, parquet.Int64:
		bits, signed := 8*map[parquet.Kind]int{parquet.Int32: 4, parquet.Int64: 8}[kind], true
		if l != nil && l.Value != nil {
			i, ok := l.Value.(*format.IntType)
			if !ok {
				return robocache.InvalidDType // a date, a time, a decimal
			}
			bits, signed = int(i.BitWidth), i.IsSigned
		}
		types := map[int][2]robocache.DType{8: {robocache.Uint8, robocache.Int8}, 16: {robocache.Uint16, robocache.Int16}, 32: {robocache.Uint32, robocache.Int32}, 64: {robocache.Uint64, robocache.Int64}}
		if signed {
			return types[bits][1]
		}
		return types[bits][0]
	case parquet.Float:
		return robocache.Float32
	case parquet.Double:
		return robocache.Float64
	case parquet.ByteArray:
		return robocache.String
	}
	return robocache.InvalidDType
}

func table(b []byte, key string) *Table {
	f := guard.Must(parquet.OpenFile(bytes.NewReader(b), int64(len(b))))
	joins := []string{"index", "episode_index", "frame_index"}
	var names []string
	for _, c := range f.Root().Columns() {
		if !slices.Contains(joins, c.Name()) && !strings.HasPrefix(c.Name(), "__index") {
			names = append(names, c.Name())
		}
	}
	if !slices.Contains(names, key) {
		if len(names) != 1 {
			bad("the table's columns", key+", or one column beside index", strings.Join(names, ", "))
		}
		key = names[0]
	}
	t := &Table{Rows: int(f.NumRows())}
	width := -1
	values := readColumn(f, key, func(n parquet.Node) { t.DType = leafType(n) }, func(n int) {
		if width >= 0 && n != width {
			bad("rows of several lengths", strconv.Itoa(width), strconv.Itoa(n))
		}
		width = n
	})
	switch {
	case t.DType == robocache.InvalidDType:
		bad("the column "+key, "numbers or texts", "another type")
	case t.DType == robocache.String:
		for _, v := range values {
			t.Text = append(t.Text, v.String())
		}
		if width > 1 {
			bad("the column "+key, "a text a row", "lists")
		}
	default:
		for _, v := range values {
			t.Data = appendValue(t.Data, t.DType, v)
		}
	}
	t.Shape = []int{max(1, width)}
	whole := func(name string) (out []int64) {
		if f.Root().Column(name) == nil {
			return nil
		}
		for _, v := range readColumn(f, name, func(n parquet.Node) {
			if d := leafType(n); d.Float() || d == robocache.String || d == robocache.InvalidDType {
				bad("the column "+name, "whole numbers", d.String())
			}
		}, func(n int) {
			if n != 1 {
				bad("the column "+name, "a number a row", "lists")
			}
		}) {
			if v.Kind() == parquet.Int32 {
				out = append(out, int64(v.Int32()))
			} else {
				out = append(out, v.Int64())
			}
		}
		return out
	}
	if t.Index = whole("index"); t.Index == nil {
		if t.Episode, t.Frame = whole("episode_index"), whole("frame_index"); t.Episode == nil || t.Frame == nil {
			t.Episode, t.Frame = nil, nil
		}
	}
	return t
}

// readColumn gives the values of a column; row is told how many each row has.
func readColumn(f *parquet.File, name string, leaf func(parquet.Node), row func(n int)) (out []parquet.Value) {
	c := f.Root().Column(name)
	for !c.Leaf() {
		next := c.Columns()
		if len(next) != 1 {
			bad("the column "+name, "numbers, texts or lists of them", "a structure")
		}
		c = next[0]
	}
	leaf(c)
	pages := c.Pages()
	defer pages.Close()
	n := -1
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		guard.Check(err)
		values := make([]parquet.Value, page.NumValues())
		got, err := page.Values().ReadValues(values)
		if err != nil && !errors.Is(err, io.EOF) {
			guard.Fail(err)
		}
		for _, v := range values[:got] {
			if v.RepetitionLevel() == 0 {
				if n >= 0 {
					row(n)
				}
				n = 0
			}
			if v.IsNull() {
				bad("the column "+name, "a value in every row", "none")
			}
			n++
			out = append(out, v.Clone())
		}
		parquet.Release(page)
	}
	if n >= 0 {
		row(n)
	}
	return out
}

func appendValue(b []byte, d robocache.DType, v parquet.Value) []byte {
	switch d {
	case robocache.Bool:
		if v.Boolean() {
			return append(b, 1)
		}
		return append(b, 0)
	case robocache.Float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(v.Float()))
	case robocache.Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Double()))
	}
	n := uint64(v.Int64())
	if v.Kind() == parquet.Int32 {
		n = uint64(uint32(v.Int32()))
	}
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], n)
	return append(b, w[:d.Size()]...)
}
