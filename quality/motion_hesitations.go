package quality

import "math"

// hesitationTime is the shortest rest between motions that counts as a hesitation, in seconds.
const hesitationTime = 0.3

// hesitationsMetric is the number of times that the robot rests for at least 0.3 s between motions.
// Known failure: waiting for a gripper counts if the gripper is not known.
var hesitationsMetric = metric{
	Metric: Metric{
		Name: "hesitations", Group: GroupMotion, Unit: "count", Worse: 1,
		Summary: "The number of rests of at least 0.3 s between motions.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil {
			return math.NaN()
		}
		count := 0
		for _, r := range runsOf(x.still) {
			long := float64(r.to-r.from)*x.motion.period >= hesitationTime
			if long && r.from > 0 && r.to < len(x.still) {
				count++
			}
		}
		return float64(count)
	},
}
