package order

import "math/bits"

// permutation is the order "global": a keyed bijection on [0, Len), evaluated at any place in O(1) memory.
type permutation struct {
	n    uint64
	side uint64 // it works on side × side ≥ n pairs
	keys [rounds]uint64
}

// Eight rounds: six make the 4-point statistics of a Feistel network good; two more cost 5 ns.
const rounds = 8

func newPermutation(seed, epoch, n int64) *permutation {
	o := &permutation{n: uint64(max(n, 0))}
	o.side = ceilSqrt(o.n)
	k := keyOf(seed, epoch)
	for i := range o.keys {
		k += golden
		o.keys[i] = Mix(k)
	}
	return o
}

// Len is the number of samples of the epoch.
func (o *permutation) Len() int64 { return int64(o.n) }

// At gives the sample at position p, 0 ≤ p < Len.
func (o *permutation) At(p int64) int64 {
	x := uint64(p)
	for {
		l, r := x/o.side, x%o.side
		for i := 0; i < rounds; i += 2 {
			l = rotate(l, below(Mix(r^o.keys[i]), o.side), o.side)
			r = rotate(r, below(Mix(l^o.keys[i+1]), o.side), o.side)
		}
		// side² exceeds n by at most 2·√n + 1, so walking on is rare.
		if x = l*o.side + r; x < o.n {
			return int64(x)
		}
	}
}

// rotate is (a + b) mod m for a, b < m.
func rotate(a, b, m uint64) uint64 {
	if a += b; a >= m {
		a -= m
	}
	return a
}

// below maps 64 random bits to [0, m).
func below(x, m uint64) uint64 {
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
