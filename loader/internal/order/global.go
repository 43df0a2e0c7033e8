package order

import "math/bits"

// permutation is the order "global": a keyed bijection on [0, Len) that computes any position in
// O(1) memory.
type permutation struct {
	length     uint64
	sideLength uint64 // the network permutes sideLength² ≥ length pairs
	keys       [rounds]uint64
}

// rounds is the number of rounds of the Feistel network. Six are enough for its 4-point statistics;
// two more cost 5 ns.
const rounds = 8

// newPermutation returns the permutation of n samples in an epoch.
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

// Len returns the number of samples of the epoch.
func (o *permutation) Len() int64 { return int64(o.length) }

// At returns the sample at position p, 0 ≤ p < Len.
func (o *permutation) At(p int64) int64 {
	x := uint64(p)
	for {
		l, r := x/o.sideLength, x%o.sideLength
		for i := 0; i < rounds; i += 2 {
			l = addModulo(l, scaleTo(Mix(r^o.keys[i]), o.sideLength), o.sideLength)
			r = addModulo(r, scaleTo(Mix(l^o.keys[i+1]), o.sideLength), o.sideLength)
		}
		// Repeat if x is not a sample. sideLength² exceeds length by at most 2·√length + 1, so this
		// is rare.
		if x = l*o.sideLength + r; x < o.length {
			return int64(x)
		}
	}
}

// addModulo returns (a + b) mod m for a, b < m.
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

// Mix is the finalizer of SplitMix64: a bijection that changes about half of the bits if one bit of
// x changes.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// ceilSqrt returns the smallest s with s² ≥ n.
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
