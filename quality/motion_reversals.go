package quality

import "math"

// reversalRange is the distance that a channel moves back before its direction counts as reversed.
const reversalRange = 0.02

// reversalsMetric is the number of changes of direction per second, the mean of all channels. A
// change counts when the channel has moved back by 0.02 ranges. Known failure: periodic tasks, such
// as wiping, have many.
var reversalsMetric = metric{
	Metric: Metric{
		Name: "reversals", Group: GroupMotion, Unit: "1/s", Worse: 1,
		Summary: "Changes of direction per second and channel.",
		Source:  "robocache; zigzag with a threshold",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil {
			return math.NaN()
		}
		s := x.motion
		time := s.seconds[len(s.seconds)-1] - s.seconds[0]
		if time <= 0 {
			return math.NaN()
		}
		count := 0
		for _, v := range s.columns {
			count += countReversals(v, reversalRange)
		}
		return float64(count) / float64(len(s.columns)) / time
	},
	rule: &rule{code: "reversals", spread: 4.5, floor: 0.5, share: 0.3, hint: hintLook},
}

// countReversals counts the extremes of v from which it moves back by at least distance.
func countReversals(v []float64, distance float64) (count int) {
	extreme, direction := v[0], 0
	for _, y := range v {
		switch {
		case direction >= 0 && y > extreme, direction <= 0 && y < extreme:
			if direction == 0 && math.Abs(y-extreme) >= distance {
				direction = sign(y - extreme)
			}
			if direction != 0 {
				extreme = y
			}
		case direction > 0 && extreme-y >= distance, direction < 0 && y-extreme >= distance:
			direction, extreme = -direction, y
			count++
		}
	}
	return count
}

func sign(v float64) int {
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	}
	return 0
}
