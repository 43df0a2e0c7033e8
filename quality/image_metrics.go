package quality

import (
	"math"
	"slices"
)

// imageMetrics are the metrics of frames, in the order of the columns.
var imageMetrics = []metric{
	blurMetric, noiseMetric, brightnessMetric, clippedMetric, blackMetric, frozenMetric,
	duplicatedMetric, jumpMetric, corruptedMetric, glitchedMetric, missingMetric, flickerMetric,
	castMetric, occlusionMetric,
}

// newFrameMeter returns an accumulator for one camera of one episode. frames is the expected number
// of frames.
func newFrameMeter(frames int) frameMeter { return newCameraMeter(frames) }

var nan = math.NaN()

// isSeen reports whether a frame was decoded.
func isSeen(f *frameFacts) bool { return !f.isBad && !f.isAbsent }

// meanOf returns the mean of a value over the frames that were decoded. NaN values are left out.
func meanOf(frames []frameFacts, value func(f *frameFacts) float64) float64 {
	sum, n := 0.0, 0.0
	for i := range frames {
		if !isSeen(&frames[i]) {
			continue
		}
		if v := value(&frames[i]); v == v {
			sum += v
			n++
		}
	}
	return ratio(sum, n)
}

// ratio returns a ÷ b, or NaN if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return nan
	}
	return a / b
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// medianAndSpread returns the median and 1.4826 × the median absolute deviation of the values that
// are finite. Both are NaN if there are none.
func medianAndSpread(values []float64) (median, spread float64) {
	finite := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v-v != 0 })
	if len(finite) == 0 {
		return nan, nan
	}
	median = medianOf(finite)
	for i, v := range finite {
		finite[i] = math.Abs(v - median)
	}
	return median, 1.4826 * medianOf(finite)
}
