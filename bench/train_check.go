package bench

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

const (
	lossSteps  = 50   // number of steps whose losses are compared
	sumsWithin = 2e-5 // 1e-5 of the range, for values scaled to [-1, 1]

	lossWithin = 0.01
	// idleWithin limits how much the runners without an order raise the tolerance. They train on
	// the same batch again and again. Their losses approach 0, so their relative noise has no
	// bound.
	idleWithin = 0.05
)

// trainCheck is the result of comparing the runs of a point with the others.
type trainCheck struct {
	problems              []string
	lossDiff, allowedDiff *float64
	comparedWith          string
}

// comparisonGroup returns the key of the points whose losses must agree: the same order, and frames
// resized by the same side. The loader resizes while decoding, with another filter than the device.
// Frames of the loader are therefore checked with the loader's own filter.
func (p *trainPoint) comparisonGroup() string {
	order := p.result.Runs[0].OrderSHA256
	if order != "" && p.Job != nil && p.Job.ImageSize != "" &&
		strings.HasPrefix(p.baseName, "robocache") {
		return order + " resized"
	}
	return order
}

// checkTraining compares the runs of all points. Weights must be equal. Samples must follow the
// plan, and batches must have the same values. Losses must agree within a tolerance that depends on
// the difference between repeats of other runners. A runner's own repeats are excluded, because a
// runner with random errors would raise its own tolerance. Runs of another order, such as
// headspace, are compared only with their own repeats.
func checkTraining(points []*trainPoint) map[*trainPoint]*trainCheck {
	found := map[*trainPoint]*trainCheck{}
	first, weights := map[string]*trainPoint{}, ""
	noise, idle := map[string]float64{}, 0.0 // by runner; idle is for runners without an order
	// losses of the first run of each runner, for any number of workers or threads
	ran := map[string][]float64{}
	for _, p := range points {
		c := &trainCheck{}
		found[p] = c
		for rep, o := range p.result.Runs {
			x := o.Train
			bad := func(is bool, format string, a ...any) {
				if is {
					c.problems = append(
						c.problems,
						fmt.Sprintf("repeat %d: ", rep+1)+fmt.Sprintf(format, a...),
					)
				}
			}
			weights = cmp.Or(weights, x.Weights)
			bad(x.Weights != weights, "other weights than %s", points[0].Name)
			bad(x.OrderWrong > 0, "%d samples are not those of the order", x.OrderWrong)
			bad(x.Doubled > 0, "%d samples came twice in an epoch", x.Doubled)
			bad(
				x.Wrong > 0,
				"%d of %d compared batches are wrong: %v",
				x.Wrong,
				x.Checked,
				x.WrongWhere,
			)
			if kind := p.baseName + o.OrderSHA256; ran[kind] == nil {
				ran[kind] = x.Losses
			} else if d := lossDiff(ran[kind], x.Losses); o.OrderSHA256 == "" {
				idle = max(idle, d)
			} else if !math.IsNaN(d) {
				noise[p.baseName] = max(noise[p.baseName], d)
			}
		}
		if len(p.result.Runs) > 0 && len(c.problems) == 0 && p.comparisonGroup() != "" &&
			first[p.comparisonGroup()] == nil {
			first[p.comparisonGroup()] = p
		}
	}
	for _, p := range points {
		if len(p.result.Runs) == 0 || first[p.comparisonGroup()] == nil ||
			len(found[p].problems) > 0 {
			continue
		}
		c, than := found[p], first[p.comparisonGroup()]
		most := max(lossWithin, min(3*idle, idleWithin))
		for base, d := range noise {
			if base != p.baseName || base == than.baseName {
				most = max(most, 3*d)
			}
		}
		c.comparedWith, c.allowedDiff = than.Name, &most
		for rep, o := range p.result.Runs {
			x, y := o.Train, than.result.Runs[0].Train
			if at := sumsDiffer(x.Sums, y.Sums); at >= 0 {
				c.problems = append(
					c.problems,
					fmt.Sprintf(
						"repeat %d: batch %d has other numbers than that of %s",
						rep+1,
						at,
						than.Name,
					),
				)
			}
			d := lossDiff(y.Losses, x.Losses)
			if c.lossDiff == nil || d > *c.lossDiff {
				c.lossDiff = finiteOrNil(d)
			}
			if !(d <= most) {
				c.problems = append(
					c.problems,
					fmt.Sprintf(
						"repeat %d: the losses differ from those of %s by %.2g, allowed %.2g",
						rep+1,
						than.Name,
						d,
						most,
					),
				)
			}
		}
	}
	return found
}

// lossDiff returns the largest relative difference of the first lossSteps losses.
func lossDiff(a, b []float64) (most float64) {
	for i := range min(len(a), len(b), lossSteps) {
		most = max(most, math.Abs(a[i]-b[i])/max(math.Abs(a[i]), 1e-12)) // NaN stays NaN
	}
	return most
}

// sumsDiffer returns the first batch whose means differ, or -1.
func sumsDiffer(a, b [][3]float64) int {
	for i := range min(len(a), len(b)) {
		for k := range a[i] {
			if !(math.Abs(a[i][k]-b[i][k]) <= sumsWithin) {
				return i
			}
		}
	}
	return -1
}
