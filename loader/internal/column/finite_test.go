package column

import (
	"encoding/binary"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestAllFinite checks each type with NaN and infinity at each position of a row.
func TestAllFinite(t *testing.T) {
	for d, bits := range map[robocache.DType]struct {
		bad, good []uint64
	}{
		robocache.Float64: {
			[]uint64{0x7ff8 << 48, 0xfff0 << 48, 0x7ff0<<48 + 1},
			[]uint64{
				0,
				1 << 63,
				0x7fef_ffff_ffff_ffff,
				0x000f_ffff_ffff_ffff,
				0xffef_ffff_ffff_ffff,
			},
		},
		robocache.Float32: {
			[]uint64{0x7fc00000, 0xff800000, 0x7f800001, 0xffffffff},
			[]uint64{0, 0x80000000, 0x7f7fffff, 0xff7fffff, 0x007fffff},
		},
		robocache.Float16: {
			[]uint64{0x7e00, 0xfc00, 0x7c01},
			[]uint64{0, 0x8000, 0x7bff, 0xfbff, 0x03ff},
		},
		robocache.BFloat16: {
			[]uint64{0x7fc0, 0xff80, 0x7f81},
			[]uint64{0, 0x8000, 0x7f7f, 0xff7f, 0x007f},
		},
	} {
		size := d.Size()
		for n := 1; n <= 9; n++ {
			for at := range n {
				for _, want := range []bool{true, false} {
					values := bits.good
					if !want {
						values = bits.bad
					}
					for _, v := range values {
						b := make([]byte, n*size)
						for i := range n {
							var word [8]byte
							x := bits.good[2+(i+at)%3]
							if i == at {
								x = v
							}
							binary.LittleEndian.PutUint64(word[:], x)
							copy(b[i*size:], word[:size])
						}
						if got := allFinite(b, d); got != want {
							t.Fatalf("%s: %x at %d of %d: %v", d, v, at, n, got)
						}
					}
				}
			}
		}
	}
}
