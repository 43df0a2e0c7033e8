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
		return stillTime(x, func(head, _, _ run) run { return head })
	},
	isTimed: true,
	rule:    &rule{code: "idle-head", spread: 4, floor: 0.3, hint: hintTrim},
}

// idleTailMetric is the time for which the robot is still at the end.
var idleTailMetric = metric{
	Metric: Metric{
		Name: "idle_tail", Group: GroupMotion, Unit: "s", Worse: 1,
		Summary: "The time for which the robot is still at the end.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return stillTime(x, func(_, _, tail run) run { return tail })
	},
	isTimed: true,
	rule:    &rule{code: "idle-tail", spread: 4, floor: 0.3, hint: hintTrim},
}

// idleMiddleMetric is the longest time for which the robot is still between motions.
var idleMiddleMetric = metric{
	Metric: Metric{
		Name: "idle_middle", Group: GroupMotion, Unit: "s", Worse: 1,
		Summary: "The longest time for which the robot is still between motions.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return stillTime(x, func(_, middle, _ run) run { return middle })
	},
	isTimed: true,
	rule:    &rule{code: "pause", spread: 4, floor: 0.3, hint: hintTrim},
}

// stillRuns returns the rows of stillness at the start, the longest run in the middle, and those at
// the end. An episode that is still throughout has all of them at the start.
func stillRuns(x *recording) (head, middle, tail run) {
	for _, r := range runsOf(x.still) {
		switch {
		case r.from == 0:
			head = r
		case r.to == len(x.still):
			tail = r
		default:
			middle = longerRun(middle, r)
		}
	}
	return head, middle, tail
}

// stillTime returns the seconds of a run that choose selects from stillRuns, and marks it.
func stillTime(x *recording, choose func(head, middle, tail run) run) float64 {
	if x.motion == nil {
		return math.NaN()
	}
	r := choose(stillRuns(x))
	x.markRows(x.motion, r)
	return float64(r.to-r.from) * x.motion.period
}
