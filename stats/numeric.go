package stats

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// heldBytes is the size that columns may always have in memory. Above it, and above the budget,
// quantiles are searched by the digits of keys.
var heldBytes int64 = 1 << 20

// Numeric computes the statistics of rows of a numeric feature with the given shape. It reads rows
// once. It reads them again for quantiles, but only if the values exceed the budget. left is the
// number of values that are not finite (stats.S5).
func Numeric(
	ctx context.Context,
	dtype robocache.DType,
	shape []int,
	rows Blocks,
	budget int64,
) (fs *robocache.FeatureStats, left int64, err error) {
	return numericSized(ctx, dtype, shape, rows, 0, budget)
}

// NumericBytes is Numeric for rows in memory.
func NumericBytes(
	ctx context.Context,
	dtype robocache.DType,
	shape []int,
	raw []byte,
	budget int64,
) (fs *robocache.FeatureStats, left int64, err error) {
	return numericSized(
		ctx,
		dtype,
		shape,
		func(_ context.Context, yield func([]byte) error) error { return yield(raw) },
		int64(len(raw)),
		budget,
	)
}

// numericSized is Numeric with the total size of the rows in bytes; 0 = unknown.
func numericSized(
	ctx context.Context,
	dtype robocache.DType,
	shape []int,
	rows Blocks,
	bytes, budget int64,
) (fs *robocache.FeatureStats, left int64, err error) {
	size := dtype.Size()
	if size == 0 {
		return nil, 0, robocache.Unsupported(
			"statistics",
			nil,
			"no statistics of type %s",
			dtype.String(),
		)
	}
	elements, width := 1, 1
	for _, d := range shape {
		elements *= d
		width = d
	}
	if elements <= 0 {
		return nil, 0, robocache.Unsupported("statistics", nil, "a shape without elements")
	}
	m := NewMoments(width)
	t := counterPool.Get().(*counter)
	defer t.returnToPool()
	var count, held int64
	hold := true // keep all finite values while they fit
	if n := int(bytes) / size; 8*int64(n) <= max(budget, heldBytes) {
		t.prepareColumns(width, n/width)
	} else {
		t.prepareColumns(width, 0)
	}
	err = rows(ctx, func(raw []byte) error {
		if len(raw)%(elements*size) != 0 {
			return robocache.Misuse("statistics", nil, "a block is not a whole number of rows")
		}
		count += int64(len(raw) / (elements * size))
		return eachPart(raw, width*size, func(part []byte) error {
			n := len(part) / size / width
			if held += 8 * int64(n*width); hold && held > max(budget, heldBytes) {
				hold = false
				clear(t.columns)
			}
			for c := range width {
				old := len(t.columns[c])
				t.columns[c] = t.appendFinite(slices.Grow(t.columns[c], n), dtype, part, c, width)
				m.addColumn(c, t.columns[c][old:], 1)
				m.NonFinite += int64(n - len(t.columns[c]) + old)
				if !hold {
					t.columns[c] = t.columns[c][:0]
				}
			}
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, 0, err
	}
	var q [][]float64
	if hold {
		q = make([][]float64, width)
		for c, column := range t.columns {
			q[c] = t.pick.quantiles(column, m.Min[c], m.Max[c])
		}
	} else {
		if q, err = refineQuantiles(ctx, dtype, m, rows, budget); err != nil {
			return nil, 0, err
		}
	}
	return combineStats(m, count, q), m.NonFinite, nil
}

// combineStats returns the statistics of count rows.
func combineStats(m *Moments, count int64, q [][]float64) *robocache.FeatureStats {
	width := len(q)
	lists := columnsOf(len(Quantiles)+2, width)
	fs := &robocache.FeatureStats{
		Count:     count,
		Shape:     []int{width},
		Quantiles: make(map[string][]float64, len(Quantiles)),
		Mean:      lists[0],
		Std:       lists[1],
	}
	for i, name := range Quantiles {
		v := lists[2+i]
		for c := range v {
			// -0 becomes 0, because the order of equal values is not defined
			v[c] = clampFinite(q[c][i]) + 0
		}
		fs.Quantiles[name.Name] = v
	}
	for c := range width {
		if m.N[c] == 0 { // no finite values: use zeros, because JSON has no infinities
			m.Min[c], m.Max[c] = 0, 0
		}
		m.Min[c], m.Max[c] = m.Min[c]+0, m.Max[c]+0
		fs.Mean[c], fs.Std[c] = clampFinite(m.Mean(c)), clampFinite(m.Std(c))
	}
	fs.Min, fs.Max = m.Min, m.Max
	return fs
}

// counter is reusable memory for counting. An episode has many columns of few values.
type counter struct {
	all     []float64
	columns [][]float64
	block   []float64
	pick    picker
}

// appendFinite appends the finite values of column c. For one part, it must be called for column 0
// first.
func (t *counter) appendFinite(
	to []float64,
	dtype robocache.DType,
	part []byte,
	c, width int,
) []float64 {
	// the most common type; without the pass over all columns, counting takes 0.7 of the time
	if dtype == robocache.Float32 {
		for i := 4 * c; i < len(part); i += 4 * width {
			if v := float64(math.Float32frombits(binary.LittleEndian.Uint32(part[i:]))); v-v == 0 {
				to = append(to, v)
			}
		}
		return to
	}
	if c == 0 {
		t.block = robocache.Float64s(t.block[:0], dtype, part)
	}
	for i := c; i < len(t.block); i += width {
		if v := t.block[i]; v-v == 0 {
			to = append(to, v)
		}
	}
	return to
}

// eachPart calls yield for parts of a few thousand values, so that the passes over a part stay in
// the cache.
func eachPart(raw []byte, row int, yield func(part []byte) error) error {
	step := max(1, 32768/row) * row
	for len(raw) > 0 {
		part := raw[:min(step, len(raw))]
		raw = raw[len(part):]
		if err := yield(part); err != nil {
			return err
		}
	}
	return nil
}

var counterPool = sync.Pool{New: func() any { return new(counter) }}

// maxPooledBytes is the maximal size of memory that is kept in the pool.
const maxPooledBytes = 4 << 20

// prepareColumns prepares columns with space for n values each.
func (t *counter) prepareColumns(width, n int) {
	if cap(t.all) < width*n {
		t.all = make([]float64, width*n)
	}
	t.columns = slices.Grow(t.columns[:0], width)[:width]
	for c := range t.columns {
		t.columns[c] = t.all[c*n : c*n : (c+1)*n]
	}
}

func (t *counter) returnToPool() {
	clear(t.columns) // drop the columns that were reallocated
	if 8*cap(t.all) > maxPooledBytes {
		t.all = nil
	}
	if t.pick.heldBytes() <= maxPooledBytes {
		counterPool.Put(t)
	}
}

// clampFinite replaces an overflow (values near 1e308) by the largest number, because JSON has no
// infinity.
func clampFinite(v float64) float64 {
	if math.IsNaN(v) {
		return math.MaxFloat64
	}
	return min(max(v, -math.MaxFloat64), math.MaxFloat64)
}
