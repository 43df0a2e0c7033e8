package lerobot

import (
	"encoding/binary"
	"math"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
)

// outLeaf collects the values of one Parquet column, with their levels: of what has no fixed rows.
type outLeaf struct {
	*pqw.Values
	number [8]byte
}

func (l *outLeaf) int64(v int64, rep, def int) {
	binary.LittleEndian.PutUint64(l.number[:], uint64(v))
	l.Add(l.number[:], rep, def)
}

func (l *outLeaf) float64(v float64, rep, def int) {
	binary.LittleEndian.PutUint64(l.number[:], math.Float64bits(v))
	l.Add(l.number[:], rep, def)
}

func (l *outLeaf) text(s string, rep, def int) { l.Add([]byte(s), rep, def) }

// nested is a row of nested lists of fixed lengths, none of them null.
func (l *outLeaf) nested(dims []int, put func(i, rep, def int)) {
	pattern := pqw.Pattern(dims...)
	if len(pattern) == 0 {
		l.Null(0, 1)
		return
	}
	for i, rep := range pattern {
		put(i, int(rep), 1+2*len(dims))
	}
}

// leavesOf makes the collectors of columns, in file order.
func leavesOf(columns []*pqw.Leaf) []*outLeaf {
	out := make([]*outLeaf, len(columns))
	for i, c := range columns {
		out[i] = &outLeaf{Values: c.NewValues()}
	}
	return out
}

// chunksOf ends the collectors.
func chunksOf(leaves []*outLeaf) (out []*pqw.Chunk, err error) {
	out = make([]*pqw.Chunk, len(leaves))
	for i, l := range leaves {
		if out[i], err = l.Encode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// columnsOf lists the columns of a schema, in file order.
func columnsOf(s *parquet.Schema) ([]*pqw.Leaf, error) { return pqw.Leaves(s) }

// stored32 makes the 32-bit integers that Parquet has for narrower ones; other numbers lie there as they are.
func stored32(d robocache.DType, raw []byte) []byte {
	le := binary.LittleEndian
	switch d {
	case robocache.Int8:
		return pqw.Widen(raw, 1, func(p []byte) int8 { return int8(p[0]) })
	case robocache.Uint8:
		return pqw.Widen(raw, 1, func(p []byte) uint8 { return p[0] })
	case robocache.Int16:
		return pqw.Widen(raw, 2, func(p []byte) int16 { return int16(le.Uint16(p)) })
	case robocache.Uint16:
		return pqw.Widen(raw, 2, le.Uint16)
	}
	return raw
}
