package quality

import (
	"math"
	"slices"
)

// stepsOf returns the steps of a clock in ns, and their median. ok is false for a clock without a
// rate.
func (c *clock) stepsOf() (steps []int64, median int64, ok bool) {
	if !c.hasRate || len(c.times) < 4 {
		return nil, 0, false
	}
	steps = make([]int64, len(c.times)-1)
	for i := range steps {
		steps[i] = c.times[i+1] - c.times[i]
	}
	sorted := slices.Clone(steps)
	slices.Sort(sorted)
	median = sorted[len(sorted)/2]
	return steps, median, median > 0
}

// largestOf returns the largest value of measure over all clocks with a rate; NaN without one.
func (x *recording) largestOf(measure func(steps []int64, median int64) float64) float64 {
	most := math.NaN()
	for i := range x.clocks {
		steps, median, ok := x.clocks[i].stepsOf()
		if !ok {
			continue
		}
		if v := measure(steps, median); !(most >= v) {
			most = v
		}
	}
	return most
}

// sumOf returns the sum of measure over all clocks with a rate; NaN without one.
func (x *recording) sumOf(measure func(steps []int64, median int64) float64) float64 {
	sum := math.NaN()
	for i := range x.clocks {
		if steps, median, ok := x.clocks[i].stepsOf(); ok {
			if sum != sum {
				sum = 0
			}
			sum += measure(steps, median)
		}
	}
	return sum
}
