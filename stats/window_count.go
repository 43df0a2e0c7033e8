package stats

import (
	"context"
	"math"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"golang.org/x/sync/errgroup"
)

// windowCounter counts one vector.
type windowCounter struct {
	ds      robocache.Dataset
	vector  *WindowVector
	opt     *WindowOptions
	columns map[windowColumn]*windowColumn
	units   []*windowUnit
	rows    []int // offsets of a window
	width   int   // D
	steps   int   // T of the result; 1 unless PerStep
	windows int   // rows of all episodes

	blocks    [][]int // positions of the episodes that are read together
	held      *windowBlock
	heldBlock int
	nonFinite int64
}

func newWindowCounter(
	ds robocache.Dataset, v *WindowVector, opt *WindowOptions,
) (c *windowCounter, err error) {
	c = &windowCounter{
		ds: ds, vector: v, opt: opt, columns: map[windowColumn]*windowColumn{}, heldBlock: -1,
	}
	switch v.Beyond {
	case "", BeyondRepeat, BeyondOmit, BeyondDrop:
	default:
		return nil, robocache.Misuse("statistics", nil, "beyond").
			Expected("repeat, omit or drop", v.Beyond)
	}
	if len(v.Parts) == 0 || v.Rows != nil && len(v.Rows) == 0 {
		return nil, robocache.Misuse("statistics", nil, "a vector without parts or rows")
	}
	if c.units, err = c.newUnits(v); err != nil {
		return nil, err
	}
	var size int64
	for _, e := range opt.Episodes {
		c.windows += ds.Len(e)
		n := int64(ds.Len(e)) * int64(8*len(c.columns))
		if len(c.blocks) == 0 || size+n > opt.Budget/2 {
			c.blocks, size = append(c.blocks, nil), 0
		}
		last := &c.blocks[len(c.blocks)-1]
		*last, size = append(*last, e), size+n
	}
	return c, nil
}

// windowBlock holds the columns of some episodes.
type windowBlock struct {
	values     map[*windowColumn][]float64
	spans      []windowSpan
	index      int
	isOmitting bool
}

// readBlock returns a block of episodes. The last one that was read is held.
func (c *windowCounter) readBlock(ctx context.Context, i int) (*windowBlock, error) {
	if c.heldBlock == i {
		return c.held, nil
	}
	c.held, c.heldBlock = nil, -1
	b := &windowBlock{
		values:     map[*windowColumn][]float64{},
		isOmitting: c.vector.Beyond == BeyondOmit,
		index:      i,
	}
	byKey := map[string][]*windowColumn{}
	for _, col := range c.columns {
		byKey[col.key] = append(byKey[col.key], col)
	}
	total := 0
	for _, e := range c.blocks[i] {
		n := c.ds.Len(e)
		b.spans, total = append(b.spans, c.spanOf(total, n)), total+n
	}
	for key, columns := range byKey {
		f := c.ds.Info().Feature(key)
		for _, col := range columns {
			b.values[col] = make([]float64, 0, total)
		}
		blocks, _, err := Values(ctx, c.ds, f, c.blocks[i])
		if err != nil {
			return nil, err
		}
		var values []float64
		err = blocks(ctx, func(raw []byte) error {
			values = robocache.Float64s(values[:0], f.DType, raw)
			for _, col := range columns {
				to := b.values[col]
				for at := col.number; at < len(values); at += f.Elements() {
					v := values[at]
					if col.isRound {
						v = float64(float32(v))
					}
					to = append(to, v)
				}
				b.values[col] = to
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": key})
		}
		if len(b.values[columns[0]]) != total {
			return nil, robocache.Unsupported("statistics", robocache.Where{"stream": key},
				"statistics over windows of a stream that lacks rows")
		}
	}
	c.held, c.heldBlock = b, i
	return b, nil
}

// eachUnit calls fn for all units in parallel, block after block. isActive reports whether a block
// is needed; nil: all are.
func (c *windowCounter) eachUnit(
	ctx context.Context, units []*windowUnit, isActive func(block int) bool,
	fn func(i int, u *windowUnit, b *windowBlock) error,
) error {
	for i := range c.blocks {
		if isActive != nil && !isActive(i) {
			continue
		}
		b, err := c.readBlock(ctx, i)
		if err != nil {
			return err
		}
		g, inner := errgroup.WithContext(ctx)
		g.SetLimit(c.opt.Threads)
		for k, u := range units {
			g.Go(crash.Func("statistics", func() error {
				if err := inner.Err(); err != nil {
					return err
				}
				return fn(k, u, b)
			}))
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// lowestBit returns the number of low bits that are equal in all keys of the unit's values.
func (u *windowUnit) lowestBit() int {
	if u.part.Double || u.part.Reference == "" && u.part.Values == nil && !u.part.Round {
		return 0
	}
	return 52 - 23 // float32
}

// windowDigit is the number of bits of a key that one pass over the windows determines.
const windowDigit = 16

// count returns the statistics of the vector.
func (c *windowCounter) count(ctx context.Context) (*robocache.FeatureStats, error) {
	fs := &robocache.FeatureStats{Quantiles: map[string][]float64{}, Shape: []int{c.width}}
	if c.vector.PerStep {
		fs.Shape = []int{c.steps, c.width}
	}
	size := c.steps * c.width
	for _, list := range []*[]float64{&fs.Min, &fs.Max, &fs.Mean, &fs.Std} {
		*list = make([]float64, size)
	}
	for _, q := range Quantiles {
		fs.Quantiles[q.Name] = make([]float64, size)
	}
	if c.opt.Histogram > 0 {
		return fs, c.countHistograms(ctx, fs)
	}
	for units := c.units; len(units) > 0; {
		n, size := 0, int64(0)
		for n < len(units) && (n < c.opt.Threads || size+c.gatherBytes(units[n]) <= c.opt.Budget) {
			size += c.gatherBytes(units[n])
			n++
		}
		if err := c.countExact(ctx, units[:n], fs); err != nil {
			return nil, err
		}
		units = units[n:]
	}
	return fs, nil
}

// setMoments writes all statistics but quantiles of a unit.
func (c *windowCounter) setMoments(fs *robocache.FeatureStats, u *windowUnit, m *Moments) {
	c.nonFinite += m.NonFinite
	for k := range u.width {
		at := u.step*c.width + u.at + k
		if fs.Count = max(fs.Count, m.N[k]); m.N[k] == 0 {
			continue
		}
		fs.Min[at], fs.Max[at] = m.Min[k]+0, m.Max[k]+0
		fs.Mean[at], fs.Std[at] = clampFinite(m.Mean(k)), clampFinite(m.Std(k))
	}
}

// countExact writes the statistics of some units, with exact quantiles.
func (c *windowCounter) countExact(
	ctx context.Context, units []*windowUnit, fs *robocache.FeatureStats,
) error {
	moments := make([]*Moments, len(units))
	sums := make([][]singleSum, len(units))
	for i, u := range units {
		moments[i], sums[i] = NewMoments(u.width), make([]singleSum, u.width)
	}
	buckets, err := c.newBuckets(ctx, units)
	if err != nil {
		return err
	}
	err = c.eachUnit(ctx, units, nil, func(i int, u *windowUnit, b *windowBlock) error {
		for _, s := range b.spans {
			u.eachRun(b, s, s.from, s.to, func(k int, values []float64, weights []int64) {
				moments[i].addWeighted(k, values, weights)
				if buckets[i] != nil {
					buckets[i][k].countBuckets(values)
				}
				if c.vector.SingleSums {
					sums[i][k].add(values, weights)
				}
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, u := range units {
		c.setMoments(fs, u, moments[i])
	}
	if c.vector.SingleSums {
		if err := c.setSingleSums(ctx, units, sums, fs); err != nil {
			return err
		}
	}
	rest, err := c.setBucketQuantiles(ctx, units, buckets, moments, fs)
	if err != nil {
		return err
	}
	perUnit := int64(2*len(Quantiles)) * (8 << windowDigit)
	group := int(max(int64(c.opt.Threads), c.opt.Budget/perUnit))
	for part := range slices.Chunk(rest, group) {
		var left []*windowUnit
		var own []*Moments
		for _, i := range part {
			left, own = append(left, units[i]), append(own, moments[i])
		}
		if err := c.setQuantiles(ctx, left, own, fs); err != nil {
			return err
		}
	}
	return nil
}

// setQuantiles writes the exact quantiles of units. Each pass over the windows determines some bits
// of the wanted values.
func (c *windowCounter) setQuantiles(
	ctx context.Context, units []*windowUnit, moments []*Moments, fs *robocache.FeatureStats,
) error {
	searches := make([][]*keySearch, len(units))
	most := 0
	for i, u := range units {
		lowest := u.lowestBit()
		for k := range u.width {
			s := newSearch(max(1, moments[i].N[k]))
			if moments[i].N[k] > 0 {
				s.least = orderKey(moments[i].Min[k]) >> lowest
				most = max(most, bits.Len64(orderKey(moments[i].Max[k])>>lowest-s.least))
			}
			searches[i] = append(searches[i], s)
		}
	}
	for done := 0; done < most; {
		digit := min(windowDigit, most-done)
		shift := most - done - digit
		eachSearch(searches, func(s *keySearch) { s.beginDigit(digit) })
		err := c.eachUnit(ctx, units, nil, func(i int, u *windowUnit, b *windowBlock) error {
			for _, s := range b.spans {
				u.eachRun(b, s, s.from, s.to, func(k int, values []float64, weights []int64) {
					searches[i][k].countValues(values, weights, u.lowestBit(), shift, digit)
				})
			}
			return nil
		})
		if err != nil {
			return err
		}
		eachSearch(searches, func(s *keySearch) { s.endDigit(digit) })
		done += digit
	}
	for i, u := range units {
		for k, s := range searches[i] {
			c.setColumnQuantiles(fs, u, k, moments[i].N[k], func(r int64) float64 {
				return s.valueAtRank(r, u.lowestBit())
			})
		}
	}
	return nil
}

// setColumnQuantiles writes the quantiles of column k of a unit, which has n values. at returns the
// value at a wanted rank.
func (c *windowCounter) setColumnQuantiles(
	fs *robocache.FeatureStats, u *windowUnit, k int, n int64, at func(r int64) float64,
) {
	found := c.quantilesOf(n, at)
	for q, name := range Quantiles {
		fs.Quantiles[name.Name][u.step*c.width+u.at+k] = clampFinite(found[q]) + 0
	}
}

// quantilesOf is quantilesAt, with differences in float32 for SingleSums.
func (c *windowCounter) quantilesOf(n int64, at func(r int64) float64) []float64 {
	out := quantilesAt(n, at)
	for i, q := range Quantiles {
		if !c.vector.SingleSums || n == 0 {
			break
		}
		lo, hi, t := quantileRank(q.Q, n)
		a, b := at(lo), at(hi)
		d := float64(float32(b - a))
		if out[i] = a + float64(d*t); t >= 0.5 {
			out[i] = b - float64(d*(1-t))
		}
	}
	return out
}

func eachSearch(all [][]*keySearch, fn func(s *keySearch)) {
	for _, list := range all {
		for _, s := range list {
			fn(s)
		}
	}
}

// countValues is countKey for values with weights.
func (s *keySearch) countValues(
	values []float64, weights []int64, lowest, shift, digit int,
) {
	mask, n := uint64(1)<<digit-1, int64(1)
	first, last := s.pre[0], s.pre[len(s.pre)-1]
	slots := s.prefixSlots()
	for i, v := range values {
		if v-v != 0 {
			continue
		}
		if weights != nil {
			n = weights[i]
		}
		k := (orderKey(v)>>lowest - s.least) >> shift
		high := k >> digit
		if high < first || high > last {
			continue
		}
		at := 0
		switch {
		case slots != nil:
			at = int(slots[high-first]) - 1
		case first != last:
			at = slices.Index(s.pre, high)
		}
		if at >= 0 {
			s.hists[at][k&mask] += n
		}
	}
}

// prefixSlots returns for each number from the first prefix to the last its position among the
// prefixes plus 1, or 0. It returns nil if the table would be large or has one entry.
func (s *keySearch) prefixSlots() []uint8 {
	n := s.pre[len(s.pre)-1] - s.pre[0] + 1
	if n == 1 || n > 1<<windowDigit {
		return nil
	}
	if s.slots == nil {
		s.slots = make([]uint8, n)
		for i, pre := range s.pre {
			s.slots[pre-s.pre[0]] = uint8(i + 1)
		}
	}
	return s.slots
}

// valueAtRank returns the number whose key was found for a rank. Low bits of the keys are equal.
func (s *keySearch) valueAtRank(r int64, lowest int) float64 {
	k := (s.keyAtRank(r) + s.least) << lowest
	if k>>63 == 0 { // negative: the lowest bits are inverted too
		k |= 1<<lowest - 1
	}
	return keyValue(k)
}

// singleSum is a sum in float32, of values or of squared distances from their mean.
type singleSum struct {
	sum, mean float32
	isSquared bool
	n         int64
}

// add adds values one after the other, as NumPy does over the first axis of an array.
func (s *singleSum) add(values []float64, weights []int64) {
	for i, v := range values {
		n := int64(1)
		if weights != nil {
			n = weights[i]
		}
		x := float32(v)
		if s.isSquared {
			x -= s.mean
			x = float32(x * x)
		}
		for range n {
			if v-v == 0 {
				s.sum, s.n = s.sum+x, s.n+1
			}
		}
	}
}

// setSingleSums writes means and deviations that are computed with sums in float32.
func (c *windowCounter) setSingleSums(
	ctx context.Context, units []*windowUnit, sums [][]singleSum, fs *robocache.FeatureStats,
) error {
	for _, list := range sums {
		for k := range list {
			s := &list[k]
			*s = singleSum{mean: s.sum / float32(max(1, s.n)), isSquared: true}
		}
	}
	err := c.eachUnit(ctx, units, nil, func(i int, u *windowUnit, b *windowBlock) error {
		for _, s := range b.spans {
			u.eachRun(b, s, s.from, s.to, func(k int, values []float64, weights []int64) {
				sums[i][k].add(values, weights)
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, u := range units {
		for k := range sums[i] {
			s, at := &sums[i][k], u.step*c.width+u.at+k
			fs.Mean[at] = float64(s.mean)
			variance := s.sum / float32(max(1, s.n))
			fs.Std[at] = float64(float32(math.Sqrt(float64(variance))))
		}
	}
	return nil
}
