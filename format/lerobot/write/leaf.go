package write

import (
	"encoding/binary"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
)

// valuesOf makes the collectors of columns, in file order: of what has no fixed rows.
func valuesOf(columns []*pqw.Leaf) []*pqw.Values {
	out := make([]*pqw.Values, len(columns))
	for i, c := range columns {
		out[i] = c.NewValues()
	}
	return out
}

// chunksOf ends the collectors.
func chunksOf(values []*pqw.Values) (out []*pqw.Chunk, err error) {
	out = make([]*pqw.Chunk, len(values))
	for i, v := range values {
		if out[i], err = v.Encode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stored32 makes the 32-bit integers that Parquet has for narrower ones; other numbers lie there as they are.
func stored32(d robocache.DType, raw []byte) []byte {
	size := d.Size()
	if !d.Integer() || size > 2 {
		return raw
	}
	out := make([]byte, 0, len(raw)/size*4)
	for ; len(raw) >= size; raw = raw[size:] {
		v := uint32(raw[0])
		if size == 2 {
			v |= uint32(raw[1]) << 8
		}
		if d == robocache.Int8 || d == robocache.Int16 {
			shift := 32 - 8*size
			v = uint32(int32(v<<shift) >> shift)
		}
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}
