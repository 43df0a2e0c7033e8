package quality

import "math"

// frozenStateMetric is the longest time for which every channel of the state has exactly the same
// value while the action changes. Without an action, it counts all such times. Known failure:
// simulators without noise at rest.
var frozenStateMetric = metric{
	Metric: Metric{
		Name: "frozen_state", Group: GroupConsistency, Unit: "s", Worse: 1,
		Summary: "The longest time with an unchanged state while the action changes.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		s := x.state
		if s.rows() < 2 || len(s.columns) == 0 || s.period <= 0 {
			return math.NaN()
		}
		same := sameAsBefore(s.columns, s.rows())
		if x.action.rows() == s.rows() && len(x.action.columns) > 0 {
			for i, rests := range sameAsBefore(x.action.columns, s.rows()) {
				same[i] = same[i] && !rests
			}
		}
		var longest run
		for _, r := range runsOf(same) {
			longest = longerRun(longest, r)
		}
		x.markRows(s, longest)
		return float64(longest.to-longest.from) * s.period
	},
	isTimed: true,
	rule:    &rule{code: "frozen-state", spread: 4.5, floor: 0.1, rows: 3.5, hint: hintLook},
}

// sameAsBefore reports for each row whether all columns have the value of the row before.
func sameAsBefore(columns [][]float64, rows int) []bool {
	same := make([]bool, rows)
	for i := 1; i < rows; i++ {
		same[i] = true
	}
	for _, v := range columns {
		for i := 1; i < rows; i++ {
			if v[i] != v[i-1] {
				same[i] = false
			}
		}
	}
	return same
}
