package stats

import "math"

// valueRange is the smallest and the largest of some values. Without values, lo is above hi.
type valueRange struct{ lo, hi float64 }

// eachRange calls emit with the range of the finite values of each column in each piece.
func (u *windowUnit) eachRange(
	b *windowBlock, pieces []windowPiece, emit func(k int, r valueRange, batch int),
) {
	var span windowSpan
	var ranges []valueRange
	for i, p := range pieces {
		if i == 0 || p.span != span {
			span, ranges = p.span, u.windowRanges(b, p.span)
		}
		if ranges == nil {
			u.eachRun(b, p.span, p.from, p.to, func(k int, values []float64, weights []int64) {
				emit(k, rangeOf(values, weights), p.batch)
			})
			continue
		}
		whole := valueRange{math.Inf(1), math.Inf(-1)}
		for _, r := range ranges[p.from-span.from : p.to-span.from] {
			whole.lo, whole.hi = min(whole.lo, r.lo), max(whole.hi, r.hi)
		}
		emit(0, whole, p.batch)
	}
}

// rangeOf returns the range of the finite values whose weight is not 0.
func rangeOf(values []float64, weights []int64) valueRange {
	r := valueRange{math.Inf(1), math.Inf(-1)}
	for i, v := range values {
		if (v < r.lo || v > r.hi) && v-v == 0 && (len(weights) == 0 || weights[i] > 0) {
			r.lo, r.hi = min(r.lo, v), max(r.hi, v)
		}
	}
	return r
}

// windowRanges returns the range of the differences in each window of an episode. It returns nil if
// they are not differences of neighbouring rows, or if one is not finite. A difference is monotonic
// in its row, so the extremes of the rows give those of the differences.
func (u *windowUnit) windowRanges(b *windowBlock, s windowSpan) []valueRange {
	if u.part.Values != nil || u.reference[0] == nil || s.from >= s.to {
		return nil
	}
	first, width := u.offsets[0], len(u.offsets)
	for i, k := range u.offsets {
		if k != first+i {
			return nil
		}
	}
	rows := b.values[u.columns[0]][s.base : s.base+s.rows]
	references := b.values[u.reference[0]][s.base : s.base+s.rows]
	clamp := func(r int) int { return min(max(r, 0), s.rows-1) }
	high := make([]float64, s.to-s.from+width-1) // of the rows, and then of the windows
	low := make([]float64, len(high))            // negated
	for i := range high {
		r := s.from + first + i
		if high[i], low[i] = math.Inf(-1), math.Inf(-1); r == clamp(r) || !b.isOmitting {
			high[i], low[i] = rows[clamp(r)], -rows[clamp(r)]
		}
	}
	slideMaximum(high, width)
	slideMaximum(low, width)
	out := make([]valueRange, s.to-s.from)
	for i := range out {
		ref := references[clamp(s.from+i+u.part.ReferenceRow)]
		r := valueRange{-low[i] - ref, high[i] - ref}
		if !u.part.Double {
			r = valueRange{float64(float32(r.lo)), float64(float32(r.hi))}
		}
		// Of a window without rows, lo is +Inf and hi is -Inf.
		if !(r.lo > math.Inf(-1) && r.hi < math.Inf(1)) {
			return nil
		}
		out[i] = r
	}
	return out
}

// slideMaximum replaces each value by the maximum of width values from there. The last width-1
// results are undefined.
func slideMaximum(v []float64, width int) {
	done := 1 // v[i] is the maximum of so many values
	for done < width {
		step := min(done, width-done)
		for i, x := range v[step:] {
			v[i] = max(v[i], x)
		}
		done += step
	}
}
