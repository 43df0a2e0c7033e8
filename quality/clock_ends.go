package quality

import "math"

// lateStartMetric is the time from the first timestamp of the earliest stream to the one of the
// latest. Known failure: streams that are published on demand.
var lateStartMetric = metric{
	Metric: Metric{
		Name: "late_start", Group: GroupClocks, Unit: "s", Worse: 1,
		Summary: "The time by which the last stream begins after the first.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return x.endSpread(func(times []int64) int64 { return times[0] })
	},
	isTimed: true,
	rule:    &rule{code: "late-start", spread: 4.5, floor: 0.1, share: 0.5, hint: hintClock},
}

// earlyEndMetric is the time from the last timestamp of the earliest stream to the one of the
// latest.
var earlyEndMetric = metric{
	Metric: Metric{
		Name: "early_end", Group: GroupClocks, Unit: "s", Worse: 1,
		Summary: "The time by which the first stream ends before the last.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return x.endSpread(func(times []int64) int64 { return times[len(times)-1] })
	},
	isTimed: true,
	rule:    &rule{code: "early-end", spread: 4.5, floor: 0.1, share: 0.5, hint: hintClock},
}

// endSpread returns the seconds between the smallest and the largest value of end over all clocks
// with a rate, and marks the time between them; NaN for fewer than two clocks.
func (x *recording) endSpread(end func(times []int64) int64) float64 {
	low, high, count := int64(math.MaxInt64), int64(math.MinInt64), 0
	for i := range x.clocks {
		if c := &x.clocks[i]; c.hasRate && len(c.times) > 0 {
			t := end(c.times)
			low, high, count = min(low, t), max(high, t), count+1
		}
	}
	if count < 2 {
		return math.NaN()
	}
	if high > low {
		x.span = x.spanOf(low, high)
	}
	return float64(high-low) / 1e9
}
