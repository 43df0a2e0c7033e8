package quality

import "math"

// rateMetric is the rate of the rows of the state, or of the first clock: 1 / median step. Known
// failure: with bursts of messages the median step is not the mean.
var rateMetric = metric{
	Metric: Metric{
		Name: "rate_hz", Group: GroupClocks, Unit: "Hz",
		Summary: "The rate of the state, or of the first stream with a clock.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		if x.motion != nil {
			return 1 / x.motion.period
		}
		for i := range x.clocks {
			if _, median, ok := x.clocks[i].stepsOf(); ok {
				return 1e9 / float64(median)
			}
		}
		return math.NaN()
	},
	rule: &rule{code: "rate", spread: 4.5, share: 0.05, hint: hintClock},
}
