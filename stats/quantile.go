package stats

import (
	"context"
	"math"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Quantile is one of the quantiles that datasets store.
type Quantile struct {
	Name string
	Q    float64
}

// Quantiles are those of lerobot, ascending.
var Quantiles = []Quantile{{"q01", 0.01}, {"q10", 0.1}, {"q50", 0.5}, {"q90", 0.9}, {"q99", 0.99}}

// quantileRank returns the position of a quantile among n sorted values, between v[lo] and v[hi],
// by numpy's method "linear".
func quantileRank(q float64, n int64) (lo, hi int64, t float64) {
	at := float64(float64(n-1) * q) // rounded before the subtraction
	lo = int64(math.Floor(at))
	return lo, min(lo+1, n-1), at - math.Floor(at)
}

// lerpNumpy computes numpy's _lerp. Its two halves meet so that the result never leaves [a,b]. The
// conversions prevent a fused multiply-add.
func lerpNumpy(a, b, t float64) float64 {
	d := b - a
	if t >= 0.5 {
		return b - float64(d*(1-t))
	}
	return a + float64(d*t)
}

// Up to sortedWhole values are sorted. Of more values, only those near a wanted rank are sorted.
const (
	sortedWhole = 48
	mostBuckets = 1 << 12
)

// picker computes quantiles of values in memory. Its memory is reused.
type picker struct {
	counts []int32
	slot   []uint8          // index in near plus 1; 0 = not needed
	near   [10]bucketValues // buckets of the two ranks of each quantile
	ranks  []int64          // wanted ranks among n values
	n      int
}

// heldBytes returns the size of the memory that the picker keeps.
func (p *picker) heldBytes() (n int) {
	for i := range p.near {
		n += 8 * cap(p.near[i].values)
	}
	return n + 4*cap(p.counts) + cap(p.slot)
}

// quantiles returns the quantiles of finite values, which it may reorder. A first pass counts the
// values in each of several equal parts of [lo,hi]. A second pass gathers the parts that contain a
// wanted rank. The order of other values does not matter.
func (p *picker) quantiles(v []float64, lo, hi float64) []float64 {
	n := len(v)
	buckets := 64
	for buckets < mostBuckets && buckets < n/8 {
		buckets *= 2
	}
	scale := float64(buckets) / (hi - lo)
	if n <= sortedWhole || !(hi > lo) || math.IsInf(hi-lo, 0) || math.IsInf(scale, 0) {
		slices.Sort(v)
		return quantilesAt(int64(n), func(r int64) float64 { return v[r] })
	}
	// The product is monotonic in the value, so no bucket has a value above one of the next.
	in := func(x float64) int { return min(int(float64((x-lo)*scale)), buckets-1) }
	p.counts = slices.Grow(p.counts[:0], buckets)[:buckets]
	p.slot = slices.Grow(p.slot[:0], buckets)[:buckets]
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
			p.near[near] = bucketValues{first: first, values: p.near[near].values[:0]}
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
	return quantilesAt(int64(n), func(r int64) float64 {
		for i := range near {
			if at := r - p.near[i].first; at >= 0 && at < int64(len(p.near[i].values)) {
				return p.near[i].values[at]
			}
		}
		return 0 // unreachable: every wanted rank is in one of the buckets
	})
}

// bucketValues is the values of a bucket. first is the rank of the smallest.
type bucketValues struct {
	first  int64
	values []float64
}

// wantedRanks returns the ranks between which the quantiles of n values lie, ascending.
func wantedRanks(n int64) (out []int64) {
	for _, q := range Quantiles {
		lo, hi, _ := quantileRank(q.Q, n)
		out = append(out, lo, hi)
	}
	slices.Sort(out)
	return out
}

// quantilesAt returns the quantiles of n values. at returns the value at a wanted rank.
func quantilesAt(n int64, at func(r int64) float64) []float64 {
	out := make([]float64, len(Quantiles))
	if n == 0 {
		return out
	}
	for i, q := range Quantiles {
		lo, hi, t := quantileRank(q.Q, n)
		out[i] = lerpNumpy(at(lo), at(hi), t)
	}
	return out
}

// countedQuantiles returns the quantiles of ascending values with counts.
func countedQuantiles(value func(i int) float64, count []int64) []float64 {
	var n int64
	for _, c := range count {
		n += c
	}
	return quantilesAt(n, func(r int64) float64 {
		for i, c := range count {
			if r < c {
				return value(i)
			}
			r -= c
		}
		return 0
	})
}

const digitBits = 11 // number of bits of the key that one pass over the column determines

// keySearch finds the keys of the wanted ranks of one column, digit by digit.
type keySearch struct {
	want  []target
	least uint64    // key of the smallest value; the search uses distances from it
	pre   []uint64  // prefixes of the wanted keys
	hists [][]int64 // for each prefix: counts of the next digit
	slots []uint8   // see prefixSlots
}

type target struct {
	rank   int64  // of the value
	inside int64  // rank among the values with the same prefix
	prefix uint64 // the digits found so far
}

func newSearch(n int64) *keySearch {
	s := &keySearch{}
	for _, r := range slices.Compact(wantedRanks(n)) {
		s.want = append(s.want, target{rank: r, inside: r})
	}
	return s
}

func (s *keySearch) beginDigit(digit int) {
	s.pre, s.hists, s.slots = s.pre[:0], s.hists[:0], nil
	for _, t := range s.want { // sorted, and so are their prefixes
		if n := len(s.pre); n == 0 || s.pre[n-1] != t.prefix {
			s.pre, s.hists = append(s.pre, t.prefix), append(s.hists, make([]int64, 1<<digit))
		}
	}
}

// countKey counts the next digit of a key if the digits before it are wanted.
func (s *keySearch) countKey(k uint64, digit int) {
	high := k >> digit
	for i, pre := range s.pre {
		if pre == high {
			s.hists[i][k&(1<<digit-1)]++
			return
		}
	}
}

func (s *keySearch) endDigit(digit int) {
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

func (s *keySearch) keyAtRank(r int64) uint64 {
	for _, t := range s.want {
		if t.rank == r {
			return t.prefix
		}
	}
	return 0
}

// Blocks calls yield with the rows of a column group, as little-endian bytes, in blocks. It can be
// called again and then gives the same rows.
type Blocks func(ctx context.Context, yield func(raw []byte) error) error

// orderKey returns an integer with the same order as the number v. It sets the sign bit of positive
// numbers and inverts all bits of negative numbers.
func orderKey(v float64) uint64 {
	b := math.Float64bits(v)
	return b ^ (uint64(int64(b)>>63) | 1<<63)
}

// keyValue returns the number of a key.
func keyValue(k uint64) float64 { return math.Float64frombits(k ^ (uint64(int64(^k)>>63) | 1<<63)) }

// refineQuantiles computes the exact quantiles of every column by reading the rows several times.
// Each pass determines one digit of the keys, from the first digit in which the keys of m's
// smallest and largest value differ. Columns are handled in groups whose counts fit the budget.
func refineQuantiles(
	ctx context.Context,
	dtype robocache.DType,
	m *Moments,
	rows Blocks,
	budget int64,
) ([][]float64, error) {
	width := len(m.N)
	perColumn := int64(2*len(Quantiles)) * (8 << digitBits)
	group := int(max(1, min(int64(width), budget/perColumn)))
	lowest := 0 // number of low bits that are equal in all keys
	if dtype == robocache.Float16 || dtype == robocache.BFloat16 || dtype == robocache.Float32 {
		lowest = 52 - 23
	}
	out := make([][]float64, width)
	var block []float64
	for first := 0; first < width; first += group {
		searches := make([]*keySearch, min(group, width-first))
		most := 0
		for c := range searches {
			c0 := first + c
			s := newSearch(max(1, m.N[c0]))
			if m.N[c0] > 0 {
				s.least = orderKey(m.Min[c0]) >> lowest
				most = max(most, bits.Len64(orderKey(m.Max[c0])>>lowest-s.least))
			}
			searches[c] = s
		}
		for done := 0; done < most; {
			digit := min(digitBits, most-done)
			shift := most - done - digit
			for _, s := range searches {
				s.beginDigit(digit)
			}
			err := rows(ctx, func(raw []byte) error {
				return eachPart(raw, width*dtype.Size(), func(part []byte) error {
					block = robocache.Float64s(block[:0], dtype, part)
					for at := first; at < len(block); at += width {
						for c, s := range searches {
							if v := block[at+c]; v-v == 0 {
								s.countKey((orderKey(v)>>lowest-s.least)>>shift, digit)
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
				s.endDigit(digit)
			}
			done += digit
		}
		for c, s := range searches {
			out[first+c] = quantilesAt(m.N[first+c], func(r int64) float64 {
				k := (s.keyAtRank(r) + s.least) << lowest
				if k>>63 == 0 { // negative: the lowest bits are inverted too
					k |= 1<<lowest - 1
				}
				return keyValue(k)
			})
		}
	}
	return out, nil
}
