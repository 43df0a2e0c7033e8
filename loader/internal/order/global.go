package order

import "math/bits"

// permutation is the order "global": a keyed bijection on [0, Len), evaluated at any place in O(1) memory.
type permutation struct {
	length     uint64
	sideLength uint64 // it works on side × side ≥ n pairs
	keys       [rounds]uint64
}

// Eight rounds: six make the 4-point statistics of a Feistel network good; two more cost 5 ns.
const rounds = 8

func newPermutation(seed, epoch, n int64) *permutation {
	o := &permutation{length: uint64(max(n, 0))}
	o.sideLength = ceilSqrt(o.length)
	k := deriveKey(seed, epoch)
	for i := range o.keys {
		k += goldenGamma
		o.keys[i] = Mix(k)
	}
	return o
}

// Len is the number of samples of the epoch.
func (o *permutation) Len() int64 { return int64(o.length) }

// At gives the sample at position p, 0 ≤ p < Len.
func (o *permutation) At(p int64) int64 {
	x := uint64(p)
	for {
		l, r := x/o.sideLength, x%o.sideLength
		for i := 0; i < rounds; i += 2 {
			l = addModulo(l, scaleTo(Mix(r^o.keys[i]), o.sideLength), o.sideLength)
			r = addModulo(r, scaleTo(Mix(l^o.keys[i+1]), o.sideLength), o.sideLength)
		}
		// side² exceeds n by at most 2·√n + 1, so walking on is rare.
		if x = l*o.sideLength + r; x < o.length {
			return int64(x)
		}
	}
}

// addModulo is (a + b) mod m for a, b < m.
func addModulo(a, b, m uint64) uint64 {
	if a += b; a >= m {
		a -= m
	}
	return a
}

// scaleTo maps 64 random bits to [0, m).
func scaleTo(x, m uint64) uint64 {
	hi, _ := bits.Mul64(x, m)
	return hi
}

// Mix is the finaliser of SplitMix64.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func ceilSqrt(n uint64) uint64 {
	var s uint64
	for lo, hi := uint64(1), uint64(1)<<32; lo <= hi; {
		m := lo + (hi-lo)/2
		if m*m >= n || m == 1<<32 {
			s, hi = m, m-1
		} else {
			lo = m + 1
		}
	}
	return s
}
