package inspect

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// meter measures rates where nothing declares them, once a clock.
type meter struct {
	ds    robocache.Dataset
	rates map[string]float64
}

// rate is 1 ÷ the median step between timestamps that differ, in the first episode (of sixteen)
// that shows one: gaps and bursts do not move it. 0 where there are too few timestamps, or none at
// all.
func (m *meter) rate(ctx context.Context, key, clock string) float64 {
	if hz, ok := m.rates[clock]; ok {
		return hz
	}
	hz := 0.0
	for e := range min(m.ds.Info().Episodes, 16) {
		times, err := m.ds.Times(ctx, e, key)
		if err != nil || ctx.Err() != nil {
			break // --episode shows why
		}
		if step := medianStep(times); step > 0 {
			hz = 1e9 / step
			break
		}
	}
	m.rates[clock] = hz
	return hz
}

// medianStep is the median of the steps forward, in ns; 0 where there is none.
func medianStep(times []int64) float64 {
	var steps []int64
	for i := 1; i < len(times); i++ {
		if d := times[i] - times[i-1]; d > 0 {
			steps = append(steps, d)
		}
	}
	if len(steps) == 0 {
		return 0
	}
	slices.Sort(steps)
	n := len(steps)
	return float64(steps[(n-1)/2]+steps[n/2]) / 2
}
