package turbojpeg

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// Native says whether libjpeg-turbo is linked. Where it is not, Decode answers Unsupported.
func Native() bool { return native() }

// Decode decodes a JPEG whose frame header says width × height into dst: with channels 3 R, G, B
// row by row; with 1 the grey of a grey image.
func Decode(dst, src []byte, width, height, channels int) error {
	if !native() {
		return robocache.Unsupported("decode JPEG", nil, "libjpeg-turbo is not in this build").
			WithHint("make native, and build with cgo")
	}
	if width <= 0 || height <= 0 || width > math.MaxUint16 || height > math.MaxUint16 ||
		channels != 1 && channels != 3 ||
		len(dst) != width*height*channels {
		return robocache.Misuse(
			"decode JPEG",
			nil,
			"%d bytes for %d×%d×%d",
			len(dst),
			height,
			width,
			channels,
		)
	}
	return decode(dst, src, width, height, channels)
}

func failure(class error, msg string) error {
	return robocache.NewError(class, "decode JPEG", nil, "jpeg: %s", msg)
}
