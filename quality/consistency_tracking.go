package quality

import "math"

// trackingErrorMetric is the root mean square of the difference between the state and the absolute
// action at the best lag; the largest of all joints counts. Known failure: an action in other
// coordinates than the state has a large error in every episode.
var trackingErrorMetric = metric{
	Metric: Metric{
		Name: "tracking_error", Group: GroupConsistency, Unit: "range", Worse: 1,
		Summary: "The error with which the state follows the action; the worst joint.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		action := x.pairedAction()
		lag, correlation := x.lagOfState()
		if action == nil || x.isRelative || x.state.period <= 0 {
			return math.NaN()
		}
		shift := 0
		if correlation >= clearLag {
			shift = int(math.Round(lag / x.state.period))
		}
		worst := 0.0
		for c, v := range x.state.columns {
			own, other := x.state.scales[c], x.action.scales[c]
			gain, offset := other.width()/own.width(), (other.Low-own.Low)/own.width()
			from, to := max(0, -shift), min(len(v), len(v)-shift)
			sum := 0.0
			for i := from; i < to; i++ {
				d := v[i+shift] - (action[c][i]*gain + offset)
				sum += d * d
			}
			worst = max(worst, math.Sqrt(sum/float64(max(1, to-from))))
		}
		return worst
	},
	rule: &rule{code: "tracking-error", spread: 4.5, floor: 0.02, share: 0.3, hint: hintLook},
}
