package diagnose

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// checkClocks compares the clocks of one stream (diagnose.D3).
func (x *examination) checkClocks(e int, f *robocache.Feature) error {
	names := robocache.ClocksOf(x.ds, f.Key)
	if len(names) < 2 {
		return nil
	}
	timesBy := x.ds.Capabilities().TimesBy
	base, err := timesBy(x.ctx, e, f.Key, names[0])
	if robocache.IsFatal(err) {
		return err
	}
	if err != nil {
		return nil // the error of Times is already a finding
	}
	for _, name := range names[1:] {
		other, err := timesBy(x.ctx, e, f.Key, name)
		if robocache.IsFatal(err) {
			return err
		}
		if err != nil || len(other) != len(base) || slices.Equal(base, other) || len(base) < 8 {
			continue
		}
		x.compareClocks(e, f, names[0], name, base, other)
	}
	return nil
}

// clockPair compares clock b of a stream with clock a.
type clockPair struct {
	feature *robocache.Feature
	where   robocache.Where
	a, b    string

	times  []float64 // of clock a since the first row, in nanoseconds, as all fields
	diff   []float64 // b minus a
	offset float64   // median of diff
	noise  float64   // spread of diff about the offset
	row    int       // row of the step
	step   float64   // permanent step of b against a, or 0
	slope  float64   // drift of b against a
	drifts bool      // whether the slope is clear
}

// compareClocks reports offset, drift and steps of one clock relative to another.
func (x *examination) compareClocks(e int, f *robocache.Feature, a, b string, base, other []int64) {
	p := clockPair{
		feature: f,
		where: robocache.Where{
			"episode": x.ds.Info().EpisodeIndex(e),
			"stream":  f.Key,
			"clocks":  a + ", " + b,
		},
		a: a,
		b: b,
	}
	p.measure(base, other)
	x.reportClocks(&p)
}

// measure compares the timestamps of both clocks.
func (p *clockPair) measure(base, other []int64) {
	p.diff = make([]float64, len(base))
	p.times = make([]float64, len(base))
	for i := range base {
		p.diff[i] = float64(other[i] - base[i])
		p.times[i] = float64(base[i] - base[0])
	}
	p.offset = median(p.diff)
	spread := make([]float64, len(p.diff))
	for i, d := range p.diff {
		spread[i] = math.Abs(d - p.offset)
	}
	p.noise = 1.4826 * median(spread)
	// The drift is fitted after the step is removed, because a line through a step is no drift.
	p.row, p.step = findStep(p.times, p.diff)
	flat := p.diff
	if p.step != 0 {
		flat = slices.Clone(p.diff)
		for i := p.row; i < len(flat); i++ {
			flat[i] -= p.step
		}
	}
	slope, rest := fitLine(p.times, flat)
	p.slope = slope
	// It is a drift only if the line explains much more than the scatter.
	moved := math.Abs(slope) * p.span()
	p.drifts = moved > 2e6 && moved > 6*rest
}

// span returns the time from the first row to the last.
func (p *clockPair) span() float64 { return p.times[len(p.times)-1] }

// alignArguments returns the arguments of align that convert clock a to clock b.
func (p *clockPair) alignArguments() (shift, gain float64) {
	if !p.drifts {
		return p.offset, 0
	}
	// Both are measured at the first timestamp, where align starts. Clock b is assumed to be
	// right, so the gain is the drift of a relative to b.
	shift = median(subtractSlope(p.diff, p.times, p.slope))
	return shift, 1/(1+p.slope) - 1
}

// reportClocks adds the findings about a pair of clocks.
func (x *examination) reportClocks(p *clockPair) {
	avoid := "one clock for all streams (" + robocache.Option("options", "clock", "log") +
		") avoids it"
	shift, gain := p.alignArguments()
	convert := fmt.Sprintf(
		"%s converts it to %s, if the other streams use that clock",
		x.correction(p.feature, shift/1e9, gain),
		p.b,
	)
	either := avoid + "; or " + convert
	if p.step != 0 { // no constant offset corrects a step
		convert = avoid
		either = avoid
	}
	if math.Abs(p.offset) > 20e6 {
		x.addFinding(
			robocache.SeverityInfo,
			"clock-offset",
			p.where,
			0,
			convert,
			"%s runs %.3f ms after %s (median; spread %.3f ms)",
			p.b,
			p.offset/1e6,
			p.a,
			p.noise/1e6,
		)
	}
	if p.drifts {
		x.addFinding(
			robocache.SeverityWarning,
			"clock-drift",
			p.where,
			0,
			either,
			"%s gains %.1f ppm on %s (%.3f ms over %.1f s)",
			p.b,
			p.slope*1e6,
			p.a,
			p.slope*p.span()/1e6,
			p.span()/1e9,
		)
	}
	if p.step != 0 {
		where := maps.Clone(p.where)
		where["index"] = p.row
		x.addFinding(
			robocache.SeverityWarning,
			"clock-step",
			where,
			0,
			avoid,
			"%s steps by %.3f ms against %s at row %d",
			p.b,
			p.step/1e6,
			p.a,
			p.row,
		)
	}
}

// findStep finds a permanent step of one clock relative to another. The step must exceed 20 ms and
// be much larger than the variation from row to row. It returns 0 if there is none.
func findStep(at, diff []float64) (row int, step float64) {
	row, step = largestStep(diff)
	if math.Abs(step) <= 20e6 {
		return 0, 0
	}
	vary := make([]float64, len(diff)-1)
	flat := slices.Clone(diff)
	for i := range vary {
		vary[i] = math.Abs(diff[i+1] - diff[i])
	}
	for i := row; i < len(flat); i++ {
		flat[i] -= step
	}
	// Temporary delays are not steps. Removing a real step must reduce the distance to a line by at
	// least a quarter.
	_, before := fitLine(at, diff)
	if _, after := fitLine(at, flat); math.Abs(step) <= 10*median(vary) || after > 0.75*before {
		return 0, 0
	}
	return row, step
}

// subtractSlope returns y - slope*x.
func subtractSlope(y, x []float64, slope float64) []float64 {
	out := make([]float64, len(y))
	for i := range y {
		out[i] = y[i] - slope*x[i]
	}
	return out
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	return s[len(s)/2]
}

// fitLine returns the slope of the least-squares line and the standard deviation of the residuals.
func fitLine(x, y []float64) (slope, rest float64) {
	n := float64(len(x))
	var mx, my float64
	for i := range x {
		mx += x[i] / n
		my += y[i] / n
	}
	var sxx, sxy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
	}
	if sxx == 0 {
		return 0, 0
	}
	slope = sxy / sxx
	for i := range x {
		r := y[i] - my - slope*(x[i]-mx)
		rest += r * r
	}
	return slope, math.Sqrt(rest / n)
}

// largestStep returns the row at which the medians of the five values before and after differ most.
func largestStep(v []float64) (at int, step float64) {
	const k = 5
	for i := k; i+k <= len(v); i++ {
		if d := median(v[i:i+k]) - median(v[i-k:i]); math.Abs(d) > math.Abs(step) {
			at, step = i, d
		}
	}
	if step == 0 {
		return at, step
	}
	row := at // the medians locate the row only to within a few rows
	for i := at - k + 1; i < at+k; i++ {
		if math.Abs(v[i]-v[i-1]) > math.Abs(v[row]-v[row-1]) {
			row = i
		}
	}
	return row, step
}
