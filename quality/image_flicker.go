package quality

import "math"

// flickerMetric is the RMS of the second difference of the mean level over time, divided by √6,
// minus the median of the camera over the set. Unit: levels; white noise of the brightness gives
// its standard deviation. Source: the flicker measures of the deflickering literature (Delon 2006).
// Black frames are left out. Known failure: fast motion of large surfaces.
var flickerMetric = metric{
	Metric: Metric{
		Name: "flicker", Group: GroupImages, Unit: "levels", Worse: 1,
		Summary: "How much the brightness alternates from frame to frame.",
		Source:  "Delon 2006",
	},
	rule: &rule{code: "flicker", spread: 6, floor: 0.5, hint: hintLook},
}

// flicker returns the RMS of the second difference of the brightness.
func flicker(frames []frameFacts) float64 {
	sum, n := 0.0, 0.0
	for i := 1; i+1 < len(frames); i++ {
		a, b, c := &frames[i-1], &frames[i], &frames[i+1]
		if !isSeen(a) || !isSeen(b) || !isSeen(c) || isBlack(a) || isBlack(b) || isBlack(c) {
			continue
		}
		d := float64(a.mean) - 2*float64(b.mean) + float64(c.mean)
		sum += d * d
		n++
	}
	return math.Sqrt(ratio(sum, 6*n))
}
