//go:build cgo

package ffmpeg

import (
	"unsafe"

	made "github.com/goatnote-inc/robocache/video/ffmpeg/tests/synthetic"
)

// synthetic is a frame of random bytes.
func synthetic(width, height int, format string, matrix int, fullRange bool, seed uint32) *decoder {
	d := &decoder{}
	c, seen := made.New(width, height, format, matrix, fullRange, seed)
	*(*unsafe.Pointer)(unsafe.Pointer(&d.c)) = c
	*(*unsafe.Pointer)(unsafe.Pointer(&d.seen)) = seen
	d.pic.d = d
	return d
}

func setRotation(d *decoder, degrees int) { made.Rotate(unsafe.Pointer(d.c), degrees) }

func stretch(d *decoder) { made.Stretch(unsafe.Pointer(d.c)) }

func hasScaler(d *decoder) bool { return made.HasScaler(unsafe.Pointer(d.c)) }
