package lerobot

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
)

// leaf collects the values of one Parquet column, with their levels.
type outLeaf struct {
	index  int // of the column in the file
	values []parquet.Value
}

func (l *outLeaf) put(v parquet.Value, rep, def int) {
	l.values = append(l.values, v.Level(rep, def, l.index))
}

// null is a row without a value.
func (l *outLeaf) null() { l.put(parquet.Value{}, 0, 0) }

// scalar is a row of one value.
func (l *outLeaf) scalar(v parquet.Value) { l.put(v, 0, 1) }

// list is a row of one list of values, as little-endian bytes.
func (l *outLeaf) list(raw []byte, size int, read func([]byte) parquet.Value) {
	l.values = slices.Grow(l.values, len(raw)/size)
	rep := 0
	for p := 0; p < len(raw); p += size {
		l.values = append(l.values, read(raw[p:]).Level(rep, 3, l.index))
		rep = 1
	}
}

// nested is a row of nested lists of fixed lengths, none of them null.
func (l *outLeaf) nested(n int, at func(i int) parquet.Value, dims []int) {
	def := 1 + 2*len(dims)
	if n == 0 {
		l.put(parquet.Value{}, 0, 1)
		return
	}
	for i := range n {
		rep := 0
		if i > 0 {
			// The outermost list that goes on rather than begins.
			rep = len(dims)
			for inner, d := 1, len(dims)-1; d > 0; d-- {
				inner *= dims[d]
				if i%inner != 0 {
					break
				}
				rep--
			}
		}
		l.put(at(i), rep, def)
	}
}

// reader turns little-endian bytes of a type into Parquet values.
func valueReader(d robocache.DType) func(p []byte) parquet.Value {
	le := binary.LittleEndian
	switch d {
	case robocache.Bool:
		return func(p []byte) parquet.Value { return parquet.BooleanValue(p[0] != 0) }
	case robocache.Int8:
		return func(p []byte) parquet.Value { return parquet.Int32Value(int32(int8(p[0]))) }
	case robocache.Uint8:
		return func(p []byte) parquet.Value { return parquet.Int32Value(int32(p[0])) }
	case robocache.Int16:
		return func(p []byte) parquet.Value { return parquet.Int32Value(int32(int16(le.Uint16(p)))) }
	case robocache.Uint16:
		return func(p []byte) parquet.Value { return parquet.Int32Value(int32(le.Uint16(p))) }
	case robocache.Int32, robocache.Uint32:
		return func(p []byte) parquet.Value { return parquet.Int32Value(int32(le.Uint32(p))) }
	case robocache.Int64, robocache.Uint64:
		return func(p []byte) parquet.Value { return parquet.Int64Value(int64(le.Uint64(p))) }
	case robocache.Float16:
		return func(p []byte) parquet.Value { return parquet.FixedLenByteArrayValue(p[:2:2]) }
	case robocache.Float32:
		return func(p []byte) parquet.Value { return parquet.FloatValue(math.Float32frombits(le.Uint32(p))) }
	case robocache.Float64:
		return func(p []byte) parquet.Value { return parquet.DoubleValue(math.Float64frombits(le.Uint64(p))) }
	}
	return nil
}
