package loader

import "math/bits"

// Order is the order of one epoch: a bijection on [0, Len), evaluated at any place in O(1) memory.
// It is a pure function of (order mode, seed, epoch, number of samples): L2.
type Order struct {
	n    uint64
	side uint64 // the permutation works on side × side ≥ n pairs; 0 = file order
	keys [rounds]uint64
}

// Eight rounds: six make the 4-point statistics of a Feistel network good; two more cost 5 ns.
const rounds = 8

func newOrder(mode Shuffle, seed, epoch, n int64) *Order {
	o := &Order{n: uint64(max(n, 0))}
	if mode == FileOrder || n < 2 {
		return o
	}
	o.side = ceilSqrt(o.n)
	// seed and epoch go through the mixer one after the other, so that (seed, epoch+1) and (seed+1, epoch) have nothing in common.
	k := mix(mix(uint64(seed)^0x9e3779b97f4a7c15) + uint64(epoch))
	for i := range o.keys {
		k += 0x9e3779b97f4a7c15
		o.keys[i] = mix(k)
	}
	return o
}

// Len is the number of samples of the epoch.
func (o *Order) Len() int64 { return int64(o.n) }

// At gives the sample at position p, 0 ≤ p < Len.
func (o *Order) At(p int64) int64 {
	if o.side == 0 {
		return p
	}
	x := uint64(p)
	for {
		l, r := x/o.side, x%o.side
		for i := 0; i < rounds; i += 2 {
			l = rotate(l, below(mix(r^o.keys[i]), o.side), o.side)
			r = rotate(r, below(mix(l^o.keys[i+1]), o.side), o.side)
		}
		// side² exceeds n by at most 2·√n + 1, so walking on is rare.
		if x = l*o.side + r; x < o.n {
			return int64(x)
		}
	}
}

// Fill writes the samples at positions from, from+1, … into dst and says how many there were.
func (o *Order) Fill(dst []int64, from int64) int {
	n := 0
	for ; n < len(dst) && from+int64(n) < int64(o.n); n++ {
		dst[n] = o.At(from + int64(n))
	}
	return n
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

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
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

// Lane is (0, 1): the order has no shards.
func (o *Order) Lane(int64) (lane, lanes int32) { return 0, 1 }
