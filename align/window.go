package align

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Offsets converts offsets in seconds to row offsets by lerobot's rule (align.A11). The error names
// every offset that is not a multiple of 1/fps within the tolerance (in seconds).
func Offsets(deltas []float64, fps robocache.Rate, tolerance float64) ([]int, error) {
	if fps.Num <= 0 || fps.Den <= 0 {
		return nil, robocache.Misuse("windows", nil, "").Expected("a dataset with a rate", "none")
	}
	f := fps.Float()
	out := make([]int, len(deltas))
	var bad []string
	for i, d := range deltas {
		// The conversion prevents the product from being fused into the subtraction, because Python
		// rounds the product first.
		x := float64(d * f)
		n := math.RoundToEven(x)
		if !(math.Abs(x-n)/f <= tolerance) || math.Abs(n) > math.MaxInt32 {
			bad = append(bad, fmt.Sprint(d))
			continue
		}
		out[i] = int(n)
	}
	if bad != nil {
		return nil, robocache.Misuse(
			"windows",
			nil,
			"delta_timestamps outside the tolerance range",
		).
			Expected(
				fmt.Sprintf("multiples of 1/%v s ± %v s", fps, tolerance),
				strings.Join(bad, ", "),
			).
			WithHint(
				"give multiples of the frame period, or windows on a timeline (%s), which need "+
					"none",
				robocache.Option("hz"),
			)
	}
	return out, nil
}

// Clamp returns the row at offset n from row i in an episode of length rows. If that row is outside
// the episode, it returns the edge row and pad is true.
func Clamp(i, n, length int) (row int, pad bool) {
	r := i + n
	if r < 0 || length <= 0 {
		return 0, true
	}
	if r >= length {
		return length - 1, true
	}
	return r, false
}

// Span returns the native samples in the window [t+from, t+to], as a half-open range of indices.
func Span(src []int64, t, from, to int64) (lo, hi int) {
	lo, _ = slices.BinarySearch(src, t+from)
	hi, _ = slices.BinarySearch(src, t+to+1)
	return lo, max(lo, hi)
}

// nearestHint suggests known names that are similar to name.
func nearestHint(name string, known []string) string {
	best, at := len(name)/2+2, ""
	for _, k := range known {
		if d := robocache.EditDistance(name, k); d < best {
			best, at = d, k
		}
	}
	if at != "" {
		return "did you mean " + at + "? known: " + strings.Join(known, ", ")
	}
	return "known: " + strings.Join(known, ", ")
}
