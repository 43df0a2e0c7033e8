package inspect

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// stillTile decodes a still image as RGB; depth is shown in grey, near is bright, no measurement black.
func stillTile(ref *robocache.FrameRef, spec *video.Spec, rgb []byte) (err error) {
	defer guard.Into(&err)
	info := guard.Must(video.ImageSize(ref))
	if info.DType == robocache.Uint8 {
		return video.DecodeImage(ref, spec, rgb)
	}
	deep := video.Spec{Width: spec.Width, Height: spec.Height, Pixel: video.DepthMM}
	raw := make([]byte, len(rgb)/3*4)
	guard.Check(video.DecodeImage(ref, &deep, raw))
	at := func(i int) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))) }
	measured := func(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
	near, far := math.Inf(1), math.Inf(-1)
	for i := range len(raw) / 4 {
		if v := at(i); measured(v) {
			near, far = min(near, v), max(far, v)
		}
	}
	for i := range len(raw) / 4 {
		var g byte
		if v := at(i); measured(v) {
			g = 255
			if far > near {
				g = byte(255 - 215*(v-near)/(far-near))
			}
		}
		rgb[3*i], rgb[3*i+1], rgb[3*i+2] = g, g, g
	}
	return nil
}
