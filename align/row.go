package align

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// segment is a pair of samples at distinct stamps; a < 0 where there is none.
type segment struct{ a, b int }

// ends finds the pairs of samples that extrapolation before the first and after the last stamp goes through (A8).
func ends(src []int64) (first, last segment) {
	first, last = segment{-1, -1}, segment{-1, -1}
	n := len(src)
	if n < 2 || src[0] == src[n-1] {
		return first, last
	}
	a := upperFrom(src, 0, src[0]) - 1
	first = segment{a, upperFrom(src, a, src[a+1]) - 1}
	last = segment{lower(src, src[n-1]) - 1, n - 1}
	return first, last
}

// finder fills the rows of one plan.
type finder struct {
	src         []int64
	opt         Options
	p           *kernel.Plan
	first, last segment
	lo, hi      int // mean: the last window, to move on from
}

// row decides target i at time t, where ub stamps are ≤ t.
func (f *finder) row(i int, t int64, ub int) error {
	s, k := f.src, ub-1
	switch {
	case len(s) == 0:
		return f.outside(i, t, -1, segment{-1, -1})
	case k < 0:
		return f.outside(i, t, 0, f.first)
	case t != s[k] && k == len(s)-1:
		return f.outside(i, t, k, f.last)
	case f.opt.Mode == Mean:
		return f.mean(i, t, k)
	case t == s[k]:
		f.copy(i, k)
		f.p.Valid[i] = 1
		return nil
	}
	a, b := s[k], s[k+1]
	switch f.opt.Mode {
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

func (f *finder) copy(i, k int) {
	f.p.Kind[i], f.p.Left[i], f.p.Right[i] = kernel.Copy, int32(k), int32(k)
}

func (f *finder) blend(i int, t int64, g segment) {
	f.p.Kind[i], f.p.Left[i], f.p.Right[i] = kernel.Blend, int32(g.a), int32(g.b)
	f.p.Weight[i] = float64(t-f.src[g.a]) / float64(f.src[g.b]-f.src[g.a])
}

func (f *finder) taken(i int, t int64, k int, distance int64) error {
	f.copy(i, k)
	return f.gap(i, t, distance)
}

// gap settles the validity of a row inside the data, and its value where the gap is too long.
func (f *finder) gap(i int, t, length int64) error {
	if f.opt.MaxGap == 0 || length <= f.opt.MaxGap {
		f.p.Valid[i] = 1
		return nil
	}
	switch f.opt.Edge {
	case EdgeMask:
		f.zero(i)
	case EdgeError:
		return f.opt.fail(robocache.ErrMalformed, robocache.Where{"row": i, "t": t}, "gap exceeds max_gap", fmt.Sprintf("at most %d ns", f.opt.MaxGap), fmt.Sprintf("%d ns", length))
	}
	return nil
}

func (f *finder) zero(i int) {
	f.p.Kind[i], f.p.Left[i], f.p.Right[i], f.p.Weight[i] = kernel.Zero, 0, 0, 0
}

func (f *finder) outside(i int, t int64, edge int, line segment) error {
	switch {
	case f.opt.Edge == EdgeError:
		want := "a stream with samples"
		if n := len(f.src); n > 0 {
			want = fmt.Sprintf("%d … %d ns", f.src[0], f.src[n-1])
		}
		return f.opt.fail(robocache.ErrMisuse, robocache.Where{"row": i}, "target time outside the source range", want, fmt.Sprintf("%d ns", t))
	case f.opt.Edge == EdgeMask || edge < 0:
		f.zero(i)
	case f.opt.Edge == EdgeExtrapolate && line.a >= 0 && (f.opt.Mode == Linear || f.opt.Mode == Angle):
		f.blend(i, t, line)
	default:
		f.copy(i, edge)
	}
	return nil
}

// mean takes the window around t, which lies inside the data; k is the last stamp ≤ t.
func (f *finder) mean(i int, t int64, k int) error {
	s := f.src
	from, to := max(t-f.opt.Before, s[0]), t+min(f.opt.After, maxTime-1-max(t, 0))
	lo, hi := lowerFrom(s, f.lo, from), lowerFrom(s, f.hi, to)
	f.lo, f.hi = lo, hi
	if lo < hi {
		f.p.Kind[i], f.p.Left[i], f.p.Right[i] = kernel.Window, int32(lo), int32(hi)
		if t == s[k] {
			f.p.Valid[i] = 1
			return nil
		}
		return f.gap(i, t, s[k+1]-s[k])
	}
	// Empty: no sample within the window, so none at t either, except where the window does not hold t itself.
	near := k
	if t != s[k] && t-s[k] > s[k+1]-t {
		near = k + 1
	}
	f.copy(i, near)
	switch f.opt.Edge {
	case EdgeMask:
		f.zero(i)
	case EdgeError:
		return f.opt.fail(robocache.ErrMalformed, robocache.Where{"row": i, "t": t}, "gap exceeds max_gap", "a sample in the window of mean", fmt.Sprintf("none in [%d, %d)", from, to))
	}
	return nil
}

// lowerFrom is lower, galloping from an earlier answer.
func lowerFrom(src []int64, from int, t int64) int {
	return upperFrom(src, from, t-1)
}
