package stats

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"golang.org/x/sync/errgroup"
)

// Whole computes the statistics of all parts together. They equal those of Numeric, with mean and
// deviation equal up to rounding (stats.S6). left is the number of values that are not finite. Of
// files, it reads only the entries near the quantiles.
func Whole(ctx context.Context, parts []Part) (fs *robocache.FeatureStats, left int64, err error) {
	defer crash.Recover("statistics", &err)
	m := NewMoments(len(parts[0].Columns))
	var count int64
	for i := range parts {
		p := &parts[i]
		if len(p.Columns) != len(m.N) || p.DType != parts[0].DType {
			return nil, 0, robocache.Malformed("statistics", nil, "parts of different features")
		}
		count, m.NonFinite = count+p.Rows, m.NonFinite+p.NonFinite
	}
	q := make([][]float64, len(m.N))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for c := range q {
		g.Go(crash.Func("statistics", func() error {
			var runs []partRun
			for i := range parts {
				r, err := parts[i].openColumn(c)
				if err != nil {
					return err
				}
				if r.N == 0 {
					continue
				}
				runs = append(runs, r)
				m.Min[c] = min(m.Min[c], r.marks[0])
				m.Max[c] = max(m.Max[c], r.marks[len(r.marks)-1])
				if m.N[c] == 0 {
					m.base[c] = r.Base - parts[i].Less
				}
				m.mergeColumn(c, r.N, r.Base-parts[i].Less-m.base[c]+r.Mean, r.M2)
			}
			var err error
			if q[c], err = wholeQuantiles(ctx, runs, m.N[c], m.Min[c], m.Max[c]); err != nil {
				return err
			}
			return nil
		}))
	}
	if err := g.Wait(); err != nil {
		return fs, left, err
	}
	return combineStats(m, count, q), m.NonFinite, nil
}

func wholeQuantiles(
	ctx context.Context,
	runs []partRun,
	n int64,
	lo, hi float64,
) ([]float64, error) {
	out := make([]float64, len(Quantiles))
	sum := func(of func(r *partRun) (int64, error)) (s int64, err error) {
		for i := range runs {
			ofValue, err := of(&runs[i])
			if err != nil {
				return s, err
			}
			s += ofValue
		}
		return s, nil
	}
	// search returns the number with the smallest key, at or above the key of lo, for which is
	// returns true. It returns the number of end if is returns false for all keys before end.
	search := func(end uint64, is func(x float64) (bool, error)) (float64, error) {
		k := orderKey(lo)
		for k < end {
			{
				mid := k + (end-k)/2
				isValue, err := is(keyValue(mid))
				if err != nil {
					return 0, err
				}
				if isValue {
					end = mid
				} else {
					k = mid + 1
				}
			}
		}
		return keyValue(k), nil
	}
	var near []uint64          // keys of the entries in [a, b], ascending
	more := map[uint64]int64{} // counts of these entries, minus one
	var before int64           // number of values below
	look := func(a, b float64) error {
		near = near[:0]
		clear(more)
		var err error
		if before, err = sum(func(r *partRun) (int64, error) {
			return r.eachBetween(ctx, a, b, func(v float64, n int64) {
				k := orderKey(v)
				if near = append(near, k); n > 1 {
					more[k] += n - 1
				}
			})
		}); err != nil {
			return err
		}
		sortKeys(near, make([]uint64, len(near)))
		return nil
	}
	here := !slices.ContainsFunc(runs, func(r partRun) bool { return markStep(r.Entries) > 1 })
	if here {
		sumValue, err := sum(func(r *partRun) (int64, error) { return r.Entries, nil })
		if err != nil {
			return nil, err
		}
		near = make([]uint64, 0, sumValue)
		if err := look(lo, hi); err != nil {
			return nil, err
		}
	}
	for i, q := range Quantiles {
		if n == 0 {
			break
		}
		first, second, t := quantileRank(q.Q, n)
		if !here {
			// The values of both ranks lie between a and b: at most `first` values are below a, and
			// more than `second` values are at most b.
			a, err := search(orderKey(hi)+1, func(x float64) (bool, error) {
				sumValue, err := sum(func(r *partRun) (int64, error) { return r.maxBelow(x), nil })
				if err != nil {
					return false, err
				}
				return sumValue > first, nil
			})
			if err != nil {
				return nil, err
			}
			b, err := search(orderKey(hi), func(x float64) (bool, error) {
				sumValue, err := sum(func(r *partRun) (int64, error) { return r.minUpTo(x), nil })
				if err != nil {
					return false, err
				}
				return sumValue > second, nil
			})
			if err != nil {
				return nil, err
			}
			if err := look(keyValue(orderKey(a)-1), b); err != nil {
				return nil, err
			}
		}
		at := func(rank int64) (float64, error) {
			rank -= before
			for i, k := range near {
				if rank--; i == 0 || near[i-1] != k {
					rank -= more[k]
				}
				if rank < 0 {
					return keyValue(k), nil
				}
			}
			return 0, errCorruptPart
		}
		entry, err := at(first)
		if err != nil {
			return nil, err
		}
		entryValue, err := at(second)
		if err != nil {
			return nil, err
		}
		out[i] = lerpNumpy(entry, entryValue, t)
	}
	return out, nil
}
