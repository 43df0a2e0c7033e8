package quality

// jitterMetric is the 95th percentile of |step − median step| / median step, the largest of all
// clocks. Known failure: a stream of events has no rate.
var jitterMetric = metric{
	Metric: Metric{
		Name:    "jitter",
		Group:   GroupClocks,
		Unit:    "share",
		Worse:   1,
		Summary: "The 95th percentile of the deviation of the steps of the worst clock.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return x.largestOf(func(steps []int64, median int64) float64 {
			deviation := make([]float64, len(steps))
			for i, s := range steps {
				deviation[i] = float64(max(s-median, median-s)) / float64(median)
			}
			return quickQuantile(deviation, 0.95)
		})
	},
	rule: &rule{code: "jitter", spread: 4.5, floor: 0.1, share: 0.5, hint: hintClock},
}
