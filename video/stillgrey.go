package video

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// deliverGrey converts a one-channel image to Gray16, DepthMM or DepthM. It scales the image to the
// size of spec with the nearest pixels. raw holds little-endian rows of info.DType, stride bytes
// apart.
func deliverGrey(raw []byte, stride int, info StillInfo, spec *Spec, dst []byte) {
	le := binary.LittleEndian
	w, h := spec.outputSize(info)
	unit := "mm"
	if info.DType == robocache.Float32 {
		unit = "m"
	}
	if spec.Depth != nil && spec.Depth.Unit != "" {
		unit = spec.Depth.Unit
	}
	toMillimeters := spec.Pixel == DepthMM && unit == "m"
	toMeters := spec.Pixel == DepthM && unit != "m"
	size, outSize := info.DType.Size(), spec.Pixel.bytesPerPixel()
	for y := range h {
		sourceY := (2*y + 1) * info.Height / (2 * h) // source pixel at the center of pixel y
		row := raw[sourceY*stride:][:size*info.Width]
		to := dst[y*w*outSize:][:w*outSize]
		if w != info.Width {
			scaled := make([]byte, size*w)
			for x := range w {
				sourceX := (2*x + 1) * info.Width / (2 * w)
				copy(scaled[size*x:][:size], row[sourceX*size:])
			}
			row = scaled
		}
		switch {
		case size == outSize && !toMillimeters && !toMeters:
			copy(to, row)
		case outSize == 2: // Gray16 of 8-bit grey
			for x, v := range row {
				le.PutUint16(to[2*x:], uint16(v))
			}
		default:
			// The most common case, meters as millimeters, is unrolled.
			unroll := size == 4 && toMillimeters
			for ; unroll && len(row) >= 16 && len(to) >= 16; row, to = row[16:], to[16:] {
				four, result := (*[16]byte)(row), (*[16]byte)(to)
				le.PutUint32(
					result[0:],
					math.Float32bits(1000*math.Float32frombits(le.Uint32(four[0:]))),
				)
				le.PutUint32(
					result[4:],
					math.Float32bits(1000*math.Float32frombits(le.Uint32(four[4:]))),
				)
				le.PutUint32(
					result[8:],
					math.Float32bits(1000*math.Float32frombits(le.Uint32(four[8:]))),
				)
				le.PutUint32(
					result[12:],
					math.Float32bits(1000*math.Float32frombits(le.Uint32(four[12:]))),
				)
			}
			for ; len(row) >= size; row, to = row[size:], to[4:] {
				var v float32
				switch size {
				case 1:
					v = float32(row[0])
				case 2:
					v = float32(le.Uint16(row))
				default:
					v = math.Float32frombits(le.Uint32(row))
				}
				if toMillimeters {
					v *= 1000
				} else if toMeters {
					v /= 1000
				}
				le.PutUint32(to, math.Float32bits(v))
			}
		}
	}
}

// bytesPerPixel returns the bytes per pixel, or 0 if the kind has no fixed number.
func (p Pixel) bytesPerPixel() int {
	switch p {
	case RGB8:
		return 3
	case RGBFloat32:
		return 12
	case Gray16:
		return 2
	case DepthMM, DepthM:
		return 4
	}
	return 0
}

// isGrey reports whether the kind is produced from one channel.
func (p Pixel) isGrey() bool { return p == Gray16 || p == DepthMM || p == DepthM }
