package quality

import "math"

// speedMedianMetric is the median speed of the rows in which the robot moves. Known failure: a slow
// drift below 0.02 ranges per second counts as rest.
var speedMedianMetric = metric{
	Metric: Metric{
		Name: "speed_p50", Group: GroupMotion, Unit: "range/s",
		Summary: "The median speed while the robot moves.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 { return speedQuantile(x, 0.5) },
}

// speedHighMetric is the 95th percentile of the speed of the rows in which the robot moves.
var speedHighMetric = metric{
	Metric: Metric{
		Name: "speed_p95", Group: GroupMotion, Unit: "range/s", Worse: 1,
		Summary: "The 95th percentile of the speed while the robot moves.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 { return speedQuantile(x, 0.95) },
}

// speedQuantile returns a quantile of the speed of the rows that are not still.
func speedQuantile(x *recording, q float64) float64 {
	if x.motion == nil {
		return math.NaN()
	}
	moving := x.buffer(len(x.speed))[:0]
	for i := 1; i < len(x.speed); i++ {
		if !x.still[i] {
			moving = append(moving, x.speed[i])
		}
	}
	if len(moving) == 0 {
		return math.NaN()
	}
	return quickQuantile(moving, q)
}
