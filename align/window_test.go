package align

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func contains(err error, s string) bool { return err != nil && strings.Contains(err.Error(), s) }

// TestOffsets covers align.A11. The expected values are those of lerobot 0.6.1's
// check_delta_timestamps and get_delta_indices (python: round(d*fps); abs(d*fps-round(d*fps))/fps
// <= tolerance).
func TestOffsets(t *testing.T) {
	hz := func(n, d int64) robocache.Rate { return robocache.Rate{Num: n, Den: d} }
	for _, c := range []struct {
		deltas []float64
		fps    robocache.Rate
		tol    float64
		want   []int
		bad    []string
	}{
		{
			[]float64{-1, -0.5, -0.1, 0, 0.1, 1.0 / 3},
			hz(30, 1),
			1e-4,
			[]int{-30, -15, -3, 0, 3, 10},
			nil,
		},
		{[]float64{0.04, 0.033, 0.0333}, hz(30, 1), 1e-4, nil, []string{"0.04", "0.033"}},
		{[]float64{0.0333, 0.0334, -0.0334}, hz(30, 1), 1e-4, []int{1, 1, -1}, nil},
		// halves to even: 0.5, 1.5, 2.5
		{[]float64{0.05, 0.15, 0.25, -0.05}, hz(10, 1), 1, []int{0, 2, 2, 0}, nil},
		// exactly on the tolerance
		{[]float64{0.05}, hz(10, 1), 0.05, []int{0}, nil},
		{[]float64{10.01}, hz(2997, 100), 1e-4, []int{300}, nil},
		{
			[]float64{math.NaN(), math.Inf(1), 1e300},
			hz(30, 1),
			1e9,
			nil,
			[]string{"NaN", "+Inf", "1e+300"},
		},
		{nil, hz(30, 1), 1e-4, []int{}, nil},
	} {
		got, err := Offsets(c.deltas, c.fps, c.tol)
		if c.bad == nil {
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v at %v: %v %v, want %v", c.deltas, c.fps, got, err, c.want)
			}
			continue
		}
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%v: %v", c.deltas, err)
		}
		for _, b := range c.bad {
			if !contains(err, b) {
				t.Errorf("%v is not named in: %v", b, err)
			}
		}
	}
	if _,
		err := Offsets([]float64{0}, robocache.Rate{}, 1e-4); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("no rate: %v", err)
	}
}

func TestClamp(t *testing.T) {
	for _, c := range []struct {
		i, n, length, row int
		pad               bool
	}{
		{0, -1, 5, 0, true},
		{0, 0, 5, 0, false},
		{4, 0, 5, 4, false},
		{4, 1, 5, 4, true},
		{2, -2, 5, 0, false},
		{0, 9, 1, 0, true},
		{0, 0, 0, 0, true},
	} {
		if row, pad := Clamp(c.i, c.n, c.length); row != c.row || pad != c.pad {
			t.Errorf("Clamp(%d, %d, %d) = %d, %v", c.i, c.n, c.length, row, pad)
		}
	}
}

func TestSpan(t *testing.T) {
	s := []int64{0, 10, 10, 20, 30}
	for _, c := range []struct{ t, from, to, lo, hi int64 }{
		{10, 0, 0, 1, 3},
		{10, -10, 10, 0, 4},
		{15, -4, 4, 3, 3},
		{100, -1, 1, 5, 5},
		{10, 5, -5, 3, 3},
	} {
		if lo, hi := Span(s, c.t, c.from, c.to); int64(lo) != c.lo || int64(hi) != c.hi {
			t.Errorf("Span(%d, %d, %d) = [%d, %d)", c.t, c.from, c.to, lo, hi)
		}
	}
}
