package quality

import "math"

// jumpFactor is the factor by which a jump exceeds the mean of the steps.
const jumpFactor = 12

// discontinuitiesMetric is the number of rows at which a channel of the state jumps: the step
// exceeds 12 times the mean of the steps of the channel, 0.02 ranges, and twice the steps before
// and after. Known failure: a short fast motion in a slow episode.
var discontinuitiesMetric = metric{
	Metric: Metric{
		Name: "discontinuities", Group: GroupConsistency, Unit: "count", Worse: 1,
		Summary: "The number of rows at which the state jumps.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		jumps := make([]bool, x.motion.rows())
		for _, v := range x.motion.columns {
			sum := 0.0
			for i := 1; i < len(v); i++ {
				sum += math.Abs(v[i] - v[i-1])
			}
			limit := max(jumpFactor*sum/float64(len(v)-1), 0.02)
			for i := 2; i+1 < len(v); i++ {
				step := math.Abs(v[i] - v[i-1])
				around := max(math.Abs(v[i-1]-v[i-2]), math.Abs(v[i+1]-v[i]))
				jumps[i] = jumps[i] || step > limit && step > 2*around
			}
		}
		runs := runsOf(jumps)
		if len(runs) > 0 {
			x.markRows(x.motion, run{runs[0].from - 1, runs[len(runs)-1].to})
		}
		return float64(len(runs))
	},
	isTimed: true,
	rule:    &rule{code: "discontinuity", spread: 4.5, floor: 0.5, hint: hintLook},
}

// largestJumpMetric is the largest third difference of a channel of the state, in ranges: small for
// smooth motion, and as large as the jump at rows that are missing. Known failure: contacts.
var largestJumpMetric = metric{
	Metric: Metric{
		Name: "largest_jump", Group: GroupConsistency, Unit: "range", Worse: 1,
		Summary: "The largest third difference of the state.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		if x.motion == nil || x.motion.rows() < 4 {
			return math.NaN()
		}
		most := 0.0
		for _, v := range x.motion.columns {
			for i := 3; i < len(v); i++ {
				if d := math.Abs(v[i] - v[i-3] - 3*(v[i-1]-v[i-2])); d > most {
					most = d
					x.markRows(x.motion, run{i - 2, i})
				}
			}
		}
		return most
	},
	isTimed: true,
	rule:    &rule{code: "jump", spread: 4.5, floor: 0.01, share: 0.5, hint: hintLook},
}

// quickQuantile returns the quantile q of v, rounded to a value of v, and reorders v.
func quickQuantile(v []float64, q float64) float64 {
	k := int(q * float64(len(v)-1))
	low, high := 0, len(v)-1
	for low < high {
		pivot := v[(low+high)/2]
		i, j := low, high
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			high = j
		case k >= i:
			low = i
		default:
			return v[k]
		}
	}
	return v[k]
}
