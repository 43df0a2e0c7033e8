package kernel

import (
	"math"
)

// period is that of angle.
func (r *Rule) period() float64 {
	if r.Period == 0 {
		return 2 * math.Pi
	}
	return r.Period
}

// low is the lower end of the results of angle.
func (r *Rule) low() float64 {
	if r.Lo != nil {
		return *r.Lo
	}
	return -r.period() / 2
}

// The modes of this file compute in float64 and round once (K5). Explicit conversions keep products
// from being fused into sums: the bits must not depend on GOAMD64 or GOARCH.

// angle blends around the circle: the short way, back into [lo, lo+period).
func (r *run) angle(i, a, b int, w float64) {
	period, lo := r.opt.Rule.period(), r.opt.Rule.low()
	for col := 0; col < r.dst.Cols; col += tile {
		n := min(tile, r.dst.Cols-col)
		x, y := r.a64[:n], r.b64[:n]
		r.src.load64(x, a, col)
		r.src.load64(y, b, col)
		for j, v0 := range x {
			d := remainder(y[j]-v0, period)
			s := math.FMA(w, d, v0)
			x[j] = s - float64(period*math.Floor((s-lo)/period))
		}
		r.finish64(x, i, col)
	}
}

// remainder is math.Remainder, by a subtraction where x lies within one and a half periods: between
// half a period and two the difference is exact.
func remainder(x, period float64) float64 {
	half := period / 2
	if period < 0x1p-1000 || !(math.Abs(x) < 1.5*period) {
		return math.Remainder(x, period)
	}
	if math.Abs(x) <= half {
		return x // a tie takes 0 periods, the even number
	}
	d := x - math.Copysign(period, x)
	switch {
	case d == 0:
		return math.Copysign(0, x)
	case math.Abs(d) < half:
		return d
	}
	return math.Remainder(x, period)
}

// mean averages samples a … b-1: a sum in index order, one division.
func (r *run) mean(i, a, b int) {
	for col := 0; col < r.dst.Cols; col += tile {
		n := min(tile, r.dst.Cols-col)
		sum, y := r.a64[:n], r.b64[:n]
		r.src.load64(sum, a, col)
		for k := a + 1; k < b; k++ {
			r.src.load64(y, k, col)
			for j := range sum {
				sum[j] += y[j]
			}
		}
		for j := range sum {
			sum[j] /= float64(b - a)
		}
		r.finish64(sum, i, col)
	}
}

// slerp blends quaternions; channels that belong to none are linear.
func (r *run) slerp(i, a, b int, w float64) {
	if r.opt.Rule.Quats == nil && r.opt.Rule.Rotations == nil {
		for c := 0; c < r.dst.Cols; c += 4 {
			r.quat(i, a, b, w, [4]int{c, c + 1, c + 2, c + 3})
		}
		return
	}
	// The columns between those of quaternions, in runs: each column is finished, and counted,
	// once.
	for from := 0; from < r.dst.Cols; {
		to := from
		for to < r.dst.Cols && !r.inQuat(to) {
			to++
		}
		r.lerp(i, a, b, w, from, to)
		for from = to; from < r.dst.Cols && r.inQuat(from); from++ {
		}
	}
	for _, q := range r.opt.Rule.Quats {
		r.quat(i, a, b, w, q)
	}
	for _, rot := range r.opt.Rule.Rotations {
		r.rotation(i, a, b, w, rot)
	}
}

func (r *run) inQuat(col int) bool {
	for _, q := range r.opt.Rule.Quats {
		if q[0] == col || q[1] == col || q[2] == col || q[3] == col {
			return true
		}
	}
	for _, rot := range r.opt.Rule.Rotations {
		if col >= rot.At && col < rot.At+rot.Width() {
			return true
		}
	}
	return false
}

func (r *run) quat(i, a, b int, w float64, channels [4]int) {
	var q0, q1 [4]float64
	for j, c := range channels {
		r.src.load64(q0[j:j+1], a, c)
		r.src.load64(q1[j:j+1], b, c)
	}
	q, ok := slerp(q0, q1, w)
	if !ok && r.opt.Valid != nil {
		r.opt.Valid[i] = 0
	}
	for j, c := range channels {
		r.a64[0] = q[j]
		r.finish64(r.a64[:1], i, c)
	}
}

func slerp(q0, q1 [4]float64, w float64) (q [4]float64, ok bool) {
	n0, n1 := norm(q0), norm(q1)
	if !(n0 > 0 && n1 > 0) || math.IsInf(n0, 0) || math.IsInf(n1, 0) {
		nan := math.NaN()
		return [4]float64{nan, nan, nan, nan}, false
	}
	var dot float64
	for j := range q0 {
		q0[j] /= n0
		q1[j] /= n1
		dot += float64(q0[j] * q1[j])
	}
	if dot < 0 {
		for j := range q1 {
			q1[j] = -q1[j]
		}
	}
	var less, more [4]float64
	for j := range q0 {
		less[j], more[j] = q0[j]-q1[j], q0[j]+q1[j]
	}
	// atan2 of the two lengths keeps its precision where acos(dot) loses it: near 0.
	th := 2 * math.Atan2(norm(less), norm(more))
	if th < 1e-6 {
		for j := range q {
			q[j] = float64((1-w)*q0[j]) + float64(w*q1[j])
		}
		n := norm(q)
		for j := range q {
			q[j] /= n
		}
		return q, true
	}
	s, s0, s1 := math.Sin(th), math.Sin((1-w)*th), math.Sin(w*th)
	for j := range q {
		q[j] = (float64(s0*q0[j]) + float64(s1*q1[j])) / s
	}
	return q, true
}

func norm(q [4]float64) float64 {
	var s float64
	for _, x := range q {
		s += float64(x * x)
	}
	return math.Sqrt(s)
}

// ContinuousSigns copies rows from src to dst, negating each quaternion that points away from the
// one before it in dst (K20): before it is resampled. Views of one floating-point type; nil quats
// are every four columns.
func ContinuousSigns(dst, src Matrix, quats [][4]int) (err error) {
	if err := dst.check("slerp", "out"); err != nil {
		return err
	}
	if err := src.check("slerp", "data"); err != nil {
		return err
	}
	if dst.Rows != src.Rows || dst.Cols != src.Cols {
		return misuse("slerp", "out has wrong shape", "the data's", "another")
	}
	if dst.DType != src.DType || !src.DType.Float() {
		return misuse(
			"slerp",
			"dtypes must match",
			"one floating-point type",
			src.DType.String()+" → "+dst.DType.String(),
		)
	}
	r := Rule{Quats: quats}
	if err := r.checkGroups("slerp", src.Cols); err != nil {
		return err
	}
	for i := range src.Rows {
		move(&dst, &src, i, i)
	}
	if quats == nil {
		for c := 0; c < src.Cols; c += 4 {
			dst.alignSigns([4]int{c, c + 1, c + 2, c + 3})
		}
	}
	for _, q := range quats {
		dst.alignSigns(q)
	}
	return nil
}

func (m *Matrix) alignSigns(channels [4]int) {
	size := m.DType.Size()
	var before, q [4]float64
	for i := range m.Rows {
		var dot float64
		for j, c := range channels {
			m.load64(q[j:j+1], i, c)
			dot += float64(q[j] * before[j])
		}
		if i > 0 && dot < 0 {
			for j, c := range channels {
				m.Data[m.at(i, c)+size-1] ^= 0x80
				q[j] = -q[j]
			}
		}
		before = q
	}
}
