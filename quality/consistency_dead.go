package quality

import "math"

// deadChannelsMetric is the number of channels of state, action and grippers that change in the
// dataset, but not in the episode. Known failure: an arm that a task does not use.
var deadChannelsMetric = metric{
	Metric: Metric{
		Name: "dead_channels", Group: GroupConsistency, Unit: "count", Worse: 1,
		Summary: "The number of channels that change in the dataset, but not in the episode.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		count, isKnown := 0, false
		for _, s := range []*signal{x.state, x.action} {
			if s.rows() > 1 {
				count, isKnown = count+s.dead, true
			}
		}
		if !isKnown {
			return math.NaN()
		}
		return float64(count)
	},
	rule: &rule{code: "dead-channels", spread: 4.5, floor: 0.5, hint: hintLook},
}
