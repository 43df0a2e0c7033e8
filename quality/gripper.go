package quality

import "math"

// A gripper is in the upper half of its range above 0.65, and in the lower half below 0.35. Between
// them it keeps its half, so that noise makes no events.
const (
	gripperLow  = 0.35
	gripperHigh = 0.65
)

// gripperEvent is a change of a gripper from one half of its range to the other.
type gripperEvent struct {
	second float64
	row    int
	isHigh bool
}

// eventsOf returns the events of one gripper.
func eventsOf(s *signal, column int) (events []gripperEvent) {
	v := s.columns[column]
	isHigh := v[0] > 0.5
	for i, x := range v {
		if isHigh && x < gripperLow || !isHigh && x > gripperHigh {
			isHigh = !isHigh
			events = append(events, gripperEvent{s.seconds[i], i, isHigh})
		}
	}
	return events
}

// countEvents returns the number of events of all grippers; NaN without a gripper.
func countEvents(s *signal) float64 {
	if s == nil || s.rows() == 0 {
		return math.NaN()
	}
	count := 0
	for c := range s.columns {
		count += len(eventsOf(s, c))
	}
	return float64(count)
}

// closesHigh reports whether high values of a gripper are closed: most episodes begin open. isKnown
// is false if the episodes of the dataset begin differently.
func (c *ChannelScale) closesHigh() (high, isKnown bool) {
	return c.StartsHigh < 0.5, math.Abs(c.StartsHigh-0.5) >= 0.1
}

// grippers returns the measured grippers, or the commanded ones if none is measured.
func (x *recording) grippers() *signal {
	if x.gripperState != nil {
		return x.gripperState
	}
	return x.gripperCommand
}
