package robocache

import (
	"encoding/binary"
	"math"
)

// NotFinite returns the number of values that are NaN or infinite.
func NotFinite(t DType, raw []byte) (n int64) {
	if t.Float() {
		for _, v := range Float64s(nil, t, raw) {
			if v-v != 0 {
				n++
			}
		}
	}
	return n
}

// Float64s appends the elements of raw (little-endian, dtype d) to dst as float64. Only 64-bit
// integers beyond 2^53 are rounded. Text types append nothing. It is for statistics and plots:
// loading never converts to float64.
func Float64s(dst []float64, d DType, raw []byte) []float64 {
	le := binary.LittleEndian
	n := 0
	if s := d.Size(); s > 0 {
		n = len(raw) / s
	}
	for i := range n {
		var v float64
		switch d {
		case Bool, Uint8:
			v = float64(raw[i])
		case Int8:
			v = float64(int8(raw[i]))
		case Int16:
			v = float64(int16(le.Uint16(raw[2*i:])))
		case Uint16:
			v = float64(le.Uint16(raw[2*i:]))
		case Int32:
			v = float64(int32(le.Uint32(raw[4*i:])))
		case Uint32:
			v = float64(le.Uint32(raw[4*i:]))
		case Int64:
			v = float64(int64(le.Uint64(raw[8*i:])))
		case Uint64:
			v = float64(le.Uint64(raw[8*i:]))
		case Float16:
			v = float64(HalfToFloat32(le.Uint16(raw[2*i:])))
		case BFloat16:
			v = float64(math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16))
		case Float32:
			v = float64(math.Float32frombits(le.Uint32(raw[4*i:])))
		case Float64:
			v = math.Float64frombits(le.Uint64(raw[8*i:]))
		}
		dst = append(dst, v)
	}
	return dst
}

// HalfToFloat32 returns the value of an IEEE 754 binary16 number, exactly.
func HalfToFloat32(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h) & 0x3ff
	switch exp {
	case 0:
		// Subnormal: frac × 2^-24 is exact in float32.
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Int64s appends the elements of raw (little-endian, an integer dtype or Bool) to dst as int64. A
// uint64 keeps its bits. Other types append nothing.
func Int64s(dst []int64, d DType, raw []byte) []int64 {
	size := d.Size()
	if !d.Integer() && d != Bool {
		return dst
	}
	for ; len(raw) >= size; raw = raw[size:] {
		var w [8]byte
		copy(w[:], raw[:size])
		unused := 64 - 8*size
		v := binary.LittleEndian.Uint64(w[:]) << unused
		switch d {
		case Int8, Int16, Int32:
			dst = append(dst, int64(v)>>unused)
		default:
			dst = append(dst, int64(v>>unused))
		}
	}
	return dst
}

// HalfOf returns f rounded to an IEEE 754 binary16: to nearest, ties to even. It rounds once, from
// float64, because rounding to float32 first would give other results. A NaN stays a NaN.
func HalfOf(f float64) uint16 {
	bits := math.Float64bits(f)
	sign := uint16(bits>>48) & 0x8000
	a := math.Abs(f)
	switch {
	case f != f:
		return sign | 0x7e00 | uint16(bits>>42)&0x1ff
	case a >= 65520:
		return sign | 0x7c00
	case a < 0x1p-14:
		return sign | uint16(math.RoundToEven(a*0x1p24))
	}
	frac, exp := math.Frexp(a) // a = frac·2^exp, 0.5 ≤ frac < 1
	m := uint32(math.RoundToEven(frac * 2048))
	return sign | uint16(uint32(exp+13)<<10+m)
}
