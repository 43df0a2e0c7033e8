package column

import (
	"math/bits"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// ResidentBytes returns the bytes of a pool that a sample occupies until it is drawn, by declared
// sizes and lengths. It counts frames, or numbers if there are no frames.
//
// With windows of T frames, a frame stays until the last of T samples is drawn. A sample then
// occupies at most T frames. It also occupies at most the whole episode divided by the samples left
// in it, which is ln(n) + γ frames on average for n samples, as in the coupon collector's problem.
//
// The arithmetic is in integers, because the order of a pool depends on it and must be equal on
// every machine.
func ResidentBytes(src *DataSource, planar bool) int64 {
	var shown, rows int64
	mean := src.Table.Samples() / int64(max(src.Table.Filled(), 1))
	whole := 69*int64(bits.Len64(uint64(mean))) + 58 // 100 · (ln(n) + γ)
	for _, c := range src.Columns {
		switch k := c.Kind.(type) {
		case *ImageColumn:
			// augmented or not
			pixels := k.Height * k.Width * Channels(k.Spec.Pixel) * k.OutDType.Size()
			kept := int64(pixels)
			if !k.IsStill {
				kept = keptFrameBytes(k, pixels, planar)
			}
			shown += min(100*int64(k.Steps), whole) * kept / 100
		case *VectorColumn:
			for _, in := range k.Inputs {
				rows += int64(in.RowBytes)
			}
		case *TableColumn, *SpanColumn, *TimesColumn:
			rows += int64(c.RowBytes)
		}
	}
	if shown == 0 {
		return max(rows, 1)
	}
	return shown
}

// keptFrameBytes returns the bytes of one stored frame of a column, by its declared size.
func keptFrameBytes(c *ImageColumn, pixels int, planar bool) int64 {
	if !planar {
		return frames.ArenaBytes(pixels)
	}
	w, h := int64(c.Width), int64(c.Height)
	if c.Feature.Width > 0 && c.Feature.Height > 0 {
		w, h = int64(c.Feature.Width), int64(c.Feature.Height)
	}
	if Channels(c.Spec.Pixel) == 3 {
		return frames.ArenaBytes(int(w*h*3+1) / 2)
	}
	return frames.ArenaBytes(int(2 * w * h))
}
