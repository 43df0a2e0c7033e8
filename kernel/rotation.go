package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// rotation blends the channels of one rotation that is written in another form than a quaternion
// (K21).
func (r *run) rotation(i, a, b int, w float64, rot robocache.Rotation) {
	if rot.Form == robocache.FormQuat {
		r.quat(i, a, b, w, [4]int{rot.At, rot.At + 1, rot.At + 2, rot.At + 3})
		return
	}
	var v0, v1 [3]float64
	r.src.load64(v0[:], a, rot.At)
	r.src.load64(v1[:], b, rot.At)
	var v [3]float64
	var ok bool
	if rot.Form == robocache.FormRotVec {
		v, ok = blendVector(v0, v1, w)
	} else {
		v, ok = eulerOf(rot.Form).blend(v0, v1, w)
	}
	if !ok {
		v = [3]float64{math.NaN(), math.NaN(), math.NaN()}
		if r.opt.Valid != nil {
			r.opt.Valid[i] = 0
		}
	}
	for j, x := range v {
		r.a64[0] = x
		r.finish64(r.a64[:1], i, rot.At+j)
	}
}

// blendVector: a rotation is written by all the vectors along its axis that are 2π apart. The one
// nearest to the straight line between the samples goes on where they left off, above π too: where
// both are of one branch the result is, and it meets each at its end.
func blendVector(v0, v1 [3]float64, w float64) (v [3]float64, ok bool) {
	q, ok := slerp(vectorQuat(v0), vectorQuat(v1), w)
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
	if s < 1e-12 { // no rotation has every axis: the line's, at the next multiple of 2π
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
	angle, along := 2*math.Atan2(s, q[3]), 0.0
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

// vectorQuat is the quaternion x, y, z, w of a rotation vector.
func vectorQuat(v [3]float64) [4]float64 {
	n := math.Sqrt(float64(v[0]*v[0]) + float64(v[1]*v[1]) + float64(v[2]*v[2]))
	k := 0.5 - float64(n*n)/48 // sin(n/2)/n
	if n > 1e-4 {
		k = math.Sin(n/2) / n
	}
	return [4]float64{k * v[0], k * v[1], k * v[2], math.Cos(n / 2)}
}

// euler is an order of axes.
type euler struct {
	axes   [3]int // of the equivalent turns about fixed axes, first to last
	moving bool   // the angles are written in the other order
}

func eulerOf(form string) euler {
	e := euler{moving: form[0] < 'a'}
	for j := range e.axes {
		e.axes[j] = int(form[j]|0x20) - 'x'
	}
	if e.moving { // turns about moving axes are those about fixed ones, in reverse
		e.axes[0], e.axes[2] = e.axes[2], e.axes[0]
	}
	return e
}

func (e euler) turned(v [3]float64) [3]float64 {
	if e.moving {
		v[0], v[2] = v[2], v[0]
	}
	return v
}

func (e euler) blend(v0, v1 [3]float64, w float64) (v [3]float64, ok bool) {
	v0, v1 = e.turned(v0), e.turned(v1)
	q, ok := slerp(e.quat(v0), e.quat(v1), w)
	if !ok {
		return v, false
	}
	var near, line [3]float64 // between the samples: each angle the short way, and as it is written
	for j := range near {
		d := v1[j] - v0[j]
		line[j] = v0[j] + float64(w*d)
		near[j] = v0[j] + float64(w*turn(d))
	}
	v = e.angles(q, near)
	for j := range v {
		v[j] = line[j] + turn(v[j]-line[j])
	}
	return e.turned(v), true
}

// turn is an angle's part between -π and π.
func turn(x float64) float64 { return math.Remainder(x, 2*math.Pi) }

func (e euler) quat(v [3]float64) [4]float64 {
	q := [4]float64{3: 1}
	for j, a := range e.axes {
		s, c := math.Sincos(v[j] / 2)
		r := [4]float64{3: c}
		r[a] = s
		q = after(r, q)
	}
	return q
}

// after is the turn q, then p.
func after(p, q [4]float64) [4]float64 {
	return [4]float64{
		float64(p[3]*q[0]) + float64(p[0]*q[3]) + float64(p[1]*q[2]) - float64(p[2]*q[1]),
		float64(p[3]*q[1]) - float64(p[0]*q[2]) + float64(p[1]*q[3]) + float64(p[2]*q[0]),
		float64(p[3]*q[2]) + float64(p[0]*q[1]) - float64(p[1]*q[0]) + float64(p[2]*q[3]),
		float64(p[3]*q[3]) - float64(p[0]*q[0]) - float64(p[1]*q[1]) - float64(p[2]*q[2]),
	}
}

// angles are the Euler angles of a rotation that lie nearest to near, by the half sum and half
// difference of the outer ones (Bernardes and Viollet, PLoS ONE 17(11), 2022). Where the middle
// angle leaves only one of the two defined, the other is near's.
func (e euler) angles(q [4]float64, near [3]float64) [3]float64 {
	i, j, k := e.axes[0], e.axes[1], e.axes[2]
	proper := i == k
	if proper {
		k = 3 - i - j
	}
	sign := float64((i - j) * (j - k) * (k - i) / 2)
	a, b, c, d := q[3], q[i], q[j], q[k]*sign
	bent := 0.0 // what the middle angle is counted from
	if !proper {
		a, b, c, d = q[3]-q[j], q[i]+float64(q[k]*sign), q[j]+q[3], float64(q[k]*sign)-q[i]
		bent = math.Pi / 2
		near[2] *= sign
	}
	const eps = 1e-7
	mid := 2 * math.Atan2(math.Hypot(c, d), math.Hypot(a, b)) // 0 … π
	sum, diff := 2*math.Atan2(b, a), 2*math.Atan2(d, c)
	var v [3]float64
	switch {
	case mid < eps:
		off := turn(near[0]+near[2]-sum) / 2
		v = [3]float64{near[0] - off, mid, near[2] - off}
	case math.Pi-mid < eps:
		off := turn(near[2]-near[0]-diff) / 2
		v = [3]float64{near[0] + off, mid, near[2] - off}
	default:
		v = [3]float64{(sum - diff) / 2, mid, (sum + diff) / 2}
	}
	// The same rotation, written the other way round.
	o := [3]float64{v[0] + math.Pi, -v[1], v[2] + math.Pi}
	var dv, do float64
	for x := range v {
		if x == 1 {
			v[1], o[1] = v[1]-bent, o[1]-bent
		}
		p, r := turn(v[x]-near[x]), turn(o[x]-near[x])
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
