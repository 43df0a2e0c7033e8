package turbojpeg

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// Native reports whether libjpeg-turbo is linked. If not, Decode returns ErrUnsupported.
func Native() bool { return isLinked() }

// Decode decodes a JPEG to dst. width and height are those of its frame header. With 3 channels dst
// receives R, G, B, row by row. With 1 channel it receives a grey image.
func Decode(dst, src []byte, width, height, channels int) error {
	if !isLinked() {
		return robocache.Unsupported("decode JPEG", nil, "this build has no libjpeg-turbo").
			WithHint("run 'make native', and build with cgo")
	}
	if width <= 0 || height <= 0 || width > math.MaxUint16 || height > math.MaxUint16 ||
		channels != 1 && channels != 3 ||
		len(dst) != width*height*channels {
		return robocache.Misuse(
			"decode JPEG",
			nil,
			"a destination of %d bytes for %d×%d×%d values",
			len(dst),
			height,
			width,
			channels,
		)
	}
	return decodeNative(dst, src, width, height, channels)
}

func jpegError(class error, msg string) error {
	return robocache.NewError(class, "decode JPEG", nil, "jpeg: %s", msg)
}
