package stats

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// element reads one type of number: as a float64, and as an unsigned key whose order is the order of the numbers.
type element struct {
	kind  robocache.DType
	size  int // bytes
	bits  int // of the key
	value func(p []byte) float64
	key   func(p []byte) uint64
	back  func(k uint64) float64
}

// finite appends the values of column c of w that are numbers.
func (e *element) finite(to []float64, raw []byte, c, w int) []float64 {
	le := binary.LittleEndian
	n := len(raw) / e.size / w
	to = slices.Grow(to, n)
	switch e.kind {
	case robocache.Float32:
		for i := c; i < n*w; i += w {
			if v := float64(math.Float32frombits(le.Uint32(raw[4*i:]))); v-v == 0 {
				to = append(to, v)
			}
		}
	case robocache.Float64:
		for i := c; i < n*w; i += w {
			if v := math.Float64frombits(le.Uint64(raw[8*i:])); v-v == 0 {
				to = append(to, v)
			}
		}
	case robocache.Int64:
		for i := c; i < n*w; i += w {
			to = append(to, float64(int64(le.Uint64(raw[8*i:]))))
		}
	default:
		for i := c; i < n*w; i += w {
			if v := e.value(raw[i*e.size:]); v-v == 0 {
				to = append(to, v)
			}
		}
	}
	return to
}

// elementOf gives the reader of a type; ok is false for types that are no numbers.
func elementOf(d robocache.DType) (element, bool) {
	le := binary.LittleEndian
	switch d {
	case robocache.Bool, robocache.Uint8:
		return element{d, 1, 8, func(p []byte) float64 { return float64(p[0]) }, func(p []byte) uint64 { return uint64(p[0]) }, func(k uint64) float64 { return float64(k) }}, true
	case robocache.Int8:
		return element{d, 1, 8, func(p []byte) float64 { return float64(int8(p[0])) }, func(p []byte) uint64 { return uint64(p[0] ^ 0x80) }, func(k uint64) float64 { return float64(int8(k ^ 0x80)) }}, true
	case robocache.Uint16:
		return element{d, 2, 16, func(p []byte) float64 { return float64(le.Uint16(p)) }, func(p []byte) uint64 { return uint64(le.Uint16(p)) }, func(k uint64) float64 { return float64(k) }}, true
	case robocache.Int16:
		return element{d, 2, 16, func(p []byte) float64 { return float64(int16(le.Uint16(p))) }, func(p []byte) uint64 { return uint64(le.Uint16(p) ^ 0x8000) }, func(k uint64) float64 { return float64(int16(k ^ 0x8000)) }}, true
	case robocache.Uint32:
		return element{d, 4, 32, func(p []byte) float64 { return float64(le.Uint32(p)) }, func(p []byte) uint64 { return uint64(le.Uint32(p)) }, func(k uint64) float64 { return float64(k) }}, true
	case robocache.Int32:
		return element{d, 4, 32, func(p []byte) float64 { return float64(int32(le.Uint32(p))) }, func(p []byte) uint64 { return uint64(le.Uint32(p) ^ 1<<31) }, func(k uint64) float64 { return float64(int32(uint32(k) ^ 1<<31)) }}, true
	case robocache.Uint64:
		return element{d, 8, 64, func(p []byte) float64 { return float64(le.Uint64(p)) }, func(p []byte) uint64 { return le.Uint64(p) }, func(k uint64) float64 { return float64(k) }}, true
	case robocache.Int64:
		return element{d, 8, 64, func(p []byte) float64 { return float64(int64(le.Uint64(p))) }, func(p []byte) uint64 { return le.Uint64(p) ^ 1<<63 }, func(k uint64) float64 { return float64(int64(k ^ 1<<63)) }}, true
	case robocache.Float16:
		return element{d, 2, 16, func(p []byte) float64 { return float64(robocache.HalfToFloat32(le.Uint16(p))) }, func(p []byte) uint64 { return flip16(le.Uint16(p)) }, func(k uint64) float64 { return float64(robocache.HalfToFloat32(flop16(k))) }}, true
	case robocache.BFloat16:
		bf := func(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }
		return element{d, 2, 16, func(p []byte) float64 { return bf(le.Uint16(p)) }, func(p []byte) uint64 { return flip16(le.Uint16(p)) }, func(k uint64) float64 { return bf(flop16(k)) }}, true
	case robocache.Float32:
		return element{d, 4, 32, func(p []byte) float64 { return float64(math.Float32frombits(le.Uint32(p))) },
			func(p []byte) uint64 {
				b := le.Uint32(p)
				return uint64(b ^ (uint32(int32(b)>>31) | 1<<31))
			},
			func(k uint64) float64 {
				b := uint32(k)
				return float64(math.Float32frombits(b ^ (uint32(int32(^b)>>31) | 1<<31)))
			}}, true
	case robocache.Float64:
		return element{d, 8, 64, func(p []byte) float64 { return math.Float64frombits(le.Uint64(p)) },
			func(p []byte) uint64 {
				b := le.Uint64(p)
				return b ^ (uint64(int64(b)>>63) | 1<<63)
			},
			func(k uint64) float64 { return math.Float64frombits(k ^ (uint64(int64(^k)>>63) | 1<<63)) }}, true
	}
	return element{}, false
}

// A float's bits sort as unsigned numbers once the sign bit is set on positive ones and all bits are turned on negative ones.
func flip16(b uint16) uint64 { return uint64(b ^ (uint16(int16(b)>>15) | 1<<15)) }

func flop16(k uint64) uint16 {
	b := uint16(k)
	return b ^ (uint16(int16(^b)>>15) | 1<<15)
}
