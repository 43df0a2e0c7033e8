package quality

import "math"

// pathLengthMetric is the sum of the Euclidean lengths of the steps between rows. Known failure:
// noise adds to the length.
var pathLengthMetric = metric{
	Metric: Metric{
		Name: "path_length", Group: GroupMotion, Unit: "range",
		Summary: "The length of the path of the state, in ranges of its channels.",
		Source:  "Balasubramanian et al., IEEE T-BME 59(8), 2012",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil {
			return math.NaN()
		}
		return lengthOfPath(x.motion, x.speed)
	},
	rule: &rule{code: "path-length", spread: 3.5, share: 0.25, hint: hintLook},
}

// lengthOfPath returns the length of the path from the speeds of the rows.
func lengthOfPath(s *signal, speed []float64) float64 {
	sum := 0.0
	for i := 1; i < len(speed); i++ {
		sum += speed[i] * s.step(i)
	}
	return sum
}
