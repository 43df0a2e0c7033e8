package kernel

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// timestamp is a time in ns, or in seconds under AsGiven.
type timestamp interface{ int64 | float64 }

// segment is a pair of samples at distinct timestamps; a < 0 means that there is none.
type segment struct{ a, b int }

// edgeSegments returns the two pairs of samples that define the lines for extrapolation: before the
// first timestamp, and after the last (kernel.K15). Of samples with equal timestamps it uses the
// last.
func edgeSegments[T timestamp](src []T) (first, last segment) {
	first, last = segment{-1, -1}, segment{-1, -1}
	n := len(src)
	if n < 2 || src[0] == src[n-1] {
		return first, last
	}
	a := upperFrom(src, 0, src[0]) - 1 // last sample at the first timestamp
	first = segment{a, upperFrom(src, a, src[a+1]) - 1}
	last = segment{lowerFrom(src, 0, src[n-1]) - 1, n - 1}
	return first, last
}

// rowFinder fills the rows of one plan.
type rowFinder[T timestamp] struct {
	src         []T
	rule        *Rule
	maxGap      T
	epsilon     float64 // in seconds; AsGiven only
	leftOpen    bool    // a target at a timestamp belongs to the interval that ends there
	plan        *Plan
	first, last segment
	lo, hi      int // mean: the window of the previous row, where the next search starts
}

// decideRow computes row i of the plan, whose target is at time t. ub is the number of timestamps ≤
// t.
func (f *rowFinder[T]) decideRow(i int, t T, ub int) error {
	s := f.src
	k := ub - 1 // the last sample at or before t
	switch {
	case len(s) == 0:
		return f.setOutside(i, t, -1, segment{-1, -1})
	case k < 0:
		return f.setOutside(i, t, 0, f.first)
	case t != s[k] && k == len(s)-1:
		return f.setOutside(i, t, k, f.last)
	case f.rule.Mode == Mean:
		return f.setMean(i, t, k)
	case t == s[k]:
		if f.leftOpen {
			if k = lowerFrom(s, k, t) - 1; k >= 0 {
				break // use the interval that ends at t
			}
			k = 0
		}
		f.setCopy(i, k)
		f.plan.Valid[i] = 1
		return nil
	}
	a := s[k] // a ≤ t ≤ b
	b := s[k+1]
	switch f.rule.Mode {
	case Previous:
		return f.setSample(i, t, k, t-a)
	case Next:
		return f.setSample(i, t, k+1, b-t)
	case Nearest:
		if t-a <= b-t {
			return f.setSample(i, t, k, t-a)
		}
		return f.setSample(i, t, k+1, b-t)
	}
	f.setBlend(i, t, segment{k, k + 1})
	return f.checkGap(i, t, b-a)
}

// setCopy sets row i to a copy of sample k. It does not change the validity.
func (f *rowFinder[T]) setCopy(i, k int) {
	f.plan.Kind[i] = Copy
	f.plan.Left[i] = int32(k)
	f.plan.Right[i] = int32(k)
}

// setBlend sets row i to a blend of the two samples of g. epsilon is 0 except under AsGiven; adding
// 0 does not change the denominator.
func (f *rowFinder[T]) setBlend(i int, t T, g segment) {
	f.plan.Kind[i] = Blend
	f.plan.Left[i] = int32(g.a)
	f.plan.Right[i] = int32(g.b)
	f.plan.Weight[i] = float64(t-f.src[g.a]) / (float64(f.src[g.b]-f.src[g.a]) + f.epsilon)
}

// setSample sets row i to a copy of sample k, which is at the given distance from t, and checks the
// distance as a gap.
func (f *rowFinder[T]) setSample(i int, t T, k int, distance T) error {
	f.setCopy(i, k)
	return f.checkGap(i, t, distance)
}

// checkGap sets the validity of a row inside the data. If the gap is longer than maxGap, it applies
// the edge policy.
func (f *rowFinder[T]) checkGap(i int, t, length T) error {
	if f.maxGap == 0 || length <= f.maxGap {
		f.plan.Valid[i] = 1
		return nil
	}
	switch f.rule.Edge {
	case Mask:
		f.setZero(i)
	case ErrorEdge:
		return planError(
			robocache.ErrMalformed,
			robocache.Where{"row": i, "t": t},
			"gap exceeds max_gap",
			fmt.Sprintf("at most %v %s", f.maxGap, timeUnit(t)),
			fmt.Sprintf("%v %s", length, timeUnit(t)),
		)
	}
	return nil
}

// setZero sets row i to zero bits. It does not change the validity.
func (f *rowFinder[T]) setZero(i int) {
	f.plan.Kind[i], f.plan.Left[i], f.plan.Right[i], f.plan.Weight[i] = Zero, 0, 0, 0
}

// setOutside applies the edge policy to row i, whose target t lies outside the data. edge is the
// nearest sample, or -1 if there are no samples. line is the pair of samples for extrapolation. The
// row stays invalid.
func (f *rowFinder[T]) setOutside(i int, t T, edge int, line segment) error {
	switch {
	case f.rule.Edge == ErrorEdge:
		want := "a stream with samples"
		if n := len(f.src); n > 0 {
			want = fmt.Sprintf("%v … %v %s", f.src[0], f.src[n-1], timeUnit(t))
		}
		return planError(
			robocache.ErrMisuse,
			robocache.Where{"row": i},
			"target time outside the source range",
			want,
			fmt.Sprintf("%v %s", t, timeUnit(t)),
		)
	case f.rule.Edge == Mask || edge < 0:
		f.setZero(i)
	case f.rule.Edge == Extrapolate && line.a >= 0 && f.rule.Mode.hasSlope():
		f.setBlend(i, t, line)
	default:
		f.setCopy(i, edge)
	}
	return nil
}

// hasSlope reports whether a mode can continue the line through two samples.
func (m Mode) hasSlope() bool { return m == Linear || m == Angle || m == ModeSum }

// setMean sets row i to the mean of the window around t. t lies inside the data and k is the last
// timestamp ≤ t. The mode mean exists in ns only.
func (f *rowFinder[T]) setMean(i int, t T, k int) error {
	s := f.src
	from := max(t-T(f.rule.Before), s[0])
	to := t + min(T(f.rule.After), MaxTime-1-max(t, 0))
	lo, hi := lowerFrom(s, f.lo, from), lowerFrom(s, f.hi, to)
	f.lo, f.hi = lo, hi
	if lo < hi {
		f.plan.Kind[i] = Window
		f.plan.Left[i] = int32(lo)
		f.plan.Right[i] = int32(hi)
		if t == s[k] {
			f.plan.Valid[i] = 1
			return nil
		}
		return f.checkGap(i, t, s[k+1]-s[k])
	}
	// The window is empty. Then no sample is at t either, unless the window excludes t itself.
	near := k
	if t != s[k] && t-s[k] > s[k+1]-t {
		near = k + 1
	}
	f.setCopy(i, near)
	switch f.rule.Edge {
	case Mask:
		f.setZero(i)
	case ErrorEdge:
		return planError(
			robocache.ErrMalformed,
			robocache.Where{"row": i, "t": t},
			"gap exceeds max_gap",
			"a sample in the window of mean",
			fmt.Sprintf("none in [%v, %v)", from, to),
		)
	}
	return nil
}

// timeUnit returns the unit of t in errors.
func timeUnit[T timestamp](t T) string {
	if _, ok := any(t).(float64); ok {
		return "s"
	}
	return "ns"
}

// upperFrom returns the number of timestamps ≤ t. It searches outward from the result of the
// previous row. Ascending targets cost O(S + T) in total; any other order costs O(log S) per row.
func upperFrom[T timestamp](src []T, from int, t T) int { return gallopSearch(src, from, t, true) }

// lowerFrom returns the number of timestamps < t, searching outward from an earlier result.
func lowerFrom[T timestamp](src []T, from int, t T) int { return gallopSearch(src, from, t, false) }

// gallopSearch returns the number of timestamps < t, or ≤ t if equal is set. It doubles its steps
// upward from an earlier result, and then halves the interval that it found.
func gallopSearch[T timestamp](src []T, from int, t T, equal bool) int {
	before := func(k int) bool { return src[k] < t || equal && src[k] == t }
	lo := 0
	hi := len(src) // invariant: before(lo-1), not before(hi)
	if from > 0 && !before(from-1) {
		hi = from - 1
	} else {
		lo = from
		for step := 1; lo+step <= len(src); step *= 2 {
			if !before(lo + step - 1) {
				hi = lo + step - 1
				break
			}
			lo += step
		}
	}
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if before(m) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}
