package quality

import (
	"math"
	"slices"
)

// jumpMetric is the largest log2 ratio of the share of points that a frame changes and the median
// share of the 8 frames around it. Unit: octaves. Source: none. Known failure: sudden motion and
// light.
var jumpMetric = metric{
	Metric: Metric{
		Name:     "frame_jump",
		Group:    GroupImages,
		Unit:     "octaves",
		Worse:    1,
		Summary:  "Largest jump of the image against the frames around it: dropped frames.",
		Source:   "ratio to the local median",
		Inferred: true,
	},
	isTimed: true,
	rule:    &rule{code: "frame-jump", spread: 6, floor: 0.7, hint: hintLook},
}

// frameJump returns the largest jump, at least 0, and its frame; -1 for none. Fewer than 5 frames
// have none.
func frameJump(frames []frameFacts) (largest float64, at int) {
	if len(frames) < 5 {
		return nan, -1
	}
	at = -1
	for i := range frames {
		base := localMedian(frames, i, i, func(f *frameFacts) float32 { return f.changed })
		const floor = 0.008 // of the points
		if v := math.Log2((float64(frames[i].changed) + floor) / (base + floor)); v > largest {
			largest, at = v, i
		}
	}
	return largest, at
}

// localMedian returns the median of a value of the 4 frames before from and the 4 after to. It is NaN
// if fewer than 4 are known.
func localMedian(frames []frameFacts, from, to int, value func(f *frameFacts) float32) float64 {
	var near [8]float32
	n := 0
	for i := max(from-4, 0); i <= min(to+4, len(frames)-1); i++ {
		if v := value(&frames[i]); (i < from || i > to) && v == v {
			near[n] = v
			n++
		}
	}
	if n < 4 {
		return nan
	}
	slices.Sort(near[:n])
	return float64(near[n/2])
}
