package kernel

import (
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// MaxTime bounds timestamps and targets in ns, so that the difference of two does not overflow
// (kernel.K13).
const MaxTime = 1 << 62

// NewPlan finds the source samples of each target. src must not decrease; targets may be in any
// order.
func NewPlan(src, targets []int64, rule Rule) (_ *Plan, err error) {
	if err := CheckTimestamps(src); err != nil {
		return nil, err
	}
	if err := rule.checkTime(); err != nil {
		return nil, err
	}
	p := MakePlan(rule.Mode, len(targets))
	if rule.Mode == ModeSum {
		return p, p.FillSums(src, targets, rule.sumLengths(len(targets)), &rule)
	}
	return p, p.Fill(src, targets, &rule)
}

// Fill decides every row of p as NewPlan does, in its existing slices. A back end calls it for the
// few rows that it cannot decide itself. Caller must have checked src.
func (p *Plan) Fill(src, targets []int64, rule *Rule) error {
	p.resetRows(rule.Mode)
	return fillRows(p, src, targets, rule, rule.MaxGap, 0, false)
}

// FillAsGiven is Fill for the clock AsGiven.
func (p *Plan) FillAsGiven(src, targets []float64, rule *Rule, epsilon float64) error {
	p.resetRows(rule.Mode)
	return fillRows(p, src, targets, rule, float64(rule.MaxGap)/1e9, epsilon, rule.Mode.Computes())
}

// resetRows clears all rows.
func (p *Plan) resetRows(mode Mode) {
	p.Mode = mode
	clear(p.Kind)
	clear(p.Left)
	clear(p.Right)
	clear(p.Weight)
	clear(p.Valid)
}

// MakePlan returns a plan of n rows that are all Zero and invalid.
func MakePlan(mode Mode, n int) *Plan {
	return &Plan{
		Mode:   mode,
		Kind:   make([]Kind, n),
		Left:   make([]int32, n),
		Right:  make([]int32, n),
		Weight: make([]float64, n),
		Valid:  make([]uint8, n),
	}
}

// fillRows decides every row of p. gap is the longest legal gap in the unit of the times; 0 allows
// any gap. epsilon is added to the denominator of weights. With leftOpen, a target at a timestamp
// belongs to the interval that ends there (kernel.K14).
func fillRows[T timestamp](
	p *Plan,
	src, targets []T,
	rule *Rule,
	gap T,
	epsilon float64,
	leftOpen bool,
) error {
	p.Sources = len(src)
	f := rowFinder[T]{
		src:      src,
		rule:     rule,
		maxGap:   gap,
		epsilon:  epsilon,
		leftOpen: leftOpen,
		plan:     p,
	}
	f.first, f.last = edgeSegments(src)
	// ub is the number of timestamps ≤ t. The next search starts at the previous result.
	ub := 0
	for i, t := range targets {
		if err := checkTarget(t, i); err != nil {
			return err
		}
		ub = upperFrom(src, ub, t)
		if err := f.decideRow(i, t, ub); err != nil {
			return err
		}
	}
	return nil
}

// CheckTimestamps rejects timestamps that decrease or are out of range. The error names the first
// bad index.
func CheckTimestamps[T timestamp](src []T) error {
	if len(src) > math.MaxInt32 {
		return planError(
			robocache.ErrResourceLimit,
			nil,
			"too many samples",
			"at most 2^31-1",
			strconv.Itoa(len(src)),
		)
	}
	for i, t := range src {
		if !inRange(t) {
			if f := float64(t); f != f || math.IsInf(f, 0) {
				return notFinite("index", i, "timestamp", f)
			}
			return planError(
				robocache.ErrMalformed,
				robocache.Where{"index": i},
				"timestamp outside ±2^62 ns",
				"",
				fmt.Sprint(t),
			)
		}
		if i > 0 && t < src[i-1] {
			return planError(
				robocache.ErrMalformed,
				robocache.Where{"index": i},
				"timestamps must not decrease",
				fmt.Sprintf("at least %v", src[i-1]),
				fmt.Sprint(t),
			)
		}
	}
	return nil
}

// checkTarget rejects a target time that is not finite or out of range. i is the row, for the
// error.
func checkTarget[T timestamp](t T, i int) error {
	if inRange(t) {
		return nil
	}
	if f := float64(t); f != f || math.IsInf(f, 0) {
		return notFinite("row", i, "target time", f)
	}
	return planError(
		robocache.ErrMalformed,
		robocache.Where{"row": i},
		"target time outside ±2^62 ns",
		"",
		fmt.Sprint(t),
	)
}

// inRange reports whether t is a legal time. Nanoseconds must lie inside ±2^62. The same bound
// makes seconds under AsGiven finite and far from the limits of float64.
func inRange[T timestamp](t T) bool { return t > -MaxTime && t < MaxTime }

// notFinite returns the error for a time t that is NaN or infinite. The place of the error is i
// under the given key ("index" of a timestamp, or "row" of a target).
func notFinite(key string, i int, what string, t float64) error {
	return planError(
		robocache.ErrMalformed,
		robocache.Where{key: i},
		what+" not finite; timestamps must not decrease",
		"a finite number",
		fmt.Sprint(t),
	)
}

// checkTime rejects a Rule whose time part is invalid.
func (r *Rule) checkTime() error {
	switch {
	case r.Mode > ModeSum:
		return planError(robocache.ErrMisuse, nil, "Invalid mode", "a known mode", r.Mode.String())
	case r.Edge > ErrorEdge:
		return planError(
			robocache.ErrMisuse,
			nil,
			"Invalid edge",
			"a known edge policy",
			r.Edge.String(),
		)
	case r.MaxGap < 0:
		return planError(
			robocache.ErrMisuse,
			nil,
			"invalid max_gap",
			"0 (none) or more ns",
			strconv.FormatInt(r.MaxGap, 10),
		)
	case r.Mode == ModeSum && r.After <= 0:
		return planError(
			robocache.ErrMisuse,
			nil,
			"sum needs the length of a row's interval",
			"after > 0",
			strconv.FormatInt(r.After, 10),
		)
	case r.Mode == Mean && !r.hasWindow():
		return planError(
			robocache.ErrMisuse,
			nil,
			"mean needs a window",
			"before and after ≥ 0, not both 0",
			fmt.Sprintf("%d, %d", r.Before, r.After),
		)
	}
	return nil
}

// hasWindow reports whether the window is neither negative, too long nor empty.
func (r *Rule) hasWindow() bool {
	isTime := func(t int64) bool { return t >= 0 && t <= MaxTime }
	return isTime(r.Before) && isTime(r.After) && (r.Before > 0 || r.After > 0)
}

// planError returns an error of the operation "align", the name that users know for planning.
func planError(class error, where robocache.Where, msg, want, got string) error {
	if want == "" && got != "" {
		msg += ": " + got
		got = ""
	}
	return robocache.NewError(class, "align", where, "%s", msg).Expected(want, got)
}
