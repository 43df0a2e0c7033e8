package diagnose

import "slices"

// sums are those of two motions over the grid points where both are valid, the second's k points
// later.
type sums struct{ n, a, b, aa, bb, ab float64 }

// holed adds up point by point.
func holed(a, b *motion, from, to, k int) (s sums) {
	for i := from; i < to; i++ {
		if !a.valid[i] || !b.valid[i+k] {
			continue
		}
		u, v := a.v[i], b.v[i+k]
		s.n++
		s.a += u
		s.b += v
		s.aa += u * u
		s.bb += v * v
		s.ab += u * v
	}
	return s
}

// running are the sums of a motion's values and squares up to each grid point: those of any stretch
// are a difference, and only the products of two motions depend on the lag. Most of the doctor's
// time beside reading goes into these.
type running struct {
	whole    bool // valid in one stretch …
	from, to int  // … which is this
	v, vv    []float64
}

// running makes them once; a motion with holes is told by whole alone.
func (m *motion) running() *running {
	if m.sums != nil {
		return m.sums
	}
	r := &running{}
	m.sums = r
	if r.from = slices.Index(m.valid, true); r.from < 0 {
		r.from = len(m.valid)
	}
	for r.to = r.from; r.to < len(m.valid) && m.valid[r.to]; r.to++ {
	}
	if r.whole = !slices.Contains(m.valid[r.to:], true); !r.whole {
		return r
	}
	r.v, r.vv = make([]float64, len(m.v)+1), make([]float64, len(m.v)+1)
	for i, v := range m.v {
		r.v[i+1], r.vv[i+1] = r.v[i]+v, r.vv[i]+v*v
	}
	return r
}

func (p *running) between(q *running, a, b *motion, from, to, k int) sums {
	if from >= to {
		return sums{}
	}
	return sums{
		float64(to - from),
		p.v[to] - p.v[from],
		q.v[to+k] - q.v[from+k],
		p.vv[to] - p.vv[from],
		q.vv[to+k] - q.vv[from+k],
		dot(a.v[from:to], b.v[from+k:to+k]),
	}
}

// dot is the sum of products, in four that do not wait for each other.
func dot(a, b []float64) float64 {
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
