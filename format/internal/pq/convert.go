package pq

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
)

// DType returns the type of a leaf's values, or InvalidDType if there is no equivalent.
func DType(n *Node) robocache.DType {
	switch n.Type {
	case Boolean:
		return robocache.Bool
	case Int32:
		switch {
		case n.Note == Unsigned && n.Bits == 8:
			return robocache.Uint8
		case n.Note == Unsigned && n.Bits == 16:
			return robocache.Uint16
		case n.Note == Unsigned:
			return robocache.Uint32
		case n.Bits == 8:
			return robocache.Int8
		case n.Bits == 16:
			return robocache.Int16
		}
		return robocache.Int32
	case Int64:
		if n.Note == Unsigned {
			return robocache.Uint64
		}
		return robocache.Int64
	case Float:
		return robocache.Float32
	case Double:
		return robocache.Float64
	case FixedLenByteArray:
		if n.Length == 2 && n.Note == Half {
			return robocache.Float16
		}
	case ByteArray:
		return robocache.String
	}
	return robocache.InvalidDType
}

// Convert returns the values of col as type to. It rounds floats to fewer bits. It rejects every
// other change of a value, as Arrow's safe cast does.
func Convert(col *Column, to robocache.DType) ([]byte, error) {
	from, src, size := DType(col.Leaf), col.Data(), to.Size()
	if from == to && col.Leaf.Width() == size {
		return src, nil
	}
	if from == robocache.InvalidDType || from == robocache.String || size == 0 ||
		to == robocache.BFloat16 {
		return nil, robocache.Malformed("parquet", nil, "").
			Expected(to.String(), col.Leaf.Type.String())
	}
	dst := make([]byte, col.Len()*size)
	misfit := func(i int, v any) ([]byte, error) {
		return nil, robocache.Malformed("parquet", robocache.Where{"value": i}, "").
			Expected("a value that fits "+to.String(), fmt.Sprint(v)+" stored as "+from.String())
	}
	if from.Float() {
		for i, f := range robocache.Float64s(make([]float64, 0, col.Len()), from, src) {
			if to.Float() {
				PutFloat(dst[i*size:], to, f)
			} else if f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 ||
				!PutInt(dst[i*size:], to, int64(f), false) {
				return misfit(i, f)
			}
		}
		return dst, nil
	}
	wide := from // stored type: Parquet has no integers below 32 bits
	if col.Leaf.Type == Int32 {
		wide = robocache.Int32
		if col.Leaf.Note == Unsigned {
			wide = robocache.Uint32
		}
	}
	exact := int64(
		1,
	) << map[robocache.DType]int{
		robocache.Float16: 11,
		robocache.Float32: 24,
		robocache.Float64: 53,
	}[to]
	for i, v := range robocache.Int64s(make([]int64, 0, col.Len()), wide, src) {
		big := wide == robocache.Uint64 && v < 0
		if to.Float() && !big && -exact <= v && v <= exact {
			PutFloat(dst[i*size:], to, float64(v))
		} else if to.Float() || !PutInt(dst[i*size:], to, v, big) {
			if big {
				return misfit(i, uint64(v))
			}
			return misfit(i, v)
		}
	}
	return dst, nil
}

// PutInt writes an integer and reports whether it fits. If big is set, v contains the bits of a
// number above the range of int64.
func PutInt(dst []byte, t robocache.DType, v int64, big bool) (fits bool) {
	bits := 8 * t.Size()
	switch {
	case t == robocache.Bool:
		fits = v == 0 || v == 1
	case big:
		fits = t == robocache.Uint64
	case t >= robocache.Int8 && t <= robocache.Int64:
		fits = v>>(bits-1) == v>>63
	default:
		fits = v >= 0 && v>>min(bits, 63) == 0
	}
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], uint64(v))
	copy(dst[:t.Size()], w[:])
	return fits
}

// PutFloat writes a number, rounded to the type.
func PutFloat(dst []byte, t robocache.DType, f float64) {
	switch t {
	case robocache.Float16:
		binary.LittleEndian.PutUint16(dst, robocache.HalfOf(f))
	case robocache.Float32:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(f)))
	default:
		binary.LittleEndian.PutUint64(dst, math.Float64bits(f))
	}
}

// Int64s returns an integer column as int64.
func Int64s(col *Column) ([]int64, error) {
	b, err := Convert(col, robocache.Int64)
	out := make([]int64, len(b)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(b[i*8:]))
	}
	return out, err
}

// Float64s returns a numeric column as float64. It rejects integers that float64 cannot represent
// exactly.
func Float64s(col *Column) ([]float64, error) {
	if DType(col.Leaf) == robocache.Int64 { // most columns of metadata have this type
		v, _ := Int64s(col)
		out := make([]float64, len(v))
		exact := true
		for i, n := range v {
			out[i] = float64(n)
			// larger integers become 2^63 as float64
			exact = exact && n < 1<<63-512 && int64(out[i]) == n
		}
		if exact {
			return out, nil
		}
	}
	b, err := Convert(col, robocache.Float64)
	return robocache.Float64s(make([]float64, 0, len(b)/8), robocache.Float64, b), err
}
