package robocache

import (
	"math"
	"slices"
	"testing"
)

// Every half is what it was, and what lies between two goes to the nearer, ties to the even one.
func TestHalfOfFloat32(t *testing.T) {
	for h := range 1 << 16 {
		f := HalfToFloat32(uint16(h))
		if got := HalfOf(float64(f)); got != uint16(h) && f == f {
			t.Fatalf("%04x became %04x", h, got)
		}
		if f != f && !math.IsNaN(float64(HalfToFloat32(HalfOf(float64(f))))) {
			t.Fatalf("NaN %04x is none any more", h)
		}
		if h&0x7fff >= 0x7bff {
			continue
		}
		next := HalfToFloat32(uint16(h) + 1)
		mid := f + (next-f)/2
		even := uint16(h) + uint16(h)&1
		if got := HalfOf(float64(mid)); got != even {
			t.Fatalf("between %04x and the next: %04x", h, got)
		}
		away := float32(math.Inf(1))
		if next < f {
			away = -away
		}
		if got := HalfOf(float64(math.Nextafter32(mid, away))); got != uint16(h)+1 {
			t.Fatalf("beyond the middle of %04x: %04x", h, got)
		}
	}
}

func TestInt64s(t *testing.T) {
	raw := []byte{1, 0xff, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff}
	for d, want := range map[DType][]int64{
		Bool: {1, 255, 128, 255, 255, 255, 255, 255},
		Int8: {1, -1, -128, -1, -1, -1, -1, -1}, Uint8: {1, 255, 128, 255, 255, 255, 255, 255},
		Int16:  {-255, -128, -1, -1},
		Uint16: {0xff01, 0xff80, 0xffff, 0xffff},
		Int32:  {-0x7f00ff, -1}, Uint32: {0xff80ff01, 0xffffffff},
		Int64: {-0x7f00ff}, Uint64: {-0x7f00ff}, Float32: nil, String: nil,
	} {
		if got := Int64s(nil, d, raw); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", d, got, want)
		}
	}
}
