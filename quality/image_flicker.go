package quality

import "math"

// flickerMetric is the RMS of the second difference of the light over time, divided by √6, minus
// the median of the camera over the set. The change of light is the median change of 8 × 6 blocks.
// Unit: levels; white noise of the light gives its standard deviation. Source: Delon 2006. Black
// frames are left out. Known failure: a motion of most of the image.
var flickerMetric = metric{
	Metric: Metric{
		Name: "flicker", Group: GroupImages, Unit: "levels", Worse: 1,
		Summary: "How much the brightness alternates from frame to frame.",
		Source:  "Delon 2006",
	},
	rule: &rule{code: "flicker", spread: 3, floor: 0.1, hint: hintLook},
}

// flicker returns the RMS of the change of the change of light.
func flicker(frames []frameFacts) float64 {
	sum, n := 0.0, 0.0
	for i := 1; i+1 < len(frames); i++ {
		a, b, c := &frames[i-1], &frames[i], &frames[i+1]
		if !isSeen(a) || !isSeen(b) || !isSeen(c) || isBlack(a) || isBlack(b) || isBlack(c) {
			continue
		}
		if d := float64(c.light) - float64(b.light); d == d {
			sum += d * d
			n++
		}
	}
	return math.Sqrt(ratio(sum, 6*n))
}
