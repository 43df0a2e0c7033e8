package column

import (
	"math/bits"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// ResidentBytes returns the bytes of a pool that a sample occupies until it is drawn, by declared
// sizes and lengths. It counts only frames, which are far larger than numbers. Without frames it
// counts numbers. planar states whether the pool stores frames as planes.
//
// With windows of T frames, a frame stays until the last of T samples is drawn. A sample then
// occupies at most T frames. It also occupies at most the whole episode divided by the samples left
// in it. For an episode of n samples this is ln(n) + γ frames on average, where γ = 0.58 is Euler's
// constant, as in the coupon collector's problem.
//
// The arithmetic is in integers, because the order of a pool depends on it and must be equal on
// every machine.
func ResidentBytes(src *DataSource, planar bool) int64 {
	var frameBytes, numberBytes int64
	meanLength := src.Table.Samples() / int64(max(src.Table.Filled(), 1))
	// frames of a whole episode, in hundredths: ln(n) is about 0.69 times the number of bits of n
	episodeFrames := 69*int64(bits.Len64(uint64(meanLength))) + 58
	for _, c := range src.Columns {
		switch k := c.Kind.(type) {
		case *ImageColumn:
			rendered := k.Height * k.Width * Channels(k.Spec.Pixel) * k.OutDType.Size()
			stored := int64(rendered)
			if !k.IsStill {
				stored = storedFrameBytes(k, rendered, planar)
			}
			sampleFrames := min(100*int64(k.Steps), episodeFrames) // in hundredths
			frameBytes += sampleFrames * stored / 100
		case *VectorColumn:
			for _, in := range k.Inputs {
				numberBytes += int64(in.RowBytes)
			}
		case *TableColumn, *SpanColumn, *TimesColumn:
			numberBytes += int64(c.RowBytes)
		}
	}
	if frameBytes == 0 {
		return max(numberBytes, 1)
	}
	return frameBytes
}

// storedFrameBytes returns the bytes of one stored frame of a column, by its declared size. rendered
// is the size of its pixels. If planar is set, the store holds the planes of the video instead.
func storedFrameBytes(c *ImageColumn, rendered int, planar bool) int64 {
	if !planar {
		return frames.ArenaBytes(rendered)
	}
	w, h := int64(c.Width), int64(c.Height)
	if c.Feature.Width > 0 && c.Feature.Height > 0 {
		w, h = int64(c.Feature.Width), int64(c.Feature.Height)
	}
	if Channels(c.Spec.Pixel) == 3 {
		return frames.ArenaBytes(int(w*h*3+1) / 2) // YUV 4:2:0
	}
	return frames.ArenaBytes(int(2 * w * h)) // depth, 16 bits per pixel
}
