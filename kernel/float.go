package kernel

import "math"

// FMA32 returns w·d + v, rounded once to float32.
//
// The product w·d is exact in float64 (24 + 24 bits), so only the sum is rounded before the
// conversion. This double rounding is wrong in two cases only: if the float64 sum lies exactly half
// way between two float32 values, or if the float32 result is subnormal. In these cases the error
// term of TwoSum is used to round the sum to odd first.
//
// A fused multiply-add in float64 gives the same sum, because the product is exact. The bits
// therefore do not depend on GOAMD64.
func FMA32(w, d, v float32) float32 {
	s := float64(w)*float64(d) + float64(v)
	if roundsOnce(s) {
		return float32(s)
	}
	return fma32Odd(w, d, v)
}

// roundsOnce reports whether converting s to float32 gives the result of a single rounding. s is
// the float64 sum of an exact product and a float32. The conversion drops 29 bits; s is half way if
// they are 1 followed by zeros. Below exponent -126 the result would be subnormal.
func roundsOnce(s float64) bool {
	b := math.Float64bits(s)
	return b&(1<<29-1) != 1<<28 && b&(0x7ff<<52) >= (1023-126)<<52
}

// fma32Odd computes FMA32 by rounding the float64 sum to odd before the conversion.
func fma32Odd(w, d, v32 float32) float32 {
	p := float64(w) * float64(d)
	v := float64(v32)
	s := p + v
	if math.IsNaN(s) || math.IsInf(s, 0) {
		return float32(s)
	}
	vv := s - p
	e := (p - (s - vv)) + (v - vv) // TwoSum: the exact sum is s + e
	if e == 0 {
		return float32(s)
	}
	b := math.Float64bits(s)
	if b&1 == 0 {
		// The exact sum is not s: it lies on the side of s given by the sign of e. The odd neighbor
		// on that side makes the conversion round correctly.
		if (e > 0) == (s > 0) {
			b++
		} else {
			b--
		}
	}
	return float32(math.Float64frombits(b))
}

// roundOdd32 converts to float32. Inexact values become the neighbor with an odd significand.
// Rounding the result to a type of at most 22 significant bits then equals rounding x once.
func roundOdd32(x float64) float32 {
	f := float32(x)
	if float64(f) == x || math.IsNaN(x) {
		return f
	}
	b := math.Float32bits(f)
	if b&1 == 0 {
		if math.Abs(float64(f)) > math.Abs(x) {
			b--
		} else {
			b++
		}
	}
	return math.Float32frombits(b)
}

// Float16to32 returns the value of a half-precision number.
func Float16to32(h uint16) float32 {
	sign := uint32(h>>15) << 31
	e := uint32(h >> 10 & 31)
	m := uint32(h & 0x3ff)
	switch {
	case e == 31: // infinity or NaN
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e != 0: // normal; 112 is the difference of the exponent biases, 127-15
		return math.Float32frombits(sign | (e+112)<<23 | m<<13)
	}
	// A subnormal is m·2^-24, which is exact in float32.
	f := float32(m) * 0x1p-24
	return math.Float32frombits(sign | math.Float32bits(f))
}

// Float32to16 rounds to half precision, ties to even. Values that round beyond 65504 become
// infinite.
func Float32to16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // 65520 is half way to the next power of two, which is infinity
		return sign | 0x7c00
	case b >= 0x38800000: // at least 2^-14: normal
		return sign | uint16((b+0xfff+(b>>13&1)-(112<<23))>>13)
	}
	// Subnormal: adding 1/2 aligns the unit 2^-24 with the last bit of float32, so that the
	// addition does the rounding.
	s := math.Float32frombits(b) + 0.5
	return sign | uint16(math.Float32bits(s)-0x3f000000)
}

// BFloat16to32 returns the value of a bfloat16 number.
func BFloat16to32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32toB16 rounds to bfloat16, ties to even. It tests for NaN first, because rounding would
// turn some NaNs into infinity.
func Float32toB16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // a quiet NaN
	}
	// Adding 0x7fff rounds up above half; the lowest bit that is kept rounds ties to even.
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// Float64to16 rounds to half precision once.
func Float64to16(x float64) uint16 { return Float32to16(roundOdd32(x)) }

// Float64toB16 rounds to bfloat16 once.
func Float64toB16(x float64) uint16 { return Float32toB16(roundOdd32(x)) }
