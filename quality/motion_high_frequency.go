package quality

import "math"

// highFrequencyMetric is the share of high frequencies in the energy of the velocity:
// Σ(d[i]−d[i−1])² / 4Σd[i]² over the steps d of all channels. That is the mean of sin²(πf/2F) over
// the spectrum of the velocity, with the Nyquist frequency F: 0 for slow motion, 0.5 for white
// velocity, and 1 for an alternating one. Known failure: it depends on the rate of the rows.
var highFrequencyMetric = metric{
	Metric: Metric{
		Name: "high_frequency", Group: GroupMotion, Unit: "share", Worse: 1,
		Summary: "The share of high frequencies in the energy of the velocity.",
		Source:  "robocache; the von Neumann ratio of the velocity",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		energy, change := 0.0, 0.0
		for _, v := range x.motion.columns {
			before := v[1] - v[0]
			for i := 2; i < len(v); i++ {
				d := v[i] - v[i-1]
				energy += d * d
				change += (d - before) * (d - before)
				before = d
			}
		}
		if energy == 0 {
			return math.NaN()
		}
		return change / (4 * energy)
	},
	rule: &rule{code: "high-frequency", spread: 4.5, floor: 0.02, share: 0.3, hint: hintLook},
}
