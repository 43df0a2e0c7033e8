package stats

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Up to sortRows rows, columns are sorted instead of being searched by their keys' digits: while they take no more than the budget, or sortBytes.
const (
	sortRows  = 1 << 14
	sortBytes = 1 << 20
)

// Numeric computes the statistics of rows of a numeric feature of the given shape. rows is read once, and again only for
// the quantiles of more than 16,384 rows, or of more than the budget holds. left is the number of values that are not finite (S5).
func Numeric(ctx context.Context, dtype robocache.DType, shape []int, rows Blocks, budget int64) (fs *robocache.FeatureStats, left int64, err error) {
	el, ok := elementOf(dtype)
	if !ok {
		return nil, 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "statistics", Msg: "no statistics of type " + dtype.String()}
	}
	elements, width := 1, 1
	for _, d := range shape {
		elements *= d
		width = d
	}
	if elements <= 0 {
		return nil, 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "statistics", Msg: "a shape without elements"}
	}
	m := NewMoments(width)
	var count int64
	var buf, small []float64
	sorts := true // all values are in small
	err = rows(ctx, func(raw []byte) error {
		if len(raw)%(elements*el.size) != 0 {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "statistics", Msg: "a block is not a whole number of rows"}
		}
		count += int64(len(raw) / (elements * el.size))
		// Blocks of a few thousand rows keep the two passes of Moments.Add inside the cache.
		step := max(1, 32768/(width*el.size)) * width * el.size
		for len(raw) > 0 {
			part := raw[:min(step, len(raw))]
			raw = raw[len(part):]
			buf = buf[:0]
			for i := 0; i < len(part); i += el.size {
				buf = append(buf, el.value(part[i:]))
			}
			m.Add(buf)
			if sorts = sorts && count <= sortRows && int64(len(small)+len(buf))*8 <= max(budget, sortBytes); sorts {
				small = append(small, buf...)
			} else {
				small = nil
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, 0, err
	}
	var q [][]float64
	if sorts {
		q = make([][]float64, width)
		column := make([]float64, 0, len(small)/width)
		for c := range width {
			column = column[:0]
			for i := c; i < len(small); i += width {
				if v := small[i]; v-v == 0 {
					column = append(column, v)
				}
			}
			slices.Sort(column)
			q[c] = sortedQuantiles(column)
		}
	} else {
		if q, err = refine(ctx, el, width, m.N, rows, budget); err != nil {
			return nil, 0, err
		}
	}
	fs = &robocache.FeatureStats{Count: count, Shape: []int{width}, Quantiles: map[string][]float64{}}
	for i, name := range Quantiles {
		v := make([]float64, width)
		for c := range v {
			v[c] = finite(q[c][i])
		}
		fs.Quantiles[name.Name] = v
	}
	for c := range width {
		if m.N[c] == 0 { // nothing finite: zeros rather than infinities, which JSON cannot hold
			m.Min[c], m.Max[c] = 0, 0
		}
		fs.Mean, fs.Std = append(fs.Mean, finite(m.Mean(c))), append(fs.Std, finite(m.Std(c)))
	}
	fs.Min, fs.Max = m.Min, m.Max
	return fs, m.NonFinite, nil
}

// finite keeps what overflowed (values near 1e308) a number: JSON has no infinity.
func finite(v float64) float64 {
	if math.IsNaN(v) {
		return math.MaxFloat64
	}
	return min(max(v, -math.MaxFloat64), math.MaxFloat64)
}

// Bytes makes Blocks of rows that lie in memory.
func Bytes(raw []byte) Blocks {
	return func(_ context.Context, yield func([]byte) error) error { return yield(raw) }
}
