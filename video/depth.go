package video

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// DepthCodes converts depth to the 12-bit codes of a depth video, like lerobot's quantize_depth.
// The input is uint16 in millimeters or float32 in meters, depending on the code's unit. Values
// outside the range get the code of the nearest bound. NaN gets 0, the code of the minimum and of
// missing depth. Safe for concurrent use.
type DepthCodes struct {
	code         robocache.Depth
	byMillimeter []uint16 // code by millimeter; nil if the unit is meters
}

// NewDepthCodes returns a converter for a code.
func NewDepthCodes(d *robocache.Depth) *DepthCodes {
	c := &DepthCodes{code: *d}
	if d.Unit == "mm" {
		c.byMillimeter = make([]uint16, 1<<16)
		for i := range c.byMillimeter {
			c.byMillimeter[i] = c.codeOf(float64(i) / 1000)
		}
	}
	return c
}

// codeOf returns the code of a depth in meters.
func (c *DepthCodes) codeOf(metres float64) uint16 {
	at := func(v float64) float64 {
		if c.code.Log {
			return math.Log(v + c.code.Shift)
		}
		return v
	}
	q := math.RoundToEven((at(metres) - at(c.code.Min)) / (at(c.code.Max) - at(c.code.Min)) * 4095)
	if !(q > 0) { // also true for NaN
		return 0
	}
	return uint16(min(q, 4095))
}

// Put appends the codes of an image to dst, as little-endian uint16.
func (c *DepthCodes) Put(dst, image []byte) []byte {
	if c.byMillimeter != nil {
		for i := 0; i+1 < len(image); i += 2 {
			dst = binary.LittleEndian.AppendUint16(
				dst,
				c.byMillimeter[binary.LittleEndian.Uint16(image[i:])],
			)
		}
		return dst
	}
	for i := 0; i+3 < len(image); i += 4 {
		dst = binary.LittleEndian.AppendUint16(
			dst,
			c.codeOf(float64(math.Float32frombits(binary.LittleEndian.Uint32(image[i:])))),
		)
	}
	return dst
}
