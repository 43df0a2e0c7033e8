package quality

import "math"

// clearLag is the correlation from which a lag is meaningful.
const clearLag = 0.5

// actionLagMetric is the time by which the state follows the action: the lag at which the steps of
// both correlate best over all channels together. A relative action is compared with the steps of
// the state. It is NaN if the correlation is below 0.5, and if state and action have different
// channels. Known failure: periodic motion has several lags.
var actionLagMetric = metric{
	Metric: Metric{
		Name: "action_lag", Group: GroupConsistency, Unit: "s",
		Summary: "The time by which the state follows the action.",
		Source:  "cross-correlation",
	},
	measure: func(x *recording) float64 {
		lag, correlation := x.lagOfState()
		if !(correlation >= clearLag) {
			return math.NaN()
		}
		return lag
	},
	rule: &rule{code: "out-of-sync", spread: 4.5, floor: 0.02, rows: 0.6, hint: hintShift},
}

// actionLagCorrelationMetric is the correlation at the best lag.
var actionLagCorrelationMetric = metric{
	Metric: Metric{
		Name: "action_lag_correlation", Group: GroupConsistency, Worse: -1,
		Summary: "The correlation of the steps of action and state at the best lag.",
		Source:  "cross-correlation",
	},
	measure: func(x *recording) float64 {
		_, correlation := x.lagOfState()
		return correlation
	},
	rule: &rule{code: "action-mismatch", spread: 4.5, floor: 0.2, hint: hintLook},
}

// lagOfState returns the lag in seconds of the state behind the action, and the correlation.
func (x *recording) lagOfState() (lag, correlation float64) {
	if x.lagKnown {
		return x.lag, x.lagCorrelation
	}
	x.lagKnown, x.lag, x.lagCorrelation = true, math.NaN(), math.NaN()
	if x.state.rows() < 3*lagRows || x.state.period <= 0 {
		return x.lag, x.lagCorrelation
	}
	action := x.pairedAction()
	if action == nil {
		return x.lag, x.lagCorrelation
	}
	a, b := steps(action), steps(x.state.columns)
	if x.isRelative {
		for c := range a {
			a[c] = centred(action[c][:len(a[c])])
		}
	}
	lag, x.lagCorrelation = bestLag(a, b, lagLimit(x.state.period, len(b[0])))
	x.lag = lag * x.state.period
	return x.lag, x.lagCorrelation
}

// pairedAction returns the action's columns at the rows of the state, one for each column of the
// state. It returns nil if the columns do not correspond: other numbers of channels in the dataset
// or in the episode.
func (x *recording) pairedAction() [][]float64 {
	s, a := x.state, x.action
	if s.rows() == 0 || a.rows() == 0 || len(s.columns) == 0 || len(s.columns) != len(a.columns) {
		return nil
	}
	if a.rows() == s.rows() {
		return a.columns
	}
	out := make([][]float64, len(a.columns))
	for c, v := range a.columns {
		out[c] = interpolate(a.seconds, v, s.seconds)
	}
	return out
}
