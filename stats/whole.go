package stats

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"golang.org/x/sync/errgroup"
)

// Whole is the statistics of all parts together: those of Numeric, mean and deviation to rounding
// (S6). left is the number of values that are not finite. Of files it reads what lies near the
// quantiles.
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
			var runs []run
			for i := range parts {
				r, err := parts[i].open(c)
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
				m.merge(c, r.N, r.Base-parts[i].Less-m.base[c]+r.Mean, r.M2)
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
	return settled(m, count, q), m.NonFinite, nil
}

func wholeQuantiles(ctx context.Context, runs []run, n int64, lo, hi float64) ([]float64, error) {
	out := make([]float64, len(Quantiles))
	sum := func(of func(r *run) (int64, error)) (s int64, err error) {
		for i := range runs {
			ofValue, err := of(&runs[i])
			if err != nil {
				return s, err
			}
			s += ofValue
		}
		return s, nil
	}
	// search gives the least key from that of lo on for which is holds; end where it holds for none
	// before.
	search := func(end uint64, is func(x float64) (bool, error)) (float64, error) {
		k := key(lo)
		for k < end {
			{
				mid := k + (end-k)/2
				isValue, err := is(ofKey(mid))
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
		return ofKey(k), nil
	}
	var near []uint64          // keys of the entries in [a, b], ascending
	more := map[uint64]int64{} // how often they occur beside once each
	var before int64           // values below
	look := func(a, b float64) error {
		near = near[:0]
		clear(more)
		var err error
		if before, err = sum(func(r *run) (int64, error) {
			return r.between(ctx, a, b, func(v float64, n int64) {
				k := key(v)
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
	here := !slices.ContainsFunc(runs, func(r run) bool { return step(r.Entries) > 1 })
	if here {
		sumValue, err := sum(func(r *run) (int64, error) { return r.Entries, nil })
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
		first, second, t := rank(q.Q, n)
		if !here {
			// Between a and b lie the values of both ranks: at most first values are below a, and
			// more than second up to b.
			a, err := search(key(hi)+1, func(x float64) (bool, error) {
				sumValue, err := sum(func(r *run) (int64, error) { return r.most(x), nil })
				if err != nil {
					return false, err
				}
				return sumValue > first, nil
			})
			if err != nil {
				return nil, err
			}
			b, err := search(key(hi), func(x float64) (bool, error) {
				sumValue, err := sum(func(r *run) (int64, error) { return r.least(x), nil })
				if err != nil {
					return false, err
				}
				return sumValue > second, nil
			})
			if err != nil {
				return nil, err
			}
			if err := look(ofKey(key(a)-1), b); err != nil {
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
					return ofKey(k), nil
				}
			}
			return 0, errOther
		}
		entry, err := at(first)
		if err != nil {
			return nil, err
		}
		entryValue, err := at(second)
		if err != nil {
			return nil, err
		}
		out[i] = lerp(entry, entryValue, t)
	}
	return out, nil
}
