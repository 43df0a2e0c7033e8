package stats

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Exact quantiles of windows are found in two passes, which both compute the values. The first counts
// the values in equal buckets, and the second gathers the buckets of the wanted ranks.
const (
	windowBuckets = 1 << 11
	// sampledValues is the number of values of a column that determine the range of its buckets.
	sampledValues = 1 << 12
)

// bucketCounter finds the quantiles of one column. The bucket of a value is monotonic in the value,
// so all values of a bucket lie between those of its neighbours.
type bucketCounter struct {
	low, scale float64
	counts     []int64
	slots      []uint8 // index in near plus 1; 0 = not needed
	near       []bucketValues
	sample     []float64
}

// setRange sets the buckets from the sample. The range excludes outliers, but no quantile.
func (b *bucketCounter) setRange() {
	b.counts, b.slots = make([]int64, windowBuckets), nil
	slices.Sort(b.sample)
	if n := len(b.sample); n > 0 {
		outer := n / 200 // half of the share beyond the outermost quantiles
		b.low = b.sample[outer]
		// The first and the last bucket hold the values outside the range.
		b.scale = (windowBuckets - 2) / (b.sample[n-1-outer] - b.low)
	}
	if !(b.scale > 0) || math.IsInf(b.scale, 0) {
		b.low, b.scale = 0, 0 // all values are in one bucket
	}
	b.sample = nil
}

// bucketOf returns the bucket of a finite value.
func (b *bucketCounter) bucketOf(v float64) uint {
	x := float64((v-b.low)*b.scale) + 1
	return uint(min(max(x, 0), windowBuckets-1))
}

// countBuckets counts the finite values.
func (b *bucketCounter) countBuckets(values []float64) {
	counts := (*[windowBuckets]int64)(b.counts)
	low, scale := b.low, b.scale
	for _, v := range values {
		x := float64((v-low)*scale) + 1
		switch {
		case x >= 0 && x < windowBuckets:
			counts[int(x)&(windowBuckets-1)]++
		case v-v == 0:
			counts[b.bucketOf(v)]++
		}
	}
}

// needBuckets marks the buckets of the wanted ranks of n values for gatherValues. It reports false
// if they have more than most values, such as those of a column with few distinct values.
func (b *bucketCounter) needBuckets(n, most int64) bool {
	b.slots, b.near = make([]uint8, windowBuckets), nil
	if n == 0 {
		return true
	}
	first, at, total := int64(0), 0, int64(0)
	for _, r := range wantedRanks(n) {
		for first+b.counts[at] <= r {
			first += b.counts[at]
			at++
		}
		if b.slots[at] == 0 {
			b.near = append(b.near, bucketValues{first: first})
			b.slots[at] = uint8(len(b.near))
			total += b.counts[at]
		}
	}
	if total > most {
		return false
	}
	for at, slot := range b.slots {
		if slot > 0 {
			b.near[slot-1].values = make([]float64, 0, b.counts[at])
		}
	}
	return true
}

// gatherValues keeps the values of the marked buckets.
func (b *bucketCounter) gatherValues(values []float64) {
	slots := (*[windowBuckets]uint8)(b.slots)
	low, scale := b.low, b.scale
	for _, v := range values {
		x := float64((v-low)*scale) + 1
		at := uint(0)
		switch {
		case x >= 0 && x < windowBuckets:
			at = uint(int(x)) & (windowBuckets - 1)
		case v-v == 0:
			at = b.bucketOf(v)
		default:
			continue
		}
		if slot := slots[at]; slot > 0 {
			near := &b.near[slot-1]
			near.values = append(near.values, v)
		}
	}
}

// valueAtRank returns the value of a wanted rank. The gathered values must be sorted.
func (b *bucketCounter) valueAtRank(r int64) float64 {
	for i := range b.near {
		if at := r - b.near[i].first; at >= 0 && at < int64(len(b.near[i].values)) {
			return b.near[i].values[at]
		}
	}
	return 0 // unreachable: every wanted rank is in one of the buckets
}

// isGenerated reports whether the unit's values are computed in each pass, and occur once each.
func (u *windowUnit) isGenerated() bool {
	return u.part.Values != nil || u.reference[0] != nil
}

// mostGathered returns the largest number of values that are held for a column of a unit.
func (c *windowCounter) mostGathered(u *windowUnit) int64 {
	n := int64(c.windows) * int64(len(u.offsets))
	return min(n/64+sampledValues, c.opt.Budget/int64(16*c.opt.Threads)+1)
}

// gatherBytes bounds the memory of the bucketCounters of a unit.
func (c *windowCounter) gatherBytes(u *windowUnit) int64 {
	if !u.isGenerated() {
		return 0
	}
	return int64(u.width) * 8 * (c.mostGathered(u) + sampledValues + 2*windowBuckets)
}

// newBuckets returns a counter for each column of the generated units. Their ranges are set from
// some of the values.
func (c *windowCounter) newBuckets(
	ctx context.Context, units []*windowUnit,
) ([][]bucketCounter, error) {
	out := make([][]bucketCounter, len(units))
	for i, u := range units {
		if u.isGenerated() {
			out[i] = make([]bucketCounter, u.width)
		}
	}
	step := max(1, c.windows/sampledValues)
	err := c.eachUnit(ctx, units, nil, func(i int, u *windowUnit, b *windowBlock) error {
		if out[i] == nil {
			return nil
		}
		one := *u
		for _, s := range b.spans {
			for t := s.from; t < s.to; t += step {
				at := (s.base + t) / step % len(u.offsets) // each window gives one of its rows
				one.offsets = u.offsets[at : at+1]
				one.eachRun(b, s, t, t+1, func(k int, values []float64, _ []int64) {
					for _, v := range values {
						if v-v == 0 {
							out[i][k].sample = append(out[i][k].sample, v)
						}
					}
				})
			}
		}
		u.buffer = one.buffer
		return nil
	})
	for i := range out {
		for k := range out[i] {
			out[i][k].setRange()
		}
	}
	return out, err
}

// setBucketQuantiles writes the quantiles of the units that have buckets. It returns the others.
func (c *windowCounter) setBucketQuantiles(
	ctx context.Context, units []*windowUnit, buckets [][]bucketCounter, moments []*Moments,
	fs *robocache.FeatureStats,
) (rest []int, err error) {
	for i, u := range units {
		isGathered := buckets[i] != nil
		for k := range buckets[i] {
			isGathered = isGathered &&
				buckets[i][k].needBuckets(moments[i].N[k], c.mostGathered(u))
		}
		if !isGathered {
			buckets[i], rest = nil, append(rest, i)
		}
	}
	if len(rest) == len(units) {
		return rest, nil
	}
	err = c.eachUnit(ctx, units, nil, func(i int, u *windowUnit, b *windowBlock) error {
		for _, s := range b.spans {
			if buckets[i] == nil {
				break
			}
			u.eachRun(b, s, s.from, s.to, func(k int, values []float64, _ []int64) {
				buckets[i][k].gatherValues(values)
			})
		}
		return nil
	})
	for i, u := range units {
		for k := range buckets[i] {
			b := &buckets[i][k]
			for _, near := range b.near {
				slices.Sort(near.values)
			}
			c.setColumnQuantiles(fs, u, k, moments[i].N[k], b.valueAtRank)
		}
	}
	return rest, err
}
