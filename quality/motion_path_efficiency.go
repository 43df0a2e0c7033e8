package quality

import "math"

// pathEfficiencyMetric is the distance from the first to the last row divided by the length of the
// path. Known failure: a task that ends where it began has an efficiency of 0.
var pathEfficiencyMetric = metric{
	Metric: Metric{
		Name: "path_efficiency", Group: GroupMotion, Unit: "share", Worse: -1,
		Summary: "The straight distance from start to end, divided by the path length.",
		Source:  "Balasubramanian et al., IEEE T-BME 59(8), 2012",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil {
			return math.NaN()
		}
		length := lengthOfPath(x.motion, x.speed)
		if length <= 0 {
			return math.NaN()
		}
		sum := 0.0
		for _, v := range x.motion.columns {
			d := v[len(v)-1] - v[0]
			sum += d * d
		}
		return math.Sqrt(sum) / length
	},
}
