package quality

import "math"

// gripperTravelMetric is the largest part of its range through which a gripper moves.
var gripperTravelMetric = metric{
	Metric: Metric{
		Name: "gripper_travel", Group: GroupGripper, Unit: "range", Worse: -1,
		Summary: "The part of its range through which the gripper moves.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		s := x.grippers()
		if s.rows() == 0 || len(s.columns) == 0 {
			return math.NaN()
		}
		most := 0.0
		for _, v := range s.columns {
			low, high := v[0], v[0]
			for _, y := range v {
				low, high = min(low, y), max(high, y)
			}
			most = max(most, high-low)
		}
		return most
	},
}

// gripperClosedMetric is the share of rows in which a gripper is closed. The closed side is the one
// in which fewer episodes begin. Known failure: it is reversed if most episodes begin closed.
var gripperClosedMetric = metric{
	Metric: Metric{
		Name: "gripper_closed", Group: GroupGripper, Unit: "share",
		Summary:  "The share of rows in which a gripper is closed.",
		Source:   "robocache",
		Inferred: true,
	},
	measure: func(x *recording) float64 { return closedShare(x.grippers()) },
}

// gripperNeverClosesMetric is 1 if no gripper is closed in any row, else 0. The commanded grippers
// count too: an episode whose command never closes has 1 as well.
var gripperNeverClosesMetric = metric{
	Metric: Metric{
		Name: "gripper_never_closes", Group: GroupGripper, Worse: 1,
		Summary:  "1 if no gripper closes in the episode, else 0.",
		Source:   "robocache",
		Inferred: true,
	},
	measure: func(x *recording) float64 {
		result := math.NaN()
		for _, s := range []*signal{x.gripperState, x.gripperCommand} {
			if share := closedShare(s); share == 0 {
				return 1
			} else if share > 0 {
				result = 0
			}
		}
		return result
	},
	rule: &rule{code: "gripper-never-closes", spread: 3, floor: 0.5, hint: hintLook},
}

// closedShare returns the share of rows in which one of the grippers is closed. It is NaN without a
// gripper whose closed side is known.
func closedShare(s *signal) float64 {
	if s.rows() == 0 {
		return math.NaN()
	}
	closed := make([]bool, s.rows())
	isKnown := false
	for c, v := range s.columns {
		high, known := s.scales[c].closesHigh()
		isKnown = isKnown || known
		for i := range v {
			closed[i] = closed[i] ||
				known && (high && v[i] > gripperHigh || !high && v[i] < gripperLow)
		}
	}
	if !isKnown {
		return math.NaN()
	}
	count := 0
	for _, c := range closed {
		if c {
			count++
		}
	}
	return float64(count) / float64(len(closed))
}
