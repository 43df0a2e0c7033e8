package stats

import "math"

// isDifference reports whether the unit is one column from which a reference is subtracted.
func (u *windowUnit) isDifference() bool { return u.part.Values == nil && u.reference[0] != nil }

// eachSlice calls fn with slices of a column and of its reference, whose differences are the values
// of the windows from to to. A row outside the episode is its first or last row.
func (u *windowUnit) eachSlice(
	b *windowBlock, s windowSpan, from, to int, fn func(rows, references []float64, isDouble bool),
) {
	rows := b.values[u.columns[0]][s.base : s.base+s.rows]
	references := b.values[u.reference[0]][s.base : s.base+s.rows]
	clamp := func(r int) int { return min(max(r, 0), s.rows-1) }
	j := u.part.ReferenceRow
	for _, k := range u.offsets {
		// windows whose row and reference lie in the episode
		first := min(max(from, -k, -j), to)
		last := max(min(to, s.rows-k, s.rows-j), first)
		for t := from; t < first; t++ {
			at, ref := clamp(t+k), clamp(t+j)
			fn(rows[at:at+1], references[ref:ref+1], u.part.Double)
		}
		if first < last {
			fn(rows[first+k:last+k], references[first+j:last+j], u.part.Double)
		}
		for t := last; t < to; t++ {
			at, ref := clamp(t+k), clamp(t+j)
			fn(rows[at:at+1], references[ref:ref+1], u.part.Double)
		}
	}
}

// slidingSums computes the moments of differences in windows of consecutive rows, at a cost per
// window that does not depend on its length. Its memory is reused.
type slidingSums struct {
	rows       []float64 // of the windows of a piece, with repeated rows
	sums       []float64 // sums[i]: of the first i rows, less the first row
	squares    []float64
	low, high  []int // positions of rows that may be an extreme of a later window
	references []float64
}

// addDifferences adds the windows of a piece to empty moments of one column. It returns false, and
// leaves them undefined, if the unit has other windows or if a value is not finite.
func (x *slidingSums) addDifferences(
	m *Moments, u *windowUnit, b *windowBlock, p windowPiece,
) bool {
	width, count := len(u.offsets), p.to-p.from
	if !u.isDifference() || b.isOmitting || count == 0 {
		return false
	}
	for i, k := range u.offsets {
		if k != u.offsets[0]+i {
			return false
		}
	}
	s := p.span
	column := b.values[u.columns[0]][s.base : s.base+s.rows]
	reference := b.values[u.reference[0]][s.base : s.base+s.rows]
	clamp := func(r int) int { return min(max(r, 0), s.rows-1) }
	x.rows, x.references = x.rows[:0], x.references[:0]
	for i := range count + width - 1 {
		x.rows = append(x.rows, column[clamp(p.from+u.offsets[0]+i)])
	}
	for t := p.from; t < p.to; t++ {
		x.references = append(x.references, reference[clamp(t+u.part.ReferenceRow)])
	}
	// Sums are of distances from the first row and from the first reference, so that they do not
	// cancel.
	firstRow, firstReference := x.rows[0], x.references[0]
	x.sums, x.squares = append(x.sums[:0], 0), append(x.squares[:0], 0)
	var sum, square float64
	for _, v := range x.rows {
		d := v - firstRow
		sum += d
		square += float64(d * d)
		x.sums, x.squares = append(x.sums, sum), append(x.squares, square)
	}
	n := float64(width)
	var total, totalSquares float64
	for t, v := range x.references {
		r := v - firstReference
		s1, s2 := x.sums[t+width]-x.sums[t], x.squares[t+width]-x.squares[t]
		total += s1 - float64(n*r)
		totalSquares += s2 - float64(2*r*s1) + float64(n*r*r)
	}
	if total-total != 0 || totalSquares-totalSquares != 0 {
		return false
	}
	lo, hi := x.extremes(width)
	if !u.part.Double {
		lo, hi = float64(float32(lo)), float64(float32(hi))
	}
	if lo-lo != 0 || hi-hi != 0 {
		return false
	}
	values := int64(width) * int64(count)
	mean := total / float64(values)
	m.N[0], m.Min[0], m.Max[0] = values, lo, hi
	m.base[0], m.mean[0] = firstRow-firstReference, mean
	m.m2[0] = max(0, totalSquares-float64(float64(values)*float64(mean*mean)))
	return true
}

// extremes returns the smallest and the largest difference of all windows. The positions that may
// be an extreme of a later window are kept in order of their rows (a monotonic queue).
func (x *slidingSums) extremes(width int) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	x.low, x.high = x.low[:0], x.high[:0]
	firstLow, firstHigh := 0, 0
	for i, v := range x.rows {
		for len(x.low) > firstLow && x.rows[x.low[len(x.low)-1]] >= v {
			x.low = x.low[:len(x.low)-1]
		}
		for len(x.high) > firstHigh && x.rows[x.high[len(x.high)-1]] <= v {
			x.high = x.high[:len(x.high)-1]
		}
		x.low, x.high = append(x.low, i), append(x.high, i)
		t := i - width + 1
		if t < 0 {
			continue
		}
		for x.low[firstLow] < t {
			firstLow++
		}
		for x.high[firstHigh] < t {
			firstHigh++
		}
		lo = min(lo, x.rows[x.low[firstLow]]-x.references[t])
		hi = max(hi, x.rows[x.high[firstHigh]]-x.references[t])
	}
	return lo, hi
}

// reset empties the moments.
func (m *Moments) reset() {
	m.NonFinite = 0
	for c := range m.N {
		m.N[c], m.Min[c], m.Max[c] = 0, math.Inf(1), math.Inf(-1)
		m.base[c], m.mean[c], m.m2[c] = 0, 0, 0
	}
}
