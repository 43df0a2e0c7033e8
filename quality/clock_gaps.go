package quality

// gapsMetric is the number of samples that are missing in all clocks: of each step above 1.5 median
// steps, the step divided by the median, rounded, minus 1. Known failure: variable rates.
var gapsMetric = metric{
	Metric: Metric{
		Name: "gaps", Group: GroupClocks, Unit: "count", Worse: 1,
		Summary: "The number of samples that are missing between timestamps.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		x.markStep(func(step, median int64) int64 {
			if 2*step > 3*median {
				return step
			}
			return 0
		})
		return x.sumOf(func(steps []int64, median int64) float64 {
			missing := int64(0)
			for _, s := range steps {
				if 2*s > 3*median {
					missing += (s+median/2)/median - 1
				}
			}
			return float64(missing)
		})
	},
	isTimed: true,
	rule:    &rule{code: "gap", spread: 4.5, floor: 0.5, share: 0.5, hint: hintClock},
}

// longestGapMetric is the longest step between timestamps of a clock.
var longestGapMetric = metric{
	Metric: Metric{
		Name: "longest_gap", Group: GroupClocks, Unit: "s", Worse: 1,
		Summary: "The longest step between timestamps; the worst clock.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return x.largestOf(func(steps []int64, _ int64) float64 {
			most := int64(0)
			for _, s := range steps {
				most = max(most, s)
			}
			return float64(most) / 1e9
		})
	},
}

// duplicatedTimesMetric is the number of timestamps that equal the one before, in all clocks.
var duplicatedTimesMetric = metric{
	Metric: Metric{
		Name: "duplicated_times", Group: GroupClocks, Unit: "count", Worse: 1,
		Summary: "The number of timestamps that equal the one before.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		x.markStep(func(step, _ int64) int64 {
			if step == 0 {
				return 1
			}
			return 0
		})
		return x.countSteps(func(step int64) bool { return step == 0 })
	},
	isTimed: true,
	rule:    &rule{code: "duplicated-timestamps", spread: 4.5, floor: 0.5, hint: hintClock},
}

// backwardTimesMetric is the number of timestamps before the one before, in all clocks.
var backwardTimesMetric = metric{
	Metric: Metric{
		Name: "backward_times", Group: GroupClocks, Unit: "count", Worse: 1,
		Summary: "The number of timestamps that are earlier than the one before.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		x.markStep(func(step, _ int64) int64 { return max(0, -step) })
		return x.countSteps(func(step int64) bool { return step < 0 })
	},
	isTimed: true,
	rule:    &rule{code: "backward-timestamps", spread: 4.5, floor: 0.5, hint: hintClock},
}
