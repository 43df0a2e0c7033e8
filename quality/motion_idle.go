package quality

import "math"

// idleMetric is the share of rows in which the robot is still: no channel moves faster than 0.02
// ranges per second over 0.2 s, and no gripper moves. Known failure: a slow precise motion counts
// as rest.
var idleMetric = metric{
	Metric: Metric{
		Name: "idle", Group: GroupMotion, Unit: "share", Worse: 1,
		Summary: "The share of rows in which the robot is still.",
		Source:  "robocache; as lerobot's issues on trimming",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil {
			return math.NaN()
		}
		count := 0
		for _, still := range x.still {
			if still {
				count++
			}
		}
		return float64(count) / float64(len(x.still))
	},
	rule: &rule{code: "idle", spread: 4, floor: 0.1, hint: hintTrim},
}

// idleHeadMetric is the time for which the robot is still at the start.
var idleHeadMetric = metric{
	Metric: Metric{
		Name: "idle_head", Group: GroupMotion, Unit: "s", Worse: 1,
		Summary: "The time for which the robot is still at the start.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		head, _, _ := stillTimes(x)
		return head
	},
	rule: &rule{code: "idle-head", spread: 4, floor: 0.3, hint: hintTrim},
}

// idleTailMetric is the time for which the robot is still at the end.
var idleTailMetric = metric{
	Metric: Metric{
		Name: "idle_tail", Group: GroupMotion, Unit: "s", Worse: 1,
		Summary: "The time for which the robot is still at the end.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		_, _, tail := stillTimes(x)
		return tail
	},
	rule: &rule{code: "idle-tail", spread: 4, floor: 0.3, hint: hintTrim},
}

// idleMiddleMetric is the longest time for which the robot is still between motions.
var idleMiddleMetric = metric{
	Metric: Metric{
		Name: "idle_middle", Group: GroupMotion, Unit: "s", Worse: 1,
		Summary: "The longest time for which the robot is still between motions.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		_, middle, _ := stillTimes(x)
		return middle
	},
	rule: &rule{code: "pause", spread: 4, floor: 0.3, hint: hintTrim},
}

// stillTimes returns the seconds of stillness at the start, the longest in the middle, and at the
// end. An episode that is still throughout has all of them at the start.
func stillTimes(x *recording) (head, middle, tail float64) {
	if x.motion == nil {
		nan := math.NaN()
		return nan, nan, nan
	}
	for _, r := range runsOf(x.still) {
		time := float64(r.to-r.from) * x.motion.period
		switch {
		case r.from == 0:
			head = time
		case r.to == len(x.still):
			tail = time
		default:
			middle = max(middle, time)
		}
	}
	return head, middle, tail
}
