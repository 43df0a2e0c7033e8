package stats

import (
	"context"
	"math"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Quantile is one of the quantiles that the field stores.
type Quantile struct {
	Name string
	Q    float64
}

// Quantiles are lerobot's, ascending.
var Quantiles = []Quantile{{"q01", 0.01}, {"q10", 0.1}, {"q50", 0.5}, {"q90", 0.9}, {"q99", 0.99}}

// rank is the place of a quantile among n sorted values: between v[lo] and v[hi], by numpy's
// "linear".
func rank(q float64, n int64) (lo, hi int64, t float64) {
	at := float64(float64(n-1) * q) // rounded before it is subtracted from
	lo = int64(math.Floor(at))
	return lo, min(lo+1, n-1), at - math.Floor(at)
}

// lerp is numpy's _lerp, whose two halves meet so that the result never leaves [a,b]. The
// conversions forbid fused multiply-add.
func lerp(a, b, t float64) float64 {
	d := b - a
	if t >= 0.5 {
		return b - float64(d*(1-t))
	}
	return a + float64(d*t)
}

// Few values are sorted; of more, only those that lie near a wanted rank.
const (
	sortedWhole = 48
	mostBuckets = 1 << 12
)

// picker takes quantiles of values in memory; its memory is used again.
type picker struct {
	counts []int32
	slot   []uint8  // of near, from 1; 0 = of no interest
	near   [10]part // the buckets of two ranks a quantile
	ranks  []int64  // those wanted of n values
	n      int
}

// bytes is how much memory it keeps.
func (p *picker) bytes() (n int) {
	for i := range p.near {
		n += 8 * cap(p.near[i].values)
	}
	return n + 4*cap(p.counts) + cap(p.slot)
}

// quantiles takes the quantiles of finite values, which it may reorder. A first pass counts how
// many lie in each of equal parts of [lo,hi], a second one gathers the parts that hold a wanted
// rank: the order of the rest does not matter.
func (p *picker) quantiles(v []float64, lo, hi float64) []float64 {
	n := len(v)
	buckets := 64
	for buckets < mostBuckets && buckets < n/8 {
		buckets *= 2
	}
	scale := float64(buckets) / (hi - lo)
	if n <= sortedWhole || !(hi > lo) || math.IsInf(hi-lo, 0) || math.IsInf(scale, 0) {
		slices.Sort(v)
		return wanted(int64(n), func(r int64) float64 { return v[r] })
	}
	// The product grows with the value, so that no bucket holds a value above one of the next.
	in := func(x float64) int { return min(int(float64((x-lo)*scale)), buckets-1) }
	p.counts, p.slot = slices.Grow(p.counts[:0], buckets)[:buckets], slices.Grow(p.slot[:0], buckets)[:buckets]
	counts, slot, near := p.counts, p.slot, 0
	clear(counts)
	clear(slot)
	for _, x := range v {
		counts[in(x)]++
	}
	if p.n != n {
		p.n, p.ranks = n, wantedRanks(int64(n))
	}
	first, b := int64(0), 0
	for _, r := range p.ranks {
		for first+int64(counts[b]) <= r {
			first += int64(counts[b])
			b++
		}
		if slot[b] == 0 {
			p.near[near] = part{first: first, values: p.near[near].values[:0]}
			near++
			slot[b] = uint8(near)
		}
	}
	for _, x := range v {
		if k := slot[in(x)]; k > 0 {
			p.near[k-1].values = append(p.near[k-1].values, x)
		}
	}
	for i := range near {
		slices.Sort(p.near[i].values)
	}
	return wanted(int64(n), func(r int64) float64 {
		for i := range near {
			if at := r - p.near[i].first; at >= 0 && at < int64(len(p.near[i].values)) {
				return p.near[i].values[at]
			}
		}
		return 0 // every wanted rank lies in one
	})
}

// part is the values of a bucket; first is the rank of the least.
type part struct {
	first  int64
	values []float64
}

// wantedRanks are those that the quantiles of n values lie between, ascending.
func wantedRanks(n int64) (out []int64) {
	for _, q := range Quantiles {
		lo, hi, _ := rank(q.Q, n)
		out = append(out, lo, hi)
	}
	slices.Sort(out)
	return out
}

// wanted makes the quantiles of n values out of those at the wanted ranks.
func wanted(n int64, at func(r int64) float64) []float64 {
	out := make([]float64, len(Quantiles))
	if n == 0 {
		return out
	}
	for i, q := range Quantiles {
		lo, hi, t := rank(q.Q, n)
		out[i] = lerp(at(lo), at(hi), t)
	}
	return out
}

// countedQuantiles takes the quantiles of values given as ascending value → how often.
func countedQuantiles(value func(i int) float64, count []int64) []float64 {
	var n int64
	for _, c := range count {
		n += c
	}
	return wanted(n, func(r int64) float64 {
		for i, c := range count {
			if r < c {
				return value(i)
			}
			r -= c
		}
		return 0
	})
}

const digitBits = 11 // one reading of the column settles so many bits of the key

// search narrows the keys of the wanted ranks of one column, digit by digit.
type search struct {
	want  []target
	least uint64    // key of the least value: what is searched is the distance from it
	pre   []uint64  // prefixes of those wanted
	hists [][]int64 // of each: counts of the next digit
}

type target struct {
	rank   int64  // of the value
	inside int64  // rank among the values that share prefix
	prefix uint64 // the digits settled so far
}

func newSearch(n int64) *search {
	s := &search{}
	for _, r := range slices.Compact(wantedRanks(n)) {
		s.want = append(s.want, target{rank: r, inside: r})
	}
	return s
}

func (s *search) begin(digit int) {
	s.pre, s.hists = s.pre[:0], s.hists[:0]
	for _, t := range s.want { // ascending, and so are their prefixes
		if n := len(s.pre); n == 0 || s.pre[n-1] != t.prefix {
			s.pre, s.hists = append(s.pre, t.prefix), append(s.hists, make([]int64, 1<<digit))
		}
	}
}

// count counts a key's next digit, where the digits before it are wanted.
func (s *search) count(k uint64, digit int) {
	high := k >> digit
	for i, pre := range s.pre {
		if pre == high {
			s.hists[i][k&(1<<digit-1)]++
			return
		}
	}
}

func (s *search) end(digit int) {
	for i := range s.want {
		t := &s.want[i]
		for d, c := range s.hists[slices.Index(s.pre, t.prefix)] {
			if t.inside < c {
				t.prefix = t.prefix<<digit | uint64(d)
				break
			}
			t.inside -= c
		}
	}
}

func (s *search) key(r int64) uint64 {
	for _, t := range s.want {
		if t.rank == r {
			return t.prefix
		}
	}
	return 0
}

// Blocks gives the rows of a column group, as little-endian bytes, in blocks; it can be run again
// and gives the same rows.
type Blocks func(ctx context.Context, yield func(raw []byte) error) error

// key orders numbers as unsigned integers: a float's bits do, once the sign bit is set on positive
// ones and all bits are turned on negative ones.
func key(v float64) uint64 {
	b := math.Float64bits(v)
	return b ^ (uint64(int64(b)>>63) | 1<<63)
}

// ofKey is the number of a key.
func ofKey(k uint64) float64 { return math.Float64frombits(k ^ (uint64(int64(^k)>>63) | 1<<63)) }

// refine finds the exact quantiles of every column by reading the rows several times: of the keys,
// the digits in which those of m's least and greatest value differ. Columns are taken in groups
// that keep the counts inside budget.
func refine(
	ctx context.Context,
	dtype robocache.DType,
	m *Moments,
	rows Blocks,
	budget int64,
) ([][]float64, error) {
	width := len(m.N)
	perColumn := int64(2*len(Quantiles)) * (8 << digitBits)
	group := int(max(1, min(int64(width), budget/perColumn)))
	lowest := 0 // bits of a key that are the same in all
	if dtype == robocache.Float16 || dtype == robocache.BFloat16 || dtype == robocache.Float32 {
		lowest = 52 - 23
	}
	out := make([][]float64, width)
	var block []float64
	for first := 0; first < width; first += group {
		searches := make([]*search, min(group, width-first))
		most := 0
		for c := range searches {
			c0 := first + c
			s := newSearch(max(1, m.N[c0]))
			if m.N[c0] > 0 {
				s.least = key(m.Min[c0]) >> lowest
				most = max(most, bits.Len64(key(m.Max[c0])>>lowest-s.least))
			}
			searches[c] = s
		}
		for done := 0; done < most; {
			digit := min(digitBits, most-done)
			shift := most - done - digit
			for _, s := range searches {
				s.begin(digit)
			}
			err := rows(ctx, func(raw []byte) error {
				return each(raw, width*dtype.Size(), func(part []byte) error {
					block = robocache.Float64s(block[:0], dtype, part)
					for at := first; at < len(block); at += width {
						for c, s := range searches {
							if v := block[at+c]; v-v == 0 {
								s.count((key(v)>>lowest-s.least)>>shift, digit)
							}
						}
					}
					return ctx.Err()
				})
			})
			if err != nil {
				return nil, err
			}
			for _, s := range searches {
				s.end(digit)
			}
			done += digit
		}
		for c, s := range searches {
			out[first+c] = wanted(m.N[first+c], func(r int64) float64 {
				k := (s.key(r) + s.least) << lowest
				if k>>63 == 0 { // negative: the lowest bits are turned, too
					k |= 1<<lowest - 1
				}
				return ofKey(k)
			})
		}
	}
	return out, nil
}
