package cpu

import (
	"bytes"

	"github.com/goatnote-inc/robocache/kernel"
)

// resizePlan sets the number of rows of the worker's plan. The contents of the rows are undefined.
func (w *worker) resizePlan(n int) {
	p := &w.plan
	p.Kind = resizeSlice(p.Kind, n)
	p.Left = resizeSlice(p.Left, n)
	p.Right = resizeSlice(p.Right, n)
	p.Weight = resizeSlice(p.Weight, n)
	p.Valid = resizeSlice(p.Valid, n)
}

// These are the values that finishFound and loadPlan copy into plans.
var (
	blendKinds = repeatKind(kernel.Blend)
	copyKinds  = repeatKind(kernel.Copy)
	validOnes  = bytes.Repeat([]byte{1}, rowsPerPlan)
)

// repeatKind returns rowsPerPlan copies of k.
func repeatKind(k kernel.Kind) []kernel.Kind {
	s := make([]kernel.Kind, rowsPerPlan)
	for i := range s {
		s[i] = k
	}
	return s
}

// setAll fills dst by copying a slice of equal values. This is faster than a loop that stores one
// value at a time.
func setAll[T any](dst, from []T) {
	for len(dst) > 0 {
		dst = dst[copy(dst, from):]
	}
}

// planRows writes the plan of targets t … t+n-1 into the worker. findIntervals finds the rows
// inside the data; the reference decides the others. planRows returns false if the reference
// returns an error.
func (w *worker) planRows(
	rule *kernel.Rule,
	src, to *timestamps,
	t, n int,
	clock kernel.Clock,
	epsilon float64,
) bool {
	p := &w.plan
	if clock == kernel.AsGiven {
		p.Mode = rule.Mode
		if p.FillAsGiven(src.seconds, to.seconds[t:t+n], rule, epsilon) != nil {
			return false
		}
		w.updateAllPlain(0, n, true)
		return true
	}
	p.Mode = rule.Mode
	p.Sources = len(src.ns)
	w.allPlain = true
	targets := to.ns[t : t+n]
	s := src.ns
	if len(s) < 4 || s[0] == s[len(s)-1] || rule.Mode == kernel.Mean {
		return w.planSlow(rule, s, targets, 0, n)
	}
	a := &w.search
	rate := float64(len(s)-1) / float64(s[len(s)-1]-s[0]) // average rows per nanosecond
	*a = searchArgs{
		timestamps: &s[0],
		last:       len(s) - 1,
		maxGap:     gapLimit(rule),
		start:      s[0],
		rate:       rate,
	}
	// chunk is the number of rows that the reference plans when findIntervals stops. It doubles
	// while findIntervals finds few rows.
	chunk := 4
	for i := 0; i < n; {
		a.targets = &targets[i]
		a.rows = n - i
		a.left, a.right, a.weight = &p.Left[i], &p.Right[i], &p.Weight[i]
		k := findIntervals(a) // number of rows found before the first that it cannot decide
		w.finishFound(rule, s, targets, i, i+k)
		i += k
		if i == n {
			break
		}
		if o := w.planOutside(rule, s, targets, i); o > 0 {
			i += o
			continue
		}
		if k >= 32 {
			chunk = 4
		} else if chunk < 64 {
			chunk *= 2
		}
		end := min(i+chunk, n)
		if !w.planSlow(rule, s, targets, i, end) {
			return false
		}
		i = end
		// Guesses start again at the last row. After a gap in the timestamps, all guesses would
		// have the same error otherwise.
		last := int(p.Left[end-1])
		a.start = s[last]
		a.first = float64(last)
		if k >= 16 {
			a.rate = rate
		} else if near := localRate(s, last); near > 0 {
			a.rate = near
		}
	}
	return true
}

// localRate returns the rows per nanosecond around row i, or 0 if it is not known.
func localRate(s []int64, i int) float64 {
	lo := max(0, i-64)
	hi := min(len(s)-1, i+64)
	if d := s[hi] - s[lo]; d > 0 {
		return float64(hi-lo) / float64(d)
	}
	return 0
}

// planOutside plans consecutive rows from i on whose targets lie before the first timestamp, or at
// or after the last one. It returns the number of these rows, and 0 under policies that only the
// reference plans: extrapolation and errors.
func (w *worker) planOutside(rule *kernel.Rule, s, targets []int64, i int) int {
	if rule.Edge > kernel.Mask {
		return 0
	}
	p := &w.plan
	n := len(s)
	from := i
	kindOutside := kernel.Copy
	first := s[0]
	last := s[n-1]
	if rule.Edge == kernel.Mask {
		kindOutside = kernel.Zero
	}
	for ; i < len(targets); i++ {
		t := targets[i]
		if t >= first && t < last || !inRange(t) {
			break
		}
		kind := kindOutside
		sample := int32(0) // the nearest one
		valid := uint8(0)
		if t >= last {
			sample = int32(n - 1)
		}
		if t == last { // inside the data: an exact hit
			kind = kernel.Copy
			valid = 1
		}
		if kind == kernel.Zero {
			sample, w.allPlain = 0, false
		}
		p.Kind[i], p.Left[i], p.Right[i] = kind, sample, sample
		p.Weight[i], p.Valid[i] = 0, valid
	}
	return i - from
}

// planSlow plans rows from … to-1 with the reference, into the same slices. s are the timestamps.
// It returns false if the reference returns an error.
func (w *worker) planSlow(rule *kernel.Rule, s, targets []int64, from, to int) bool {
	p := &w.plan
	part := kernel.Plan{
		Kind:   p.Kind[from:to],
		Left:   p.Left[from:to],
		Right:  p.Right[from:to],
		Weight: p.Weight[from:to],
		Valid:  p.Valid[from:to],
	}
	if part.Fill(s, targets[from:to], rule) != nil {
		return false
	}
	w.updateAllPlain(from, to, from == 0)
	return true
}

// updateAllPlain clears allPlain if one of rows from … to-1 is neither copied nor blended. If first
// is set, these are the first rows of the plan, and allPlain is set before.
func (w *worker) updateAllPlain(from, to int, first bool) {
	if first {
		w.allPlain = true
	}
	for _, k := range w.plan.Kind[from:to] {
		if k == kernel.Zero || k == kernel.Window {
			w.allPlain = false
		}
	}
}

// finishFound completes rows from … to-1, for which findIntervals has set left, right and weight.
// Their targets lie between two samples or on one, and not in a gap.
func (w *worker) finishFound(rule *kernel.Rule, s, targets []int64, from, to int) {
	p := &w.plan
	setAll(p.Valid[from:to], validOnes)
	left, right, weight := p.Left[from:to], p.Right[from:to], p.Weight[from:to]
	switch rule.Mode {
	case kernel.Previous, kernel.Next, kernel.Nearest:
		setAll(p.Kind[from:to], copyKinds)
	default:
		setAll(p.Kind[from:to], blendKinds)
		return
	}
	switch rule.Mode {
	case kernel.Next:
		for i := range left {
			if weight[i] != 0 { // weight 0 is an exact hit
				left[i]++
			}
		}
	case kernel.Nearest:
		for i, t := range targets[from:to] {
			k := left[i]
			if t-s[k] > s[k+1]-t {
				left[i]++
			}
		}
	}
	copy(right, left)
	clear(weight)
}
