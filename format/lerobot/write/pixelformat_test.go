package write

import (
	"testing"

	"github.com/goatnote-inc/robocache/video"
)

// TestPixelFormatOfAV1 compares the names with those of FFmpeg for the bits of byte 2 of av1C.
func TestPixelFormatOfAV1(t *testing.T) {
	for bits, want := range map[byte]string{
		0x0c: "yuv420p",
		0x08: "yuv422p",
		0x00: "yuv444p",
		0x4c: "yuv420p10le",
		0x6c: "yuv420p12le",
		0x48: "yuv422p10le",
		0x1c: "gray",
		0x5c: "gray10le",
		0x7c: "gray12le",
	} {
		e := &video.SampleEntry{Codec: video.AV1, Extradata: []byte{0x81, 0, bits}}
		if got := pixelFormat(e, false); got != want {
			t.Errorf("%#x: %s, want %s", bits, got, want)
		}
	}
}
