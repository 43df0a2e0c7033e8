package quality

import "math"

// notFiniteMetric is the share of values of state, action, grippers and forces that are NaN,
// infinite or masked. Other metrics use the value before in their place.
var notFiniteMetric = metric{
	Metric: Metric{
		Name: "not_finite", Group: GroupConsistency, Unit: "share", Worse: 1,
		Summary: "The share of values that are NaN, infinite or missing.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		if x.values == 0 {
			return math.NaN()
		}
		return float64(x.notFinite) / float64(x.values)
	},
	rule: &rule{code: "not-finite", spread: 4.5, floor: 1e-9, hint: hintLook},
}
