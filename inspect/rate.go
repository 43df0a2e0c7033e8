package inspect

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// rateMeter measures the rates that are not declared, once per clock.
type rateMeter struct {
	ds    robocache.Dataset
	rates map[string]float64
}

// measuredRate returns 1 ÷ the median step between different timestamps. It uses the first of
// sixteen episodes that has such a step. The median is robust against gaps and bursts. The result
// is 0 if there are too few timestamps.
func (m *rateMeter) measuredRate(ctx context.Context, key, clock string) float64 {
	if hz, ok := m.rates[clock]; ok {
		return hz
	}
	hz := 0.0
	for e := range min(m.ds.Info().Episodes, 16) {
		times, err := m.ds.Times(ctx, e, key)
		if err != nil || ctx.Err() != nil {
			break // the report of the episode shows the error
		}
		if step := medianStep(times); step > 0 {
			hz = 1e9 / step
			break
		}
	}
	m.rates[clock] = hz
	return hz
}

// medianStep returns the median of the positive steps in ns, or 0 if there is none.
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
