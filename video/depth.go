package video

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// DepthCodes says how depth becomes the 12-bit codes of a depth video, as lerobot's quantize_depth
// does: of images of uint16 in millimetres, or of float32 in metres, as the code's unit says. What
// lies outside of the code's bounds, and NaN, gets the nearest bound's code: 0 is the least depth,
// and none.
type DepthCodes struct {
	code robocache.Depth
	mm   []uint16 // by millimetre
}

// NewDepthCodes prepares a code.
func NewDepthCodes(d *robocache.Depth) *DepthCodes {
	c := &DepthCodes{code: *d}
	if d.Unit == "mm" {
		c.mm = make([]uint16, 1<<16)
		for i := range c.mm {
			c.mm[i] = c.of(float64(i) / 1000)
		}
	}
	return c
}

// of is the code of a depth in metres.
func (c *DepthCodes) of(metres float64) uint16 {
	at := func(v float64) float64 {
		if c.code.Log {
			return math.Log(v + c.code.Shift)
		}
		return v
	}
	q := math.RoundToEven((at(metres) - at(c.code.Min)) / (at(c.code.Max) - at(c.code.Min)) * 4095)
	if !(q > 0) { // or NaN
		return 0
	}
	return uint16(min(q, 4095))
}

// Put puts the codes of an image behind dst, as little-endian uint16.
func (c *DepthCodes) Put(dst, image []byte) []byte {
	if c.mm != nil {
		for i := 0; i+1 < len(image); i += 2 {
			dst = binary.LittleEndian.AppendUint16(dst, c.mm[binary.LittleEndian.Uint16(image[i:])])
		}
		return dst
	}
	for i := 0; i+3 < len(image); i += 4 {
		dst = binary.LittleEndian.AppendUint16(
			dst,
			c.of(float64(math.Float32frombits(binary.LittleEndian.Uint32(image[i:])))),
		)
	}
	return dst
}
