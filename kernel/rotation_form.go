package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// RotationQuat returns the quaternion x, y, z, w of a rotation vector or of Euler angles.
func RotationQuat(form string, v [3]float64) [4]float64 {
	if form == robocache.FormRotVec {
		return vectorQuat(v)
	}
	e := eulerOf(form)
	return e.toQuat(e.fixedOrder(v))
}

// QuatRotation returns the rotation vector or the Euler angles of a unit quaternion x, y, z, w. The
// length of a rotation vector is 0 to π. The middle Euler angle is within ±π/2, or 0 to π if the
// first and the last axis are equal. The other angles are within ±π.
func QuatRotation(form string, q [4]float64) [3]float64 {
	if form == robocache.FormRotVec {
		return quatVector(q)
	}
	e := eulerOf(form)
	v := e.nearestAngles(q, [3]float64{})
	// other is the middle angle of the second set of angles that gives the same rotation.
	low, high, other := -math.Pi/2, math.Pi/2, math.Pi-v[1]
	if e.axes[0] == e.axes[2] {
		low, high, other = 0, math.Pi, -v[1]
	}
	if middle := wrapAngle(v[1]); middle < low || middle > high {
		v = [3]float64{v[0] + math.Pi, other, v[2] + math.Pi}
	}
	for j := range v {
		v[j] = wrapAngle(v[j])
	}
	return e.fixedOrder(v)
}

// quatVector returns the rotation vector of a unit quaternion.
func quatVector(q [4]float64) (v [3]float64) {
	if q[3] < 0 {
		q = [4]float64{-q[0], -q[1], -q[2], -q[3]}
	}
	s := math.Sqrt(float64(q[0]*q[0]) + float64(q[1]*q[1]) + float64(q[2]*q[2]))
	k := 2.0
	if s > 1e-12 {
		k = 2 * math.Atan2(s, q[3]) / s
	}
	for j := range v {
		v[j] = k * q[j]
	}
	return v
}
