package quality

import (
	"math"
	"slices"
)

// measureSteps computes the steps of a clock in ns, and their median. A clock without a rate has
// none.
func (c *clock) measureSteps() {
	if !c.hasRate || len(c.times) < 4 {
		return
	}
	c.steps = make([]int64, len(c.times)-1)
	isGrid := true
	for i := range c.steps {
		c.steps[i] = c.times[i+1] - c.times[i]
		isGrid = isGrid && max(c.steps[i]-c.steps[0], c.steps[0]-c.steps[i]) <= 1
	}
	c.median = c.steps[0]
	if !isGrid {
		sorted := slices.Clone(c.steps)
		slices.Sort(sorted)
		c.median = sorted[len(sorted)/2]
	}
}

// stepsOf returns the steps of a clock in ns, and their median. ok is false for a clock without a
// rate, also if most timestamps are equal.
func (c *clock) stepsOf() (steps []int64, median int64, ok bool) {
	return c.steps, c.median, c.steps != nil && c.median > 0
}

// markStep marks the step of all clocks with the largest score, which must be above 0.
func (x *recording) markStep(score func(step, median int64) int64) {
	most := int64(0)
	for i := range x.clocks {
		c := &x.clocks[i]
		for k, step := range c.steps {
			if v := score(step, c.median); v > most {
				most = v
				x.span = x.spanOf(min(c.times[k], c.times[k+1]), max(c.times[k], c.times[k+1]))
			}
		}
	}
}

// spanOf returns the part of the episode between two timestamps.
func (x *recording) spanOf(from, to int64) span {
	return span{float64(from-x.start) / 1e9, float64(to-x.start) / 1e9}
}

// countSteps returns the number of steps of all clocks for which counts is true; NaN without steps.
func (x *recording) countSteps(counts func(step int64) bool) float64 {
	n := math.NaN()
	for i := range x.clocks {
		steps := x.clocks[i].steps
		if steps == nil {
			continue
		}
		if n != n {
			n = 0
		}
		for _, s := range steps {
			if counts(s) {
				n++
			}
		}
	}
	return n
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
