package kernel

import (
	"math"
)

// anglePeriod returns the period of the mode angle.
func (r *Rule) anglePeriod() float64 {
	if r.Period == 0 {
		return 2 * math.Pi
	}
	return r.Period
}

// angleLow returns the lower end of the results of the mode angle.
func (r *Rule) angleLow() float64 {
	if r.Lo != nil {
		return *r.Lo
	}
	return -r.anglePeriod() / 2
}

// The modes in this file compute in float64 and round once (kernel.K5). Explicit conversions
// prevent the compiler from fusing products into sums, because the bits must not depend on GOAMD64
// or GOARCH.

// angleRow computes row i under the mode angle. It blends samples a and b at weight w along the
// shorter arc of the circle, and wraps the result into [lo, lo+period).
func (r *resampleRun) angleRow(i, a, b int, w float64) {
	period := r.opt.Rule.anglePeriod()
	lo := r.opt.Rule.angleLow()
	for col := 0; col < r.dst.Cols; col += tile {
		n := min(tile, r.dst.Cols-col)
		x, y := r.a64[:n], r.b64[:n]
		r.src.loadRow64(x, a, col)
		r.src.loadRow64(y, b, col)
		for j, v0 := range x {
			d := remainder(y[j]-v0, period)
			s := math.FMA(w, d, v0)
			x[j] = s - float64(period*math.Floor((s-lo)/period))
		}
		r.finishRow64(x, i, col)
	}
}

// remainder returns math.Remainder(x, period). If |x| is below one and a half periods it uses a
// subtraction, which is exact between half a period and two periods.
func remainder(x, period float64) float64 {
	half := period / 2
	if period < 0x1p-1000 || !(math.Abs(x) < 1.5*period) {
		return math.Remainder(x, period)
	}
	if math.Abs(x) <= half {
		return x // a tie rounds to 0 periods, which is even
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

// meanRow computes row i as the mean of samples a … b-1: it sums in index order and divides once.
func (r *resampleRun) meanRow(i, a, b int) {
	for col := 0; col < r.dst.Cols; col += tile {
		n := min(tile, r.dst.Cols-col)
		sum, y := r.a64[:n], r.b64[:n]
		r.src.loadRow64(sum, a, col)
		for k := a + 1; k < b; k++ {
			r.src.loadRow64(y, k, col)
			for j := range sum {
				sum[j] += y[j]
			}
		}
		for j := range sum {
			sum[j] /= float64(b - a)
		}
		r.finishRow64(sum, i, col)
	}
}

// slerpRow computes row i under the mode slerp, from samples a and b at weight w. It blends
// quaternions and other rotations; other channels are linear.
func (r *resampleRun) slerpRow(i, a, b int, w float64) {
	if r.opt.Rule.Quats == nil && r.opt.Rule.Rotations == nil {
		for c := 0; c < r.dst.Cols; c += 4 {
			r.blendQuat(i, a, b, w, [4]int{c, c + 1, c + 2, c + 3})
		}
		return
	}
	// Blend the columns between rotations in runs. Each column is written and counted once.
	for from := 0; from < r.dst.Cols; {
		to := from
		for to < r.dst.Cols && !r.isRotationColumn(to) {
			to++
		}
		r.lerpColumns(i, a, b, w, from, to)
		from = to
		for from < r.dst.Cols && r.isRotationColumn(from) {
			from++
		}
	}
	for _, q := range r.opt.Rule.Quats {
		r.blendQuat(i, a, b, w, q)
	}
	for _, rot := range r.opt.Rule.Rotations {
		r.blendRotation(i, a, b, w, rot)
	}
}

// isRotationColumn reports whether a column belongs to a quaternion or another rotation of the
// rule.
func (r *resampleRun) isRotationColumn(col int) bool {
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

// blendQuat computes one quaternion of row i from samples a and b at weight w. If the quaternion
// cannot be blended, it becomes NaN and the row is invalid (kernel.K6).
func (r *resampleRun) blendQuat(i, a, b int, w float64, channels [4]int) {
	var q0, q1 [4]float64
	for j, c := range channels {
		r.src.loadRow64(q0[j:j+1], a, c)
		r.src.loadRow64(q1[j:j+1], b, c)
	}
	q, ok := slerpQuats(q0, q1, w)
	if !ok && r.opt.Valid != nil {
		r.opt.Valid[i] = 0
	}
	for j, c := range channels {
		r.a64[0] = q[j]
		r.finishRow64(r.a64[:1], i, c)
	}
}

// slerpQuats returns the spherical blend of two quaternions, which need not be normalized. It
// follows the shorter of the two arcs between the rotations. ok is false and the result is NaN if a
// norm is zero or not finite.
func slerpQuats(q0, q1 [4]float64, w float64) (q [4]float64, ok bool) {
	n0, n1 := quatNorm(q0), quatNorm(q1)
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
	var difference, sum [4]float64
	for j := range q0 {
		difference[j] = q0[j] - q1[j]
		sum[j] = q0[j] + q1[j]
	}
	// Near 0, atan2 of the two lengths is precise, but acos(dot) is not.
	th := 2 * math.Atan2(quatNorm(difference), quatNorm(sum))
	if th < 1e-6 { // a linear blend, because sin(th) would be too small to divide by
		for j := range q {
			q[j] = float64((1-w)*q0[j]) + float64(w*q1[j])
		}
		n := quatNorm(q)
		for j := range q {
			q[j] /= n
		}
		return q, true
	}
	s := math.Sin(th)
	s0 := math.Sin((1 - w) * th)
	s1 := math.Sin(w * th)
	for j := range q {
		q[j] = (float64(s0*q0[j]) + float64(s1*q1[j])) / s
	}
	return q, true
}

// quatNorm returns the norm of a quaternion.
func quatNorm(q [4]float64) float64 {
	var s float64
	for _, x := range q {
		s += float64(x * x)
	}
	return math.Sqrt(s)
}

// ContinuousSigns copies rows from src to dst and negates each quaternion whose dot product with
// the previous one in dst is negative (kernel.K20). Use it before resampling. Both views must have
// the same floating-point type. With nil quats, every four columns are a quaternion.
func ContinuousSigns(dst, src Matrix, quats [][4]int) (err error) {
	if err := dst.checkInside("slerp", "out"); err != nil {
		return err
	}
	if err := src.checkInside("slerp", "data"); err != nil {
		return err
	}
	if dst.Rows != src.Rows || dst.Cols != src.Cols {
		return misuseError("slerp", "out has wrong shape", "the data's", "another")
	}
	if dst.DType != src.DType || !src.DType.Float() {
		return misuseError(
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
		moveRow(&dst, &src, i, i)
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

// alignSigns negates each quaternion of the view whose dot product with the one in the previous row
// is negative.
func (m *Matrix) alignSigns(channels [4]int) {
	size := m.DType.Size()
	var before, q [4]float64
	for i := range m.Rows {
		var dot float64
		for j, c := range channels {
			m.loadRow64(q[j:j+1], i, c)
			dot += float64(q[j] * before[j])
		}
		if i > 0 && dot < 0 {
			for j, c := range channels {
				m.Data[m.byteOffset(i, c)+size-1] ^= 0x80 // flip the sign bit
				q[j] = -q[j]
			}
		}
		before = q
	}
}
