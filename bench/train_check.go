package bench

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

const (
	lossSteps  = 50   // of the curves that are compared
	sumsWithin = 2e-5 // 1e-5 of the range, onto [-1, 1]

	lossWithin = 0.01
	// idleWithin is the most that losses of one batch over and over may allow others: they go to 0,
	// and their relative noise grows without bound.
	idleWithin = 0.05
)

// trainCheck is how a point's runs compare with the others'.
type trainCheck struct {
	why        []string
	diff, most *float64
	with       string
}

// alike names the points whose losses must agree: those of one order, and of frames that one side
// resizes. The engine's resizing while decoding, which its compared batches are checked with, is
// another filter than the device's.
func (p *trainPoint) alike() string {
	order := p.over.Runs[0].OrderSHA256
	if order != "" && p.Job != nil && p.Job.ImageSize != "" &&
		strings.HasPrefix(p.base, "robocache") {
		return order + " resized"
	}
	return order
}

// checkTraining holds the runs of points against each other: the same weights; in the plan's order;
// the same batches; the same losses, within what two runs of another runner differ by: one that is
// wrong at random would vouch for itself. Those of another order, headspace among them, are held
// against their own repeats alone.
func checkTraining(points []*trainPoint) map[*trainPoint]*trainCheck {
	found := map[*trainPoint]*trainCheck{}
	first, weights := map[string]*trainPoint{}, ""
	noise, idle := map[string]float64{}, 0.0 // by runner; of those without an order
	// losses of the first run of a runner, whatever its workers or threads
	ran := map[string][]float64{}
	for _, p := range points {
		c := &trainCheck{}
		found[p] = c
		for rep, o := range p.over.Runs {
			x := o.Train
			bad := func(is bool, format string, a ...any) {
				if is {
					c.why = append(
						c.why,
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
			if kind := p.base + o.OrderSHA256; ran[kind] == nil {
				ran[kind] = x.Losses
			} else if d := lossDiff(ran[kind], x.Losses); o.OrderSHA256 == "" {
				idle = max(idle, d)
			} else if !math.IsNaN(d) {
				noise[p.base] = max(noise[p.base], d)
			}
		}
		if len(p.over.Runs) > 0 && len(c.why) == 0 && p.alike() != "" && first[p.alike()] == nil {
			first[p.alike()] = p
		}
	}
	for _, p := range points {
		if len(p.over.Runs) == 0 || first[p.alike()] == nil || len(found[p].why) > 0 {
			continue
		}
		c, than := found[p], first[p.alike()]
		most := max(lossWithin, min(3*idle, idleWithin))
		for base, d := range noise {
			if base != p.base || base == than.base {
				most = max(most, 3*d)
			}
		}
		c.with, c.most = than.Name, &most
		for rep, o := range p.over.Runs {
			x, y := o.Train, than.over.Runs[0].Train
			if at := sumsDiffer(x.Sums, y.Sums); at >= 0 {
				c.why = append(
					c.why,
					fmt.Sprintf(
						"repeat %d: batch %d has other numbers than that of %s",
						rep+1,
						at,
						than.Name,
					),
				)
			}
			d := lossDiff(y.Losses, x.Losses)
			if c.diff == nil || d > *c.diff {
				c.diff = some(d)
			}
			if !(d <= most) {
				c.why = append(
					c.why,
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

// lossDiff is the largest relative difference of the first losses.
func lossDiff(a, b []float64) (most float64) {
	for i := range min(len(a), len(b), lossSteps) {
		most = max(most, math.Abs(a[i]-b[i])/max(math.Abs(a[i]), 1e-12)) // not a number stays one
	}
	return most
}

// sumsDiffer gives the first batch whose means differ; -1: none.
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
