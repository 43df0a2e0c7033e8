//go:build cgo

package ffmpeg

import (
	"unsafe"

	made "github.com/goatnote-inc/robocache/video/ffmpeg/tests/synthetic"
)

// synthetic returns a decoder with a frame of random bytes.
func synthetic(width, height int, format string, matrix int, fullRange bool, seed uint32) *decoder {
	d := &decoder{}
	c, seen := made.New(width, height, format, matrix, fullRange, seed)
	*(*unsafe.Pointer)(unsafe.Pointer(&d.native)) = c
	*(*unsafe.Pointer)(unsafe.Pointer(&d.received)) = seen
	d.frame.decoder = d
	return d
}

func setRotation(d *decoder, degrees int) { made.Rotate(unsafe.Pointer(d.native), degrees) }

func stretch(d *decoder) { made.Stretch(unsafe.Pointer(d.native)) }

func hasScaler(d *decoder) bool { return made.HasScaler(unsafe.Pointer(d.native)) }
