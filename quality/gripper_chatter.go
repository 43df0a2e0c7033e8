package quality

import "math"

// chatterTime is the time in seconds in which two events of one gripper count as chatter.
const chatterTime = 0.2

// gripperChatterMetric is the number of events of a gripper that follow another within 0.2 s.
var gripperChatterMetric = metric{
	Metric: Metric{
		Name: "gripper_chatter", Group: GroupGripper, Unit: "count", Worse: 1,
		Summary: "The number of gripper events that follow another within 0.2 s.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		most := math.NaN()
		for _, s := range []*signal{x.gripperState, x.gripperCommand} {
			if s == nil || s.rows() == 0 {
				continue
			}
			count := 0
			part := span{math.Inf(1), math.Inf(-1)}
			for c := range s.columns {
				events := eventsOf(s, c)
				for i := 1; i < len(events); i++ {
					if events[i].second-events[i-1].second <= chatterTime {
						count++
						part.from = min(part.from, events[i-1].second)
						part.to = max(part.to, events[i].second)
					}
				}
			}
			if !(most > float64(count)) {
				most = float64(count)
				if count > 0 {
					x.span = part
				}
			}
		}
		return most
	},
	isTimed: true,
	rule:    &rule{code: "gripper-chatter", spread: 4.5, floor: 0.5, hint: hintLook},
}
