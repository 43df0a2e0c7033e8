package quality

import "math"

// jerkRMSMetric is the root mean square of the third derivative of the scaled channels, without
// grippers: (x[i] − 3x[i−1] + 3x[i−2] − x[i−3]) / period³. Known failure: quantised encoders look
// jerky at high rates.
var jerkRMSMetric = metric{
	Metric: Metric{
		Name: "jerk_rms", Group: GroupMotion, Unit: "range/s³", Worse: 1,
		Summary: "The root mean square of the jerk, each joint scaled by its range.",
		Source:  "Flash and Hogan, J. Neuroscience 5(7), 1985",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		n := float64(len(x.motion.columns) * (x.motion.rows() - 3))
		return math.Sqrt(squaredJerk(x.motion) / n)
	},
	rule: &rule{code: "jerky", spread: 2.6, share: 0.2, hint: hintLook},
}

// squaredJerk returns the sum of the squares of the jerk of all channels and rows.
func squaredJerk(s *signal) float64 {
	sum := 0.0
	for _, v := range s.columns {
		for i := 3; i < len(v); i++ {
			d := v[i] - v[i-3] - 3*(v[i-1]-v[i-2])
			sum += d * d
		}
	}
	return sum / math.Pow(s.period, 6)
}
