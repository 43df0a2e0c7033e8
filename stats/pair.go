package stats

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Two columns are counted side by side: the numbers of each are added one after the other, and alone each would wait for the one before it.

// both takes the values of columns c and c+1 of w into a and b; false where the type has no such way.
func (e *element) both(a, b []float64, raw []byte, c, w int) bool {
	le := binary.LittleEndian
	b = b[:len(a)]
	step := w * e.size
	raw = raw[c*e.size:]
	switch e.kind {
	case robocache.Float32:
		for i, at := 0, 0; i < len(a); i, at = i+1, at+step {
			p := le.Uint64(raw[at:])
			a[i], b[i] = float64(math.Float32frombits(uint32(p))), float64(math.Float32frombits(uint32(p>>32)))
		}
	case robocache.Float64:
		for i, at := 0, 0; i < len(a); i, at = i+1, at+step {
			p := raw[at:][:16]
			a[i], b[i] = math.Float64frombits(le.Uint64(p)), math.Float64frombits(le.Uint64(p[8:]))
		}
	default:
		return false
	}
	return true
}

// pair adds values to columns c and c+1, to the bit as column does; false, and nothing is added, where not all of them are finite.
func (m *Moments) pair(c int, a, b []float64) bool {
	n := len(a)
	if n == 0 {
		return true
	}
	b = b[:n]
	baseA, baseB := m.base[c], m.base[c+1]
	if m.N[c] == 0 {
		baseA = a[0]
	}
	if m.N[c+1] == 0 {
		baseB = b[0]
	}
	loA, hiA, loB, hiB := m.Min[c], m.Max[c], m.Min[c+1], m.Max[c+1]
	var sumA, sumB float64
	for i, v := range a {
		u := b[i]
		sumA += v - baseA
		sumB += u - baseB
		if v < loA {
			loA = v
		}
		if v > hiA {
			hiA = v
		}
		if u < loB {
			loB = u
		}
		if u > hiB {
			hiB = u
		}
	}
	if sumA-sumA != 0 || sumB-sumB != 0 { // as it is with any value that is not finite
		return false
	}
	m.Min[c], m.Max[c], m.base[c] = loA, hiA, baseA
	m.Min[c+1], m.Max[c+1], m.base[c+1] = loB, hiB, baseB
	meanA, meanB := sumA/float64(n), sumB/float64(n)
	var m2A, m2B, restA, restB float64
	for i, v := range a {
		dA, dB := v-baseA-meanA, b[i]-baseB-meanB
		m2A += float64(dA * dA)
		restA += dA
		m2B += float64(dB * dB)
		restB += dB
	}
	m2A -= float64(restA * restA / float64(n))
	m2B -= float64(restB * restB / float64(n))
	m.merge(c, int64(n), meanA+restA/float64(n), m2A)
	m.merge(c+1, int64(n), meanB+restB/float64(n), m2B)
	return true
}
