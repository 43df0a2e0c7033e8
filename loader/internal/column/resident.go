package column

import (
	"math/bits"

	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// ResidentBytes returns what a sample that is still to be drawn takes of a pool, by declared sizes and lengths: its frames; where there are
// none, its numbers. With windows of T frames a frame stays until the last of T samples is drawn: at most T frames a sample, and at
// most the whole episode, which is ln(n) + γ times the samples that an episode of n has left on average (draws empty it like a
// collector of coupons).
//
// In integers: the order of a pool comes of it, and must be the same on every machine.
func ResidentBytes(src *DataSource, planar bool) int64 {
	var shown, rows int64
	mean := src.Table.Samples() / int64(max(src.Table.Filled(), 1))
	whole := 69*int64(bits.Len64(uint64(mean))) + 58 // hundredths
	for _, c := range src.Columns {
		switch k := c.Kind.(type) {
		case *ImageColumn:
			pixels := k.Height * k.Width * Channels(k.Spec.Pixel) * k.OutDType.Size() // augmented or not
			kept := int64(pixels)
			if !k.IsStill {
				kept = keptBytes(k, pixels, planar)
			}
			shown += min(100*int64(k.Steps), whole) * kept / 100
		case *TableColumn, *SpanColumn, *TimesColumn:
			rows += int64(c.RowBytes)
		}
	}
	if shown == 0 {
		return max(rows, 1)
	}
	return shown
}

// keptBytes returns what one kept frame of a column takes, by its declared size.
func keptBytes(c *ImageColumn, pixels int, planar bool) int64 {
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
