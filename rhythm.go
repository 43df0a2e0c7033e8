package robocache

import "slices"

// Period is the rhythm of a stream: the median step between ascending timestamps that differ, in
// ns; 0 where there are fewer than three.
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

// shortestGap: bursts of messages have "periods" of microseconds, and no gaps worth a word.
const shortestGap = 2_000_000

// LongestStep is the longest step between timestamps that is no gap: three periods, and 2 ms at
// least; 0 where the stream has no rhythm.
func LongestStep(times []int64) int64 {
	step := Period(times)
	if step == 0 {
		return 0
	}
	return max(3*step, shortestGap)
}
