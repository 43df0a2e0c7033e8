package quality

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
)

// clockSkewMetric is the largest median difference between two clocks of one stream, such as the
// stamps of a ROS 2 message and its log times. It is NaN for streams with one clock. Known failure:
// a constant delay of the transport counts as skew.
var clockSkewMetric = metric{
	Metric: Metric{
		Name: "clock_skew", Group: GroupClocks, Unit: "s",
		Summary: "The median difference between the clocks of one stream; the largest.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return x.largestPair(func(p *clockPair) float64 { return math.Abs(p.difference) })
	},
	rule: &rule{code: "clock-skew", spread: 4.5, floor: 0.02, share: 0.5, hint: hintClock},
}

// clockDriftMetric is the largest change of the difference between two clocks of one stream, in
// parts per million: the medians of the first and the last tenth of the samples are compared. It is
// NaN for streams with one clock.
var clockDriftMetric = metric{
	Metric: Metric{
		Name: "clock_drift", Group: GroupClocks, Unit: "ppm", Worse: 1,
		Summary: "The drift between the clocks of one stream; the largest.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 {
		return x.largestPair(func(p *clockPair) float64 { return math.Abs(p.drift) })
	},
	rule: &rule{code: "clock-drift", spread: 4.5, floor: 200, share: 0.5, hint: hintClock},
}

// clockPair is the difference between two clocks of one stream.
type clockPair struct {
	difference float64 // median, seconds
	drift      float64 // ppm
}

// largestPair returns the largest value of measure over all pairs of clocks; NaN without one.
func (x *recording) largestPair(measure func(*clockPair) float64) float64 {
	most := math.NaN()
	for i := range x.pairs {
		if v := measure(&x.pairs[i]); !(most >= v) {
			most = v
		}
	}
	return most
}

// minPairSamples is the number of samples from which clocks are compared.
const minPairSamples = 20

// readPairs compares the clocks of each stream with several. A clock that cannot be read is left
// out.
func (r *reader) readPairs(ctx context.Context, e int, x *recording) error {
	by := r.ds.Capabilities().TimesBy
	if by == nil {
		return nil
	}
	done := map[string]bool{}
	features := r.ds.Info().Features
	for i := range features {
		f := &features[i]
		clocks := robocache.ClocksOf(r.ds, f.Key)
		if len(clocks) < 2 || f.Latched || done[f.Clock] || robocache.Lacks(r.ds, e, f.Key) {
			continue
		}
		done[f.Clock] = true
		first, err := by(ctx, e, f.Key, clocks[0])
		if robocache.IsFatal(err) {
			return err
		}
		for _, name := range clocks[1:] {
			other, otherErr := by(ctx, e, f.Key, name)
			if robocache.IsFatal(otherErr) {
				return otherErr
			}
			if err == nil && otherErr == nil && len(first) == len(other) &&
				len(first) >= minPairSamples {
				x.pairs = append(x.pairs, comparePair(first, other))
			}
		}
	}
	return nil
}

// comparePair returns the difference of two clocks of the same samples.
func comparePair(a, b []int64) clockPair {
	seconds := make([]float64, len(a))
	for i := range a {
		seconds[i] = float64(b[i]-a[i]) / 1e9
	}
	tenth := len(a) / 10
	head := medianOf(append([]float64{}, seconds[:tenth]...))
	tail := medianOf(append([]float64{}, seconds[len(a)-tenth:]...))
	p := clockPair{difference: medianOf(seconds)}
	if span := float64(a[len(a)-1]-a[0]) / 1e9 * 0.9; span > 0 {
		p.drift = (tail - head) / span * 1e6
	}
	return p
}
