package quality

import "math"

// limitWidth is the distance from the limit of a channel, in ranges, within which it is saturated.
const limitWidth = 1e-3

// saturationMetric is the share of rows in which a channel of the action is at the smallest or
// largest value of the dataset's sample; the largest of all channels counts. Known failure: a
// channel with few levels, such as a mode, is always at a limit.
var saturationMetric = metric{
	Metric: Metric{
		Name: "saturation", Group: GroupConsistency, Unit: "share", Worse: 1,
		Summary: "The share of rows with the action at the limit of a channel; the worst one.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		s := x.action
		if s.rows() == 0 || len(s.columns) == 0 {
			return math.NaN()
		}
		worst := 0
		for c, v := range s.columns {
			low, high := s.scales[c].limits()
			count := 0
			for _, y := range v {
				if y <= low+limitWidth || y >= high-limitWidth {
					count++
				}
			}
			worst = max(worst, count)
		}
		return float64(worst) / float64(s.rows())
	},
	rule: &rule{code: "saturated", spread: 4.5, floor: 0.3, hint: hintLook},
}

// limits returns the scaled smallest and largest value.
func (c *ChannelScale) limits() (low, high float64) {
	return (c.Min - c.Low) / c.width(), (c.Max - c.Low) / c.width()
}
