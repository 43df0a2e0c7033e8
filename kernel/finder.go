package kernel

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// timestamp is a time: ns, or under AsGiven seconds.
type timestamp interface{ int64 | float64 }

// segment is a pair of samples at distinct timestamps; a < 0 where there is none.
type segment struct{ a, b int }

// ends finds the pairs of samples that extrapolation before the first and after the last timestamp
// goes through (K15).
func ends[T timestamp](src []T) (first, last segment) {
	first, last = segment{-1, -1}, segment{-1, -1}
	n := len(src)
	if n < 2 || src[0] == src[n-1] {
		return first, last
	}
	a := upperFrom(src, 0, src[0]) - 1
	first = segment{a, upperFrom(src, a, src[a+1]) - 1}
	last = segment{lowerFrom(src, 0, src[n-1]) - 1, n - 1}
	return first, last
}

// finder fills the rows of one plan.
type finder[T timestamp] struct {
	src         []T
	rule        *Rule
	maxGap      T
	epsilon     float64 // s; AsGiven only
	leftOpen    bool
	p           *Plan
	first, last segment
	lo, hi      int // mean: the last window, to move on from
}

// row decides target i at time t, where ub timestamps are ≤ t.
func (f *finder[T]) row(i int, t T, ub int) error {
	s, k := f.src, ub-1
	switch {
	case len(s) == 0:
		return f.outside(i, t, -1, segment{-1, -1})
	case k < 0:
		return f.outside(i, t, 0, f.first)
	case t != s[k] && k == len(s)-1:
		return f.outside(i, t, k, f.last)
	case f.rule.Mode == Mean:
		return f.mean(i, t, k)
	case t == s[k]:
		if f.leftOpen {
			if k = lowerFrom(s, k, t) - 1; k >= 0 {
				break // the interval that ends at t
			}
			k = 0
		}
		f.copy(i, k)
		f.p.Valid[i] = 1
		return nil
	}
	a, b := s[k], s[k+1]
	switch f.rule.Mode {
	case Previous:
		return f.taken(i, t, k, t-a)
	case Next:
		return f.taken(i, t, k+1, b-t)
	case Nearest:
		if t-a <= b-t {
			return f.taken(i, t, k, t-a)
		}
		return f.taken(i, t, k+1, b-t)
	}
	f.blend(i, t, segment{k, k + 1})
	return f.gap(i, t, b-a)
}

func (f *finder[T]) copy(i, k int) {
	f.p.Kind[i], f.p.Left[i], f.p.Right[i] = Copy, int32(k), int32(k)
}

// blend's denominator has an epsilon under AsGiven only: a positive number plus 0 is itself.
func (f *finder[T]) blend(i int, t T, g segment) {
	f.p.Kind[i], f.p.Left[i], f.p.Right[i] = Blend, int32(g.a), int32(g.b)
	f.p.Weight[i] = float64(t-f.src[g.a]) / (float64(f.src[g.b]-f.src[g.a]) + f.epsilon)
}

func (f *finder[T]) taken(i int, t T, k int, distance T) error {
	f.copy(i, k)
	return f.gap(i, t, distance)
}

// gap settles the validity of a row inside the data, and its value where the gap is too long.
func (f *finder[T]) gap(i int, t, length T) error {
	if f.maxGap == 0 || length <= f.maxGap {
		f.p.Valid[i] = 1
		return nil
	}
	switch f.rule.Edge {
	case Mask:
		f.zero(i)
	case ErrorEdge:
		return planError(
			robocache.ErrMalformed,
			robocache.Where{"row": i, "t": t},
			"gap exceeds max_gap",
			fmt.Sprintf("at most %v %s", f.maxGap, unit(t)),
			fmt.Sprintf("%v %s", length, unit(t)),
		)
	}
	return nil
}

func (f *finder[T]) zero(i int) {
	f.p.Kind[i], f.p.Left[i], f.p.Right[i], f.p.Weight[i] = Zero, 0, 0, 0
}

func (f *finder[T]) outside(i int, t T, edge int, line segment) error {
	switch {
	case f.rule.Edge == ErrorEdge:
		want := "a stream with samples"
		if n := len(f.src); n > 0 {
			want = fmt.Sprintf("%v … %v %s", f.src[0], f.src[n-1], unit(t))
		}
		return planError(
			robocache.ErrMisuse,
			robocache.Where{"row": i},
			"target time outside the source range",
			want,
			fmt.Sprintf("%v %s", t, unit(t)),
		)
	case f.rule.Edge == Mask || edge < 0:
		f.zero(i)
	case f.rule.Edge == Extrapolate && line.a >= 0 && (f.rule.Mode == Linear || f.rule.Mode == Angle || f.rule.Mode == ModeSum):
		f.blend(i, t, line)
	default:
		f.copy(i, edge)
	}
	return nil
}

// mean takes the window around t, which lies inside the data; k is the last timestamp ≤ t. It
// exists in ns only.
func (f *finder[T]) mean(i int, t T, k int) error {
	s := f.src
	from, to := max(t-T(f.rule.Before), s[0]), t+min(T(f.rule.After), MaxTime-1-max(t, 0))
	lo, hi := lowerFrom(s, f.lo, from), lowerFrom(s, f.hi, to)
	f.lo, f.hi = lo, hi
	if lo < hi {
		f.p.Kind[i], f.p.Left[i], f.p.Right[i] = Window, int32(lo), int32(hi)
		if t == s[k] {
			f.p.Valid[i] = 1
			return nil
		}
		return f.gap(i, t, s[k+1]-s[k])
	}
	// Empty: no sample within the window, so none at t either, except where the window does not
	// hold t itself.
	near := k
	if t != s[k] && t-s[k] > s[k+1]-t {
		near = k + 1
	}
	f.copy(i, near)
	switch f.rule.Edge {
	case Mask:
		f.zero(i)
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

func unit[T timestamp](t T) string {
	if _, ok := any(t).(float64); ok {
		return "s"
	}
	return "ns"
}

// upperFrom is the number of timestamps ≤ t. It gallops from the answer of the row before:
// ascending targets cost O(S + T) in all, any other order O(log S) a row.
func upperFrom[T timestamp](src []T, from int, t T) int { return search(src, from, t, true) }

// lowerFrom is the number of timestamps < t, galloping from an earlier answer.
func lowerFrom[T timestamp](src []T, from int, t T) int { return search(src, from, t, false) }

func search[T timestamp](src []T, from int, t T, equal bool) int {
	before := func(k int) bool { return src[k] < t || equal && src[k] == t }
	lo, hi := 0, len(src) // invariant: before(lo-1), not before(hi)
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
