package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// blendRotation blends the channels of one rotation in any form (kernel.K21).
func (r *resampleRun) blendRotation(i, a, b int, w float64, rot robocache.Rotation) {
	if rot.Form == robocache.FormQuat {
		r.blendQuat(i, a, b, w, [4]int{rot.At, rot.At + 1, rot.At + 2, rot.At + 3})
		return
	}
	var v0, v1 [3]float64
	r.src.loadRow64(v0[:], a, rot.At)
	r.src.loadRow64(v1[:], b, rot.At)
	var v [3]float64
	var ok bool
	if rot.Form == robocache.FormRotVec {
		v, ok = blendVector(v0, v1, w)
	} else {
		v, ok = eulerOf(rot.Form).blendAngles(v0, v1, w)
	}
	if !ok {
		v = [3]float64{math.NaN(), math.NaN(), math.NaN()}
		if r.opt.Valid != nil {
			r.opt.Valid[i] = 0
		}
	}
	for j, x := range v {
		r.a64[0] = x
		r.finishRow64(r.a64[:1], i, rot.At+j)
	}
}

// blendVector blends two rotation vectors. A rotation has many vectors, along one axis and 2π
// apart. blendVector returns the one nearest to the straight line between the samples. The result
// therefore continues their branch, above π too, if both samples are in one branch.
func blendVector(v0, v1 [3]float64, w float64) (v [3]float64, ok bool) {
	q, ok := slerpQuats(vectorQuat(v0), vectorQuat(v1), w)
	if !ok {
		return v, false
	}
	var line [3]float64
	for j := range line {
		line[j] = float64((1-w)*v0[j]) + float64(w*v1[j])
	}
	if q[3] < 0 {
		q = [4]float64{-q[0], -q[1], -q[2], -q[3]}
	}
	s := math.Sqrt(float64(q[0]*q[0]) + float64(q[1]*q[1]) + float64(q[2]*q[2]))
	// The identity has every axis. Use the axis of the line, and the nearest multiple of 2π.
	if s < 1e-12 {
		n := math.Sqrt(
			float64(line[0]*line[0]) + float64(line[1]*line[1]) + float64(line[2]*line[2]),
		)
		turns := math.Round(n / (2 * math.Pi))
		if turns == 0 {
			return [3]float64{2 * q[0], 2 * q[1], 2 * q[2]}, true
		}
		for j := range v {
			v[j] = line[j] / n * (2 * math.Pi * turns)
		}
		return v, true
	}
	angle := 2 * math.Atan2(s, q[3])
	along := 0.0
	for j := range v {
		v[j] = q[j] / s
		along += float64(line[j] * v[j])
	}
	angle += float64(2 * math.Pi * math.Round((along-angle)/(2*math.Pi)))
	for j := range v {
		v[j] *= angle
	}
	return v, true
}

// vectorQuat returns the quaternion x, y, z, w of a rotation vector.
func vectorQuat(v [3]float64) [4]float64 {
	n := math.Sqrt(float64(v[0]*v[0]) + float64(v[1]*v[1]) + float64(v[2]*v[2]))
	k := 0.5 - float64(n*n)/48 // Taylor series of sin(n/2)/n
	if n > 1e-4 {
		k = math.Sin(n/2) / n
	}
	return [4]float64{k * v[0], k * v[1], k * v[2], math.Cos(n / 2)}
}

// eulerOrder is the axis order of Euler angles.
type eulerOrder struct {
	axes   [3]int // axes of the equivalent turns about fixed axes, first to last
	moving bool   // turns about moving axes; the angles are then stored in reverse order
}

// eulerOf returns the axis order of a form, such as "xyz" for fixed axes or "XYZ" for moving axes.
func eulerOf(form string) eulerOrder {
	e := eulerOrder{moving: form[0] < 'a'} // capital letters name moving axes
	for j := range e.axes {
		e.axes[j] = int(form[j]|0x20) - 'x' // |0x20 makes the letter lower case
	}
	if e.moving { // turns about moving axes equal turns about fixed axes in reverse order
		e.axes[0], e.axes[2] = e.axes[2], e.axes[0]
	}
	return e
}

// fixedOrder converts angles between the order in which they are stored and that of turns about
// fixed axes. It is its own inverse.
func (e eulerOrder) fixedOrder(v [3]float64) [3]float64 {
	if e.moving {
		v[0], v[2] = v[2], v[0]
	}
	return v
}

// blendAngles blends the Euler angles v0 and v1 at weight w by slerp. ok is false if an angle is
// not finite.
func (e eulerOrder) blendAngles(v0, v1 [3]float64, w float64) (v [3]float64, ok bool) {
	v0, v1 = e.fixedOrder(v0), e.fixedOrder(v1)
	q, ok := slerpQuats(e.toQuat(v0), e.toQuat(v1), w)
	if !ok {
		return v, false
	}
	// Both are angles at w between the samples. near follows the shorter arc; line uses the stored
	// values.
	var near, line [3]float64
	for j := range near {
		d := v1[j] - v0[j]
		line[j] = v0[j] + float64(w*d)
		near[j] = v0[j] + float64(w*wrapAngle(d))
	}
	v = e.nearestAngles(q, near)
	for j := range v {
		v[j] = line[j] + wrapAngle(v[j]-line[j])
	}
	return e.fixedOrder(v), true
}

// wrapAngle returns the angle between -π and π that differs from x by full turns.
func wrapAngle(x float64) float64 { return math.Remainder(x, 2*math.Pi) }

// toQuat returns the quaternion x, y, z, w of angles in the order of turns about fixed axes.
func (e eulerOrder) toQuat(v [3]float64) [4]float64 {
	q := [4]float64{3: 1}
	for j, a := range e.axes {
		s, c := math.Sincos(v[j] / 2)
		r := [4]float64{3: c}
		r[a] = s
		q = composeQuats(r, q)
	}
	return q
}

// composeQuats returns the rotation that turns by q, then by p.
func composeQuats(p, q [4]float64) [4]float64 {
	return [4]float64{
		float64(p[3]*q[0]) + float64(p[0]*q[3]) + float64(p[1]*q[2]) - float64(p[2]*q[1]),
		float64(p[3]*q[1]) - float64(p[0]*q[2]) + float64(p[1]*q[3]) + float64(p[2]*q[0]),
		float64(p[3]*q[2]) + float64(p[0]*q[1]) - float64(p[1]*q[0]) + float64(p[2]*q[3]),
		float64(p[3]*q[3]) - float64(p[0]*q[0]) - float64(p[1]*q[1]) - float64(p[2]*q[2]),
	}
}

// nearestAngles returns the Euler angles of a rotation that are nearest to near. It uses the half
// sum and half difference of the outer angles (Bernardes and Viollet, PLoS ONE 17(11), 2022). If
// the middle angle leaves only one of the two defined, the other is chosen by near.
func (e eulerOrder) nearestAngles(q [4]float64, near [3]float64) [3]float64 {
	i, j, k := e.axes[0], e.axes[1], e.axes[2]
	proper := i == k // proper Euler angles, such as zxz
	if proper {
		k = 3 - i - j // the third axis
	}
	sign := float64((i - j) * (j - k) * (k - i) / 2) // 1 if i, j, k is a cyclic order, else -1
	a := q[3]
	b := q[i]
	c := q[j]
	d := q[k] * sign
	bent := 0.0 // offset of the middle angle
	if !proper {
		a = q[3] - q[j]
		b = q[i] + float64(q[k]*sign)
		c = q[j] + q[3]
		d = float64(q[k]*sign) - q[i]
		bent = math.Pi / 2
		near[2] *= sign
	}
	// If mid is closer than eps to 0 or π, only the sum or only the difference of the outer angles
	// is defined.
	const eps = 1e-7
	mid := 2 * math.Atan2(math.Hypot(c, d), math.Hypot(a, b)) // 0 … π
	sum, diff := 2*math.Atan2(b, a), 2*math.Atan2(d, c)
	var v [3]float64
	switch {
	case mid < eps:
		off := wrapAngle(near[0]+near[2]-sum) / 2
		v = [3]float64{near[0] - off, mid, near[2] - off}
	case math.Pi-mid < eps:
		off := wrapAngle(near[2]-near[0]-diff) / 2
		v = [3]float64{near[0] + off, mid, near[2] - off}
	default:
		v = [3]float64{(sum - diff) / 2, mid, (sum + diff) / 2}
	}
	// o is the other set of angles for the same rotation.
	o := [3]float64{v[0] + math.Pi, -v[1], v[2] + math.Pi}
	var dv, do float64 // squared distances of v and o from near
	for x := range v {
		if x == 1 {
			v[1], o[1] = v[1]-bent, o[1]-bent
		}
		p, r := wrapAngle(v[x]-near[x]), wrapAngle(o[x]-near[x])
		dv, do = dv+float64(p*p), do+float64(r*r)
	}
	if do < dv {
		v = o
	}
	if !proper {
		v[2] *= sign
	}
	return v
}
