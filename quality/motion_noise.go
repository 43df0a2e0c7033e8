package quality

import "math"

// motionNoiseMetric is the noise of the state: the median of |x[i] − 2x[i−1] + x[i−2]| of each
// channel, divided by 0.6745·√6 as for white noise; the largest of all channels counts. Known
// failure: fast motion at a low rate counts as noise.
var motionNoiseMetric = metric{
	Metric: Metric{
		Name: "noise", Group: GroupMotion, Unit: "range", Worse: 1,
		Summary: "The standard deviation of white noise that would explain the second differences.",
		Source:  "robust difference estimator: Gasser et al., Biometrika 73(3), 1986",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		worst := 0.0
		second := make([]float64, x.motion.rows()-2)
		for _, v := range x.motion.columns {
			for i := range second {
				second[i] = math.Abs(v[i+2] - 2*v[i+1] + v[i])
			}
			worst = max(worst, quickQuantile(second, 0.5)/(0.6745*math.Sqrt(6)))
		}
		return worst
	},
	rule: &rule{code: "noisy", spread: 5, floor: 1e-4, share: 0.3, hint: hintLook},
}
