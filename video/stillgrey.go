package video

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// deliverGrey brings a one-channel frame, little-endian rows of info.DType stride bytes apart, to what spec asks for: Gray16, DepthMM or DepthM.
func deliverGrey(raw []byte, stride int, info StillInfo, spec *Spec, dst []byte) {
	le := binary.LittleEndian
	w, h := spec.size(info)
	unit := "mm"
	if info.DType == robocache.Float32 {
		unit = "m"
	}
	if spec.Depth != nil && spec.Depth.Unit != "" {
		unit = spec.Depth.Unit
	}
	up, down := spec.Pixel == DepthMM && unit == "m", spec.Pixel == DepthM && unit != "m"
	for y := range h {
		row := raw[(2*y+1)*info.Height/(2*h)*stride:]
		for x := range w {
			at := (2*x + 1) * info.Width / (2 * w)
			var v float32
			var u uint16
			switch info.DType {
			case robocache.Uint8:
				u = uint16(row[at])
				v = float32(u)
			case robocache.Uint16:
				u = le.Uint16(row[2*at:])
				v = float32(u)
			default:
				v = math.Float32frombits(le.Uint32(row[4*at:]))
			}
			i := y*w + x
			switch {
			case spec.Pixel == Gray16:
				le.PutUint16(dst[2*i:], u)
				continue
			case up:
				v *= 1000
			case down:
				v /= 1000
			}
			le.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	}
}

// bytes is what a pixel of a kind takes; 0 where that is not one number.
func (p Pixel) bytes() int {
	if sizes := [...]int{RGB8: 3, RGBFloat32: 12, Gray16: 2, DepthMM: 4, DepthM: 4}; int(p) < len(sizes) {
		return sizes[p]
	}
	return 0
}

// grey are the kinds that are made of one channel.
func (p Pixel) grey() bool { return p == Gray16 || p == DepthMM || p == DepthM }
