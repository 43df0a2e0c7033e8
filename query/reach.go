package query

import "math"

// reach bounds the values of a node in an episode before the episode is read. For numbers it is the
// range of all values; an empty range has lo > hi. For conditions it states which values can occur.
type reach struct {
	lo, hi            float64
	nan               bool // a value may be NaN
	exact             bool // lo and hi occur, and no value is NaN
	canTrue, canFalse bool
}

// unknownReach is the reach of a node of which nothing is known.
var unknownReach = reach{
	lo: math.Inf(-1), hi: math.Inf(1), nan: true, canTrue: true, canFalse: true,
}

// reachIn returns the reach of a node in the episode of x.
func (n *node) reachIn(x *episodeRun) reach {
	if n.reach == nil || x.source.index == nil {
		return unknownReach
	}
	return n.reach(x)
}

// arithmeticReach returns the reach of an operation. Rounding is monotonic, so that the bounds of
// the rounded results are the rounded bounds.
func arithmeticReach(name string, l, r reach) reach {
	out := reach{nan: l.nan || r.nan}
	switch {
	case l.lo > l.hi || r.lo > r.hi: // no rows
		return reach{lo: 1, hi: 0}
	case name == negateSyntax:
		return reach{lo: -l.hi, hi: -l.lo, nan: l.nan, exact: l.exact}
	case name == "+":
		out.lo, out.hi = l.lo+r.lo, l.hi+r.hi
	case name == "-":
		out.lo, out.hi = l.lo-r.hi, l.hi-r.lo
	case name == "*":
		a, b, c, d := l.lo*r.lo, l.lo*r.hi, l.hi*r.lo, l.hi*r.hi
		out.lo, out.hi = min(a, b, c, d), max(a, b, c, d)
	default:
		return unknownReach
	}
	if isFinite := !math.IsInf(out.lo, 0) && !math.IsInf(out.hi, 0); !isFinite ||
		math.IsNaN(out.lo+out.hi) {
		return unknownReach
	}
	return out
}

// comparisonReach returns whether a comparison can be true or false.
func comparisonReach(name string, l, r reach) reach {
	out := reach{canFalse: true}
	if l.lo > l.hi || r.lo > r.hi { // no rows
		return out
	}
	isNumber := !l.nan && !r.nan
	switch name {
	case "<":
		out.canTrue, out.canFalse = l.lo < r.hi, !(isNumber && l.hi < r.lo)
	case "<=":
		out.canTrue, out.canFalse = l.lo <= r.hi, !(isNumber && l.hi <= r.lo)
	case ">", ">=":
		return comparisonReach(map[string]string{">": "<", ">=": "<="}[name], r, l)
	case "==":
		out.canTrue = l.lo <= r.hi && r.lo <= l.hi
	default:
		out.canTrue = true
	}
	return out
}

// aggregateReach returns the reach of min, max, mean, first or last of a signal.
func aggregateReach(name string, r reach) reach {
	switch {
	case r.lo > r.hi: // no rows: NaN
		return unknownReach
	case r.exact && name == "min":
		return reach{lo: r.lo, hi: r.lo, exact: true}
	case r.exact && name == "max":
		return reach{lo: r.hi, hi: r.hi, exact: true}
	case name == "mean": // a rounded sum
		margin := 1e-9 * max(math.Abs(r.lo), math.Abs(r.hi))
		return reach{lo: r.lo - margin, hi: r.hi + margin, nan: r.nan}
	}
	return reach{lo: r.lo, hi: r.hi, nan: r.nan}
}

// absReach returns the reach of absolute values.
func absReach(r reach, _ int) reach {
	out := reach{lo: min(math.Abs(r.lo), math.Abs(r.hi)), nan: r.nan}
	if r.lo > r.hi {
		return r
	}
	if r.lo <= 0 && r.hi >= 0 {
		out.lo = 0
	}
	out.hi = max(math.Abs(r.lo), math.Abs(r.hi))
	return out
}

// normReach returns the reach of norms of rows of width numbers. The margin allows for rounding.
func normReach(r reach, width int) reach {
	if r.lo > r.hi {
		return r
	}
	most := max(math.Abs(r.lo), math.Abs(r.hi)) * math.Sqrt(float64(width)) * (1 + 1e-9)
	return reach{lo: 0, hi: most, nan: r.nan}
}
