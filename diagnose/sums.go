package diagnose

import "slices"

// pairSums are the sums over the grid points at which both motions are valid. The second motion is
// shifted by k points.
type pairSums struct{ n, a, b, aa, bb, ab float64 }

// sumPoints computes the sums point by point. It is for motions with holes.
func sumPoints(a, b *motion, from, to, k int) (s pairSums) {
	for i := from; i < to; i++ {
		if !a.valid[i] || !b.valid[i+k] {
			continue
		}
		u := a.values[i]
		v := b.values[i+k]
		s.n++
		s.a += u
		s.b += v
		s.aa += u * u
		s.bb += v * v
		s.ab += u * v
	}
	return s
}

// prefixSums holds the sums of a motion's values and squares up to each grid point. The sums over
// any range are then a difference, and only the products of two motions depend on the lag. Apart
// from reading, the doctor spends most of its time here.
type prefixSums struct {
	isContiguous bool // whether the motion is valid in one contiguous range
	from, to     int  // that range
	v, vv        []float64
}

// runningSums returns the prefix sums and computes them on first use. For a motion with holes, only
// isContiguous is set.
func (m *motion) runningSums() *prefixSums {
	if m.prefix != nil {
		return m.prefix
	}
	r := &prefixSums{}
	m.prefix = r
	r.from = slices.Index(m.valid, true)
	if r.from < 0 {
		r.from = len(m.valid)
	}
	r.to = r.from
	for r.to < len(m.valid) && m.valid[r.to] {
		r.to++
	}
	r.isContiguous = !slices.Contains(m.valid[r.to:], true)
	if !r.isContiguous {
		return r
	}
	r.v, r.vv = make([]float64, len(m.values)+1), make([]float64, len(m.values)+1)
	for i, v := range m.values {
		r.v[i+1] = r.v[i] + v
		r.vv[i+1] = r.vv[i] + v*v
	}
	return r
}

// sumsBetween returns the sums over the grid points [from, to) of motion a. Motion b is shifted by
// k points. p and q are the prefix sums of a and b.
func (p *prefixSums) sumsBetween(q *prefixSums, a, b *motion, from, to, k int) pairSums {
	if from >= to {
		return pairSums{}
	}
	return pairSums{
		float64(to - from),
		p.v[to] - p.v[from],
		q.v[to+k] - q.v[from+k],
		p.vv[to] - p.vv[from],
		q.vv[to+k] - q.vv[from+k],
		dotProduct(a.values[from:to], b.values[from+k:to+k]),
	}
}

// dotProduct returns the sum of products. It uses four independent sums, so that the additions can
// run in parallel.
func dotProduct(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i := range min(len(a), len(b)) {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}
