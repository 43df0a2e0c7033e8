package quality

import (
	"math"
	"math/bits"
)

// clippedActionsMetric is the share of rows in which a channel of the action has exactly the
// smallest or largest value of the episode, in runs of at least three rows with that value; the
// largest of all channels counts. Channels with fewer than 8 levels do not count. Known failure: a
// channel that rests at its extreme.
var clippedActionsMetric = metric{
	Metric: Metric{
		Name: "clipped_actions", Group: GroupConsistency, Unit: "share", Worse: 1,
		Summary: "The share of rows with the action at a plateau of its extreme values.",
		Source:  "robocache; as clipping detectors of audio do",
	},
	measure: func(x *recording) float64 {
		s := x.action
		if s.rows() < 3 || len(s.columns) == 0 {
			return math.NaN()
		}
		worst := 0
		for _, v := range s.columns {
			if countLevels(v) < 8 {
				continue
			}
			low, high := v[0], v[0]
			for _, y := range v {
				low, high = min(low, y), max(high, y)
			}
			count, length := 0, 1
			for i := 1; i <= len(v); i++ {
				if i < len(v) && v[i] == v[i-1] {
					length++
					continue
				}
				if length >= 3 && (v[i-1] == low || v[i-1] == high) {
					count += length
				}
				length = 1
			}
			worst = max(worst, count)
		}
		return float64(worst) / float64(s.rows())
	},
	rule: &rule{code: "clipped-actions", spread: 4.5, floor: 0.05, hint: hintLook},
}

// actionLevelsMetric is the number of different values of the channel of the action with fewest,
// divided by the number of rows. Channels that do not change do not count. Small values mean
// quantised actions. Known failure: channels that rest.
var actionLevelsMetric = metric{
	Metric: Metric{
		Name: "action_levels", Group: GroupConsistency, Unit: "share", Worse: -1,
		Summary: "The number of different values of an action channel, by rows; the worst one.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		s := x.action
		if s.rows() < 2 || len(s.columns) == 0 {
			return math.NaN()
		}
		fewest := math.NaN()
		slots := make([]uint64, 1<<bits.Len(uint(2*s.rows())))
		for _, v := range s.columns {
			if levels := countDistinct(v, slots); levels > 1 && !(fewest < float64(levels)) {
				fewest = float64(levels)
			}
		}
		return fewest / float64(s.rows())
	},
	rule: &rule{code: "quantised-actions", spread: 4.5, floor: 0.3, hint: hintLook},
}

// countDistinct returns the number of different values. slots is memory for at least twice as many
// values, a power of two.
func countDistinct(v []float64, slots []uint64) (count int) {
	clear(slots)
	mask := uint64(len(slots) - 1)
	for i, x := range v {
		if i > 0 && x == v[i-1] {
			continue
		}
		key := math.Float64bits(x) + 1 // 0 is an empty slot
		at := key * 0x9e3779b97f4a7c15 >> 20 & mask
		for slots[at] != 0 && slots[at] != key {
			at = (at + 1) & mask
		}
		if slots[at] == 0 {
			slots[at] = key
			count++
		}
	}
	return count
}
