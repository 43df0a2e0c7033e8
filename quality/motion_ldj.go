package quality

import "math"

// ldjMetric is the log dimensionless jerk: −ln(T³/v² · ∫ jerk² dt), with the duration T of the
// motion and its peak speed v. It is lower for less smooth motion. Known failure: it falls with the
// duration.
var ldjMetric = metric{
	Metric: Metric{
		Name: "ldj", Group: GroupMotion, Worse: -1,
		Summary: "The log dimensionless jerk: lower is less smooth.",
		Source:  "Balasubramanian et al., J. NeuroEngineering and Rehabilitation 12:112, 2015",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		peak := 0.0
		for _, v := range x.speed {
			peak = max(peak, v)
		}
		s := x.motion
		time := s.seconds[len(s.seconds)-1] - s.seconds[0]
		if peak <= 0 || time <= 0 {
			return math.NaN()
		}
		return -math.Log(math.Pow(time, 3) / (peak * peak) * squaredJerk(s) * s.period)
	},
}
