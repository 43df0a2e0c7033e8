package lerobot

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
)

// storedType is the type of a leaf's values.
func storedType(n *pq.Node) robocache.DType {
	switch n.Type {
	case pq.Boolean:
		return robocache.Bool
	case pq.Int32:
		switch {
		case n.Note == pq.Unsigned && n.Bits == 8:
			return robocache.Uint8
		case n.Note == pq.Unsigned && n.Bits == 16:
			return robocache.Uint16
		case n.Note == pq.Unsigned:
			return robocache.Uint32
		case n.Bits == 8:
			return robocache.Int8
		case n.Bits == 16:
			return robocache.Int16
		}
		return robocache.Int32
	case pq.Int64:
		if n.Note == pq.Unsigned {
			return robocache.Uint64
		}
		return robocache.Int64
	case pq.Float:
		return robocache.Float32
	case pq.Double:
		return robocache.Float64
	case pq.FixedLenByteArray:
		if n.Length == 2 && n.Note == pq.Half {
			return robocache.Float16
		}
	case pq.ByteArray:
		return robocache.String
	}
	return robocache.InvalidDType
}

// convert gives col's values as to. It rounds floats to fewer bits, and refuses every other change of a value, as Arrow's safe cast does.
func convert(col *pq.Column, to robocache.DType) ([]byte, error) {
	from := storedType(col.Leaf)
	src := col.Data()
	if from == to && col.Leaf.Width() == to.Size() {
		return src, nil
	}
	if from == robocache.InvalidDType || from == robocache.String || to.Size() == 0 || to == robocache.BFloat16 {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Want: to.String(), Got: col.Leaf.Type.String()}
	}
	n := col.Len()
	dst := make([]byte, n*to.Size())
	if from == robocache.Float64 && to == robocache.Float32 {
		for i := range n {
			v := math.Float64frombits(binary.LittleEndian.Uint64(src[i*8:]))
			binary.LittleEndian.PutUint32(dst[i*4:], math.Float32bits(float32(v)))
		}
		return dst, nil
	}
	w := col.Leaf.Width()
	for i := range n {
		if !cast(dst[i*to.Size():], to, src[i*w:], from) {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"value": i}, Want: "a value that fits " + to.String(), Got: number(src[i*w:], from) + " stored as " + from.String()}
		}
	}
	return dst, nil
}

func number(b []byte, t robocache.DType) string {
	if t.Float() {
		return fmt.Sprint(floatAt(b, t))
	}
	v, big := intAt(b, t)
	if big {
		return fmt.Sprint(uint64(v))
	}
	return fmt.Sprint(v)
}

// cast moves one value; false where it does not survive.
func cast(dst []byte, to robocache.DType, src []byte, from robocache.DType) bool {
	switch {
	case from.Float() && to.Float():
		putFloat(dst, to, floatAt(src, from))
		return true
	case from.Float():
		f := floatAt(src, from)
		if f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
			return false
		}
		return putInt(dst, to, int64(f), false)
	}
	v, big := intAt(src, from)
	if to.Float() {
		limit := int64(1) << map[robocache.DType]int{robocache.Float16: 11, robocache.Float32: 24, robocache.Float64: 53}[to]
		if big || v > limit || v < -limit {
			return false
		}
		putFloat(dst, to, float64(v))
		return true
	}
	return putInt(dst, to, v, big)
}

// intAt reads an integer or bool; big says that it is above the range of int64 (and v holds its bits).
func intAt(b []byte, t robocache.DType) (v int64, big bool) {
	switch t {
	case robocache.Bool:
		return int64(b[0]), false
	case robocache.Int8, robocache.Int16, robocache.Int32:
		return int64(int32(binary.LittleEndian.Uint32(b))), false
	case robocache.Uint8, robocache.Uint16, robocache.Uint32:
		return int64(binary.LittleEndian.Uint32(b)), false
	}
	u := binary.LittleEndian.Uint64(b)
	return int64(u), t == robocache.Uint64 && u > math.MaxInt64
}

func putInt(dst []byte, t robocache.DType, v int64, big bool) bool {
	if big {
		if t != robocache.Uint64 {
			return false
		}
		binary.LittleEndian.PutUint64(dst, uint64(v))
		return true
	}
	if t == robocache.Bool {
		if v != 0 && v != 1 {
			return false
		}
		dst[0] = byte(v)
		return true
	}
	bits := uint(t.Size() * 8)
	signed := t >= robocache.Int8 && t <= robocache.Int64
	if signed && bits < 64 && (v < -1<<(bits-1) || v >= 1<<(bits-1)) || !signed && (v < 0 || bits < 64 && v >= 1<<bits) {
		return false
	}
	switch t.Size() {
	case 1:
		dst[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(dst, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(dst, uint64(v))
	}
	return true
}

func floatAt(b []byte, t robocache.DType) float64 {
	switch t {
	case robocache.Float16:
		return float64(robocache.HalfToFloat32(binary.LittleEndian.Uint16(b)))
	case robocache.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

func putFloat(dst []byte, t robocache.DType, f float64) {
	switch t {
	case robocache.Float16:
		binary.LittleEndian.PutUint16(dst, robocache.HalfOf(f))
	case robocache.Float32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(f)))
	default:
		binary.LittleEndian.PutUint64(dst, math.Float64bits(f))
	}
}

// toInt64 gives an integer column as int64.
func toInt64(col *pq.Column) ([]int64, error) {
	return words(col, robocache.Int64, func(bits uint64) int64 { return int64(bits) })
}

// toFloat64 gives a column of numbers as float64.
func toFloat64(col *pq.Column) ([]float64, error) {
	return words(col, robocache.Float64, math.Float64frombits)
}

func words[T any](col *pq.Column, to robocache.DType, value func(bits uint64) T) ([]T, error) {
	b, err := convert(col, to)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(b)/8)
	for i := range out {
		out[i] = value(binary.LittleEndian.Uint64(b[i*8:]))
	}
	return out, nil
}
