package diagnose

import (
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// clocks measures the clocks of one stream against each other (D3).
func (x *examination) clocks(e int, f *robocache.Feature) error {
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
		return nil // Times has said so
	}
	for _, name := range names[1:] {
		other, err := timesBy(x.ctx, e, f.Key, name)
		if robocache.IsFatal(err) {
			return err
		}
		if err != nil || len(other) != len(base) || slices.Equal(base, other) || len(base) < 8 {
			continue
		}
		x.compare(e, f, names[0], name, base, other)
	}
	return nil
}

// compare reports offset, drift and steps of one clock against another.
func (x *examination) compare(e int, f *robocache.Feature, a, b string, base, other []int64) {
	where := robocache.Where{
		"episode": x.ds.Info().EpisodeIndex(e),
		"stream":  f.Key,
		"clocks":  a + ", " + b,
	}
	diff := make([]float64, len(base))
	at := make([]float64, len(base))
	for i := range base {
		diff[i] = float64(other[i] - base[i])
		at[i] = float64(base[i] - base[0])
	}
	offset := median(diff)
	spread := make([]float64, len(diff))
	for i, d := range diff {
		spread[i] = math.Abs(d - offset)
	}
	noise := 1.4826 * median(spread)
	// What is left beside a step is the drift: a line through the step itself would be none.
	row, step := stepOf(at, diff)
	flat := diff
	if step != 0 {
		flat = slices.Clone(diff)
		for i := row; i < len(flat); i++ {
			flat[i] -= step
		}
	}
	slope, rest := fit(at, flat)
	span := at[len(at)-1]
	// A drift is one where the line explains what the scatter does not.
	moved := math.Abs(slope) * span
	drifts := moved > 2e6 && moved > 6*rest
	shift, gain := offset, 0.0
	if drifts {
		// At the first timestamp, from where align counts; and of a against b, whose timestamps are
		// taken to be right.
		shift, gain = median(less(diff, at, slope)), 1/(1+slope)-1
	}
	avoid := "one clock for all streams (" + robocache.Option(
		"options",
		"clock",
		"log",
	) + ") avoids it"
	hint := fmt.Sprintf(
		"%s brings it onto %s, if that is the clock that the others share",
		x.correction(f, shift/1e9, gain),
		b,
	)
	either := avoid + "; or " + hint
	if step != 0 { // no constant takes that back
		hint, either = avoid, avoid
	}
	if math.Abs(offset) > 20e6 {
		x.add(robocache.SeverityInfo, "clock-offset", where, 0, hint,
			"%s runs %.3f ms after %s (median; spread %.3f ms)", b, offset/1e6, a, noise/1e6)
	}
	if drifts {
		x.add(
			robocache.SeverityWarning,
			"clock-drift",
			where,
			0,
			either,
			"%s gains %.1f ppm on %s (%.3f ms over %.1f s)",
			b,
			slope*1e6,
			a,
			slope*span/1e6,
			span/1e9,
		)
	}
	if step != 0 {
		where = robocache.Where{
			"episode": x.ds.Info().EpisodeIndex(e),
			"stream":  f.Key,
			"clocks":  a + ", " + b,
			"index":   row,
		}
		x.add(
			robocache.SeverityWarning,
			"clock-step",
			where,
			0,
			avoid,
			"%s steps by %.3f ms against %s at row %d",
			b,
			step/1e6,
			a,
			row,
		)
	}
}

// stepOf finds where one clock steps against another for good: by more than 20 ms, and by far more
// than the difference varies from row to row. 0: nowhere.
func stepOf(at, diff []float64) (row int, step float64) {
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
	// Delays that come and go are none: without a step for good the rest lies nearer to a line.
	_, before := fit(at, diff)
	if _, after := fit(at, flat); math.Abs(step) <= 10*median(vary) || after > 0.75*before {
		return 0, 0
	}
	return row, step
}

// less is what a line of a slope leaves.
func less(y, x []float64, slope float64) []float64 {
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

// fit is the least-squares line's slope and the standard deviation of what it leaves.
func fit(x, y []float64) (slope, rest float64) {
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

// largestStep finds where medians of five values before and after differ most.
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
	row := at // where medians differ most, give or take two rows
	for i := at - k + 1; i < at+k; i++ {
		if math.Abs(v[i]-v[i-1]) > math.Abs(v[row]-v[row-1]) {
			row = i
		}
	}
	return row, step
}
