package quality

import "math"

// motionNoiseMetric is the noise of the state: the median of the absolute sixth differences of each
// channel, divided by 0.6745·√924 as for white noise; the largest of all channels counts. Smooth
// motion adds little to sixth differences. Known failure: motion with contacts at a low rate counts
// as noise, and quantised values too.
var motionNoiseMetric = metric{
	Metric: Metric{
		Name: "noise", Group: GroupMotion, Unit: "range", Worse: 1,
		Summary: "The standard deviation of white noise that would explain the sixth differences.",
		Source:  "difference estimator: Gasser et al., Biometrika 73(3), 1986; here of order 6",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 8 {
			return math.NaN()
		}
		worst := 0.0
		rough := x.buffer(x.motion.rows() - 6)
		for _, v := range x.motion.columns {
			for i := range rough {
				w := v[i : i+7 : i+7]
				rough[i] = math.Abs(w[0] + w[6] - 6*(w[1]+w[5]) + 15*(w[2]+w[4]) - 20*w[3])
			}
			worst = max(worst, quickQuantile(rough, 0.5)/(0.6745*math.Sqrt(924)))
		}
		return worst
	},
	rule: &rule{code: "noisy", spread: 2.6, floor: 1e-6, share: 0.3, hint: hintLook},
}
