package align

import (
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// nanos returns the time of row k after row 0 (align.A10). Rate.Nanos computes usual rates in 128
// bits; others need big integers.
func nanos(r robocache.Rate, k int64) int64 {
	if r.Num < 1<<61 && r.Den <= 1e9 && k < 1<<40 && k > -1<<40 {
		return r.Nanos(k)
	}
	x := new(big.Int).Mul(big.NewInt(2_000_000_000), big.NewInt(r.Den))
	x.Mul(x, big.NewInt(k)).Add(x, big.NewInt(r.Num))
	d := new(big.Int).Lsh(big.NewInt(r.Num), 1)
	x.Div(x, d) // rounds down, because d > 0
	if !x.IsInt64() {
		return math.MaxInt64
	}
	return x.Int64()
}

// UniformCount returns the number of rows of Uniform without computing them.
func UniformCount(t0, t1 int64, rate robocache.Rate) int64 {
	if rate.Num <= 0 || rate.Den <= 0 || t1 < t0 {
		return 0
	}
	// The largest k with (2k·1e9·den + num) div 2num ≤ span is the largest with 2k·1e9·den <
	// (2·span + 1)·num.
	span := new(big.Int).Sub(big.NewInt(t1), big.NewInt(t0))
	x := span.Lsh(span, 1).Add(span, big.NewInt(1))
	x.Mul(x, big.NewInt(rate.Num)).Sub(x, big.NewInt(1))
	d := new(big.Int).Mul(big.NewInt(2_000_000_000), big.NewInt(rate.Den))
	x.Div(x, d)
	if !x.IsInt64() || x.Int64() == math.MaxInt64 {
		return math.MaxInt64
	}
	return x.Int64() + 1
}

// Uniform returns the grid t0, t0 + 1/rate … up to and including t1. A zero rate or t1 < t0 gives an
// empty grid. Callers with times from outside must check UniformCount first, because the grid may
// need more memory than there is.
func Uniform(t0, t1 int64, rate robocache.Rate) []int64 {
	n := UniformCount(t0, t1, rate)
	out := make([]int64, n)
	for k := range out {
		out[k] = t0 + nanos(rate, int64(k))
	}
	return out
}

// OnGrid replaces timestamps that are grid times k/rate rounded to float32, as LeRobot stores them,
// by the exact grid times. Other timestamps are returned unchanged. Without this, mode previous at
// hz = rate would choose the row before for every timestamp that float32 rounded up.
func OnGrid(timestamps []int64, rate robocache.Rate) []int64 {
	if rate.Num <= 0 || rate.Den <= 0 {
		return timestamps
	}
	hz := rate.Float()
	// rounding is the largest error of t in float32: half a step at 24 significant bits.
	rounding := func(t int64) float64 { return math.Abs(float64(t)) * 0x1p-24 }
	// If the error can be more than a quarter of the period, the timestamps do not show their rows.
	// They are then no float32 seconds, but count from an epoch.
	if n := len(timestamps); n > 0 &&
		max(rounding(timestamps[0]), rounding(timestamps[n-1]))*4 > 1e9/hz {
		return timestamps
	}
	row := func(t int64) int64 { return int64(math.Round(float64(t) * 1e-9 * hz)) }
	for i, t := range timestamps {
		distance := t - nanos(rate, row(t))
		limit := int64(rounding(t)) + 1 // 1 for the rounding to nanoseconds
		isOff := distance > limit || distance < -limit
		if isOff || i > 0 && row(t) == row(timestamps[i-1]) {
			return timestamps
		}
	}
	out := make([]int64, len(timestamps))
	for i, t := range timestamps {
		out[i] = nanos(rate, row(t))
	}
	return out
}

// Extent returns the time span of a timeline over several streams. kind is "intersection", "union",
// or the name of one of them. A union ignores streams without samples. An intersection with such a
// stream is empty (t1 < t0).
func Extent(kind string, names []string, streams [][]int64) (t0, t1 int64, err error) {
	named := slices.Index(names, kind)
	switch {
	case kind == "" || kind == "intersection":
		t0, t1 = math.MinInt64, math.MaxInt64
		for _, s := range streams {
			if len(s) == 0 {
				return 0, -1, nil
			}
			t0, t1 = max(t0, s[0]), min(t1, s[len(s)-1])
		}
		if len(streams) > 0 {
			return t0, t1, nil
		}
		return 0, -1, nil
	case kind == "union":
	case named >= 0:
		streams = streams[named:][:1]
	default:
		return 0, 0, robocache.Misuse("align", nil, "unknown extent").
			Expected("intersection, union or a stream's key", strconv.Quote(kind)).
			WithHint("%s", nearestHint(kind, names))
	}
	t0, t1 = math.MaxInt64, math.MinInt64
	for _, s := range streams {
		if len(s) > 0 {
			t0, t1 = min(t0, s[0]), max(t1, s[len(s)-1])
		}
	}
	if t0 > t1 {
		return 0, -1, nil
	}
	return t0, t1, nil
}
