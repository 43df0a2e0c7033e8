package stats

import (
	"context"
	"math"
	"slices"
)

// Quantile is one of the quantiles that the field stores.
type Quantile struct {
	Name string
	Q    float64
}

// Quantiles are lerobot's, ascending.
var Quantiles = []Quantile{{"q01", 0.01}, {"q10", 0.1}, {"q50", 0.5}, {"q90", 0.9}, {"q99", 0.99}}

// rank is the place of a quantile among n sorted values: between v[lo] and v[hi], by numpy's "linear".
func rank(q float64, n int64) (lo, hi int64, t float64) {
	at := float64(float64(n-1) * q) // rounded before it is subtracted from
	lo = int64(math.Floor(at))
	return lo, min(lo+1, n-1), at - math.Floor(at)
}

// lerp is numpy's _lerp, whose two halves meet so that the result never leaves [a,b]. The conversions forbid fused multiply-add.
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

// quantiles takes the quantiles of finite values, which it may reorder. A first pass counts how many lie in each of equal parts of [lo,hi], a second
// one gathers the parts that hold a wanted rank: the order of the rest does not matter.
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
	hists map[uint64][]int64 // prefix → counts of the next digit
	pre   []uint64           // keys of hists, ascending
}

type target struct {
	rank   int64  // of the value
	inside int64  // rank among the values that share prefix
	prefix uint64 // the digits settled so far
}

func newSearch(n int64) *search {
	s := &search{}
	for _, q := range Quantiles {
		lo, hi, _ := rank(q.Q, n)
		for _, r := range []int64{lo, hi} {
			if !slices.ContainsFunc(s.want, func(t target) bool { return t.rank == r }) {
				s.want = append(s.want, target{rank: r, inside: r})
			}
		}
	}
	return s
}

func (s *search) begin(width int) {
	s.hists = map[uint64][]int64{}
	for _, t := range s.want {
		if s.hists[t.prefix] == nil {
			s.hists[t.prefix] = make([]int64, 1<<width)
		}
	}
	s.pre = s.pre[:0]
	for p := range s.hists {
		s.pre = append(s.pre, p)
	}
	slices.Sort(s.pre)
}

func (s *search) end(width int) {
	for i := range s.want {
		t := &s.want[i]
		for digit, c := range s.hists[t.prefix] {
			if t.inside < c {
				t.prefix = t.prefix<<width | uint64(digit)
				break
			}
			t.inside -= c
		}
	}
	s.hists = nil
}

func (s *search) key(r int64) uint64 {
	for _, t := range s.want {
		if t.rank == r {
			return t.prefix
		}
	}
	return 0
}

// Blocks gives the rows of a column group, as little-endian bytes, in blocks; it can be run again and gives the same rows.
type Blocks func(ctx context.Context, yield func(raw []byte) error) error

// refine finds the exact quantiles of every column by reading the rows several times. n holds each column's finite values.
// Columns are taken in groups that keep the counts inside budget.
func refine(ctx context.Context, el element, width int, n []int64, rows Blocks, budget int64) ([][]float64, error) {
	perColumn := int64(2*len(Quantiles)) * (8 << digitBits)
	group := int(max(1, min(int64(width), budget/perColumn)))
	out := make([][]float64, width)
	for first := 0; first < width; first += group {
		last := min(first+group, width)
		searches := make([]*search, last-first)
		for c := range searches {
			searches[c] = newSearch(max(1, n[first+c]))
		}
		for done := 0; done < el.bits; {
			digit := min(digitBits, el.bits-done)
			shift := el.bits - done - digit
			mask := uint64(1)<<digit - 1
			hists := make([][][]int64, len(searches))
			for c, s := range searches {
				s.begin(digit)
				for _, p := range s.pre {
					hists[c] = append(hists[c], s.hists[p])
				}
			}
			err := rows(ctx, func(raw []byte) error {
				stride := width * el.size
				for base := first * el.size; base < len(raw); base += stride {
					for c, s := range searches {
						p := raw[base+c*el.size:]
						if v := el.value(p); v-v != 0 {
							continue
						}
						k := el.key(p)
						high := uint64(0)
						if done > 0 {
							high = k >> (shift + digit)
						}
						for i, pre := range s.pre {
							if pre == high {
								hists[c][i][k>>shift&mask]++
								break
							}
						}
					}
				}
				return ctx.Err()
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
			q := make([]float64, len(Quantiles))
			if nc := n[first+c]; nc > 0 {
				for i := range Quantiles {
					lo, hi, t := rank(Quantiles[i].Q, nc)
					q[i] = lerp(el.back(s.key(lo)), el.back(s.key(hi)), t)
				}
			}
			out[first+c] = q
		}
	}
	return out, nil
}
