package vector

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// The forms of a rotation beside those of robocache.Rotation.
const (
	FormQuat     = "quat"          // x, y, z, w
	FormQuatW    = "quat_wxyz"     // w, x, y, z
	FormMatrix   = "matrix"        // nine numbers, row by row
	FormRot6D    = "rot6d"         // the first two rows of the matrix
	FormRot6DCol = "rot6d_columns" // the first two columns of the matrix, one after the other
)

// FormWidth returns the number of columns of a form, or 0 if the form is unknown.
func FormWidth(form string) int {
	switch form {
	case FormQuat, FormQuatW:
		return 4
	case FormMatrix:
		return 9
	case FormRot6D, FormRot6DCol:
		return 6
	}
	return robocache.Rotation{Form: form}.Width()
}

// matrix is a rotation matrix, row by row.
type matrix [9]float64

// identity is the rotation by no angle.
var identity = matrix{0: 1, 4: 1, 8: 1}

// readRotation returns the matrix of a rotation. Quaternions and the rows of six numbers need not
// have length 1. A rotation without a direction, such as zeros, is the identity.
func readRotation(form string, v []float64) matrix {
	switch form {
	case FormQuat:
		return quatMatrix([4]float64(v))
	case FormQuatW:
		return quatMatrix([4]float64{v[1], v[2], v[3], v[0]})
	case FormMatrix:
		return matrix(v)
	case FormRot6D:
		return orthonormal([3]float64(v), [3]float64(v[3:]))
	case FormRot6DCol:
		m := orthonormal([3]float64(v), [3]float64(v[3:]))
		return m.transposed()
	}
	return quatMatrix(kernel.RotationQuat(form, [3]float64(v)))
}

// writeRotation writes a rotation in a form. A quaternion has w ≥ 0.
func writeRotation(form string, m *matrix, dst []float64) {
	switch form {
	case FormMatrix:
		copy(dst, m[:])
	case FormRot6D:
		copy(dst, m[:6])
	case FormRot6DCol:
		t := m.transposed()
		copy(dst, t[:6])
	case FormQuat:
		q := m.toQuat()
		copy(dst, q[:])
	case FormQuatW:
		q := m.toQuat()
		dst[0] = q[3]
		copy(dst[1:], q[:3])
	default:
		v := kernel.QuatRotation(form, m.toQuat())
		copy(dst, v[:])
	}
}

// orthonormal returns the matrix whose first row has the direction of a, and whose second row lies
// in the plane of a and b.
func orthonormal(a, b [3]float64) matrix {
	if !normalizeRow(&a) {
		return identity
	}
	along := dotRows(a, b)
	for j := range b {
		b[j] -= float64(along * a[j])
	}
	if !normalizeRow(&b) {
		return identity
	}
	return matrix(slices.Concat(a[:], b[:], []float64{
		float64(a[1]*b[2]) - float64(a[2]*b[1]),
		float64(a[2]*b[0]) - float64(a[0]*b[2]),
		float64(a[0]*b[1]) - float64(a[1]*b[0]),
	}))
}

func dotRows(a, b [3]float64) float64 {
	return float64(a[0]*b[0]) + float64(a[1]*b[1]) + float64(a[2]*b[2])
}

// normalizeRow divides v by its length. It returns false if the length is 0.
func normalizeRow(v *[3]float64) bool {
	n := math.Sqrt(dotRows(*v, *v))
	if n == 0 {
		return false
	}
	for j := range v {
		v[j] /= n
	}
	return true
}

func (m *matrix) transposed() matrix {
	return matrix{m[0], m[3], m[6], m[1], m[4], m[7], m[2], m[5], m[8]}
}

// apply returns m·v.
func (m *matrix) apply(v [3]float64) (out [3]float64) {
	for i := range out {
		out[i] = dotRows([3]float64(m[3*i:]), v)
	}
	return out
}

// compose returns m·o.
func (m *matrix) compose(o *matrix) (out matrix) {
	columns := o.transposed()
	for i := range out {
		out[i] = dotRows([3]float64(m[i/3*3:]), [3]float64(columns[i%3*3:]))
	}
	return out
}

// quatMatrix returns the matrix of a quaternion x, y, z, w.
func quatMatrix(q [4]float64) matrix {
	n := math.Sqrt(
		float64(q[0]*q[0]) + float64(q[1]*q[1]) + float64(q[2]*q[2]) + float64(q[3]*q[3]),
	)
	if n == 0 {
		return identity
	}
	x, y, z, w := q[0]/n, q[1]/n, q[2]/n, q[3]/n
	xx, yy, zz, ww := float64(x*x), float64(y*y), float64(z*z), float64(w*w)
	xy, xz, yz := float64(x*y), float64(x*z), float64(y*z)
	wx, wy, wz := float64(w*x), float64(w*y), float64(w*z)
	return matrix{
		xx - yy - zz + ww, 2 * (xy - wz), 2 * (xz + wy),
		2 * (xy + wz), yy - xx - zz + ww, 2 * (yz - wx),
		2 * (xz - wy), 2 * (yz + wx), zz - xx - yy + ww,
	}
}

// toQuat returns the unit quaternion x, y, z, w of a matrix, with w ≥ 0. It divides by the largest of
// the four numbers.
func (m *matrix) toQuat() (q [4]float64) {
	trace := m[0] + m[4] + m[8]
	pivots := []float64{m[0], m[4], m[8], trace}
	i := slices.Index(pivots, slices.Max(pivots))
	if i == 3 {
		q = [4]float64{m[7] - m[5], m[2] - m[6], m[3] - m[1], 1 + trace}
	} else {
		j, k := (i+1)%3, (i+2)%3
		q[i] = 1 - trace + float64(2*m[4*i])
		q[j] = m[3*j+i] + m[3*i+j]
		q[k] = m[3*k+i] + m[3*i+k]
		q[3] = m[3*k+j] - m[3*j+k]
	}
	n := math.Sqrt(
		float64(q[0]*q[0]) + float64(q[1]*q[1]) + float64(q[2]*q[2]) + float64(q[3]*q[3]),
	)
	if q[3] < 0 {
		n = -n
	}
	for c := range q {
		q[c] /= n
	}
	return q
}
