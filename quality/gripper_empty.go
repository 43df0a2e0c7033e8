package quality

import (
	"math"
	"slices"
)

// emptyWidth is the distance from the fully closed gripper, in ranges, at which nothing is held.
const emptyWidth = 0.03

// gripperEmptyMetric is the share of the closings of a measured gripper that end fully closed, with
// nothing between the fingers. Known failure: thin objects, and grippers that measure their
// command. It is NaN unless the gripper has several measured positions.
var gripperEmptyMetric = metric{
	Metric: Metric{
		Name: "gripper_empty", Group: GroupGripper, Unit: "share", Worse: 1,
		Summary:  "The share of closings that end fully closed: the gripper holds nothing.",
		Source:   "robocache",
		Inferred: true,
	},
	measure: func(x *recording) float64 {
		s := x.gripperState
		if s.rows() == 0 {
			return math.NaN()
		}
		closings, empty := 0, 0
		for c, v := range s.columns {
			high, known := s.scales[c].closesHigh()
			if !known || countLevels(v) < 5 {
				continue
			}
			full := (s.scales[c].Min - s.scales[c].Low) / s.scales[c].width()
			if high {
				full = (s.scales[c].Max - s.scales[c].Low) / s.scales[c].width()
			}
			events := eventsOf(s, c)
			for i, e := range events {
				if e.isHigh != high {
					continue
				}
				end := len(v)
				if i+1 < len(events) {
					end = events[i+1].row
				}
				closest := math.Inf(1)
				for _, y := range v[e.row:end] {
					closest = min(closest, math.Abs(y-full))
				}
				closings++
				if closest < emptyWidth {
					empty++
				}
			}
		}
		if closings == 0 {
			return math.NaN()
		}
		return float64(empty) / float64(closings)
	},
	rule: &rule{code: "gripper-empty", spread: 4.5, floor: 0.6, hint: hintLook},
}

// maxLevels is the number of levels up to which countLevels counts.
const maxLevels = 16

// countLevels returns the number of different values, at most maxLevels.
func countLevels(v []float64) int {
	var seen [maxLevels]float64
	count := 0
	for i, x := range v {
		if i > 0 && x == v[i-1] || slices.Contains(seen[:count], x) {
			continue
		}
		seen[count] = x
		if count++; count == maxLevels {
			break
		}
	}
	return count
}
