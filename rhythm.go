package robocache

import "slices"

// Period returns the median step in ns between consecutive timestamps that ascend. It returns 0 if
// there are fewer than two such steps.
func Period(times []int64) int64 {
	var steps []int64
	for i := 1; i < len(times); i++ {
		if d := times[i] - times[i-1]; d > 0 {
			steps = append(steps, d)
		}
	}
	if len(steps) < 2 {
		return 0
	}
	slices.Sort(steps)
	return steps[len(steps)/2]
}

// shortestGap is the shortest gap in ns. Bursts of messages have periods of microseconds, for which
// three periods are no gap.
const shortestGap = 2_000_000

// LongestStep returns the longest step in ns between timestamps that is no gap: three periods, but
// at least 2 ms. It returns 0 if the timestamps have no period.
func LongestStep(times []int64) int64 {
	step := Period(times)
	if step == 0 {
		return 0
	}
	return max(3*step, shortestGap)
}
