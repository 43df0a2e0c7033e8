package stats

import (
	"context"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// The first edges of a running histogram lie this far outside the values.
const histogramMargin = 1e-10

// runningHistogram counts values in equal bins between the extremes so far. When the extremes
// change, each bin moves to the bin of its lower edge. These are openpi's rules.
type runningHistogram struct {
	edges, next  []float64 // of bins, ascending
	counts, sums []int64
	scale        float64
}

func newRunningHistogram(bins int) *runningHistogram {
	return &runningHistogram{
		edges: make([]float64, bins+1), next: make([]float64, bins+1),
		counts: make([]int64, bins), sums: make([]int64, bins),
	}
}

// addValues counts values. weights has the number of times that each occurs; nil: once.
func (h *runningHistogram) addValues(values []float64, weights []int64) {
	if h.scale == 0 { // no extremes so far: no value is finite
		return
	}
	for i, v := range values {
		if bin := h.binOf(v); bin >= 0 {
			if weights == nil {
				h.counts[bin]++
			} else {
				h.counts[bin] += weights[i]
			}
		}
	}
}

// addDifferences counts a − b for two columns, rounded to float32 unless isDouble.
func (h *runningHistogram) addDifferences(a, b []float64, isDouble bool) {
	if h.scale == 0 {
		return
	}
	edges, counts := h.edges, h.counts
	lo, hi, scale, last := edges[0], edges[len(edges)-1], h.scale, len(counts)-1
	b = b[:len(a)]
	for i, x := range a {
		v := x - b[i]
		if !isDouble {
			v = float64(float32(v))
		}
		bin := last
		if v >= lo && v < hi {
			bin = min(int((v-lo)*scale), last)
			if edges[bin] <= v && edges[bin+1] > v {
				counts[bin]++
				continue
			}
		}
		if bin = h.binOf(v); bin >= 0 {
			counts[bin]++
		}
	}
}

// setEdges writes equal bins from lo to hi, as numpy.linspace computes them.
func setEdges(edges []float64, lo, hi float64) {
	bins := len(edges) - 1
	delta := hi - lo
	step := delta / float64(bins)
	for i := range edges {
		edges[i] = float64(float64(i)*step) + lo
		if step == 0 {
			edges[i] = float64(float64(i)/float64(bins)*delta) + lo
		}
	}
	edges[bins] = hi
}

func (h *runningHistogram) setScale() {
	bins := len(h.counts)
	h.scale = float64(bins) / (h.edges[bins] - h.edges[0])
}

// binOf returns the bin of a value, or −1 if it lies outside.
func (h *runningHistogram) binOf(v float64) int {
	bins := len(h.counts)
	switch {
	case v >= h.edges[bins]:
		if v > h.edges[bins] {
			return -1
		}
		return bins - 1
	case !(v >= h.edges[0]):
		return -1
	}
	i := min(max(int((v-h.edges[0])*h.scale), 0), bins-1)
	for h.edges[i] > v {
		i--
	}
	for h.edges[i+1] <= v {
		i++
	}
	return i
}

// moveEdges changes the edges to the extremes so far. The first extremes get a margin.
func (h *runningHistogram) moveEdges(lo, hi float64) {
	if h.scale == 0 {
		setEdges(h.edges, lo-histogramMargin, hi+histogramMargin)
		h.setScale()
		return
	}
	setEdges(h.next, lo, hi)
	h.edges, h.next = h.next, h.edges
	h.setScale()
	clear(h.sums)
	for i, n := range h.counts {
		if n > 0 {
			if to := h.binOf(h.next[i]); to >= 0 {
				h.sums[to] += n
			}
		}
	}
	h.counts, h.sums = h.sums, h.counts
}

// quantile returns the lower edge of the first bin up to which a share q of n values lies.
func (h *runningHistogram) quantile(q float64, n int64) float64 {
	if n == 0 {
		return 0
	}
	var sum int64
	for i, c := range h.counts {
		if sum += c; float64(sum) >= float64(q*float64(n)) {
			return h.edges[i]
		}
	}
	return h.edges[len(h.counts)]
}

// windowPiece is the windows of one episode in a batch.
type windowPiece struct {
	span     windowSpan
	from, to int
	batch    int
}

// batchPieces divides the windows of all blocks into batches, from batch first on. Result i has
// those of block i.
func (c *windowCounter) batchPieces(first int) (pieces [][]windowPiece, batches int) {
	all := make([]windowSpan, 0, len(c.opt.Episodes))
	total := 0
	for _, block := range c.blocks {
		base := 0
		for _, e := range block {
			s := c.spanOf(base, c.ds.Len(e))
			all, base, total = append(all, s), base+s.rows, total+s.to-s.from
		}
	}
	if c.opt.DropLast {
		total -= total % c.opt.Batch
	}
	done := 0
	for _, block := range c.blocks {
		var list []windowPiece
		for _, s := range all[:len(block)] {
			for t := s.from; t < s.to && done < total; {
				n := min(s.to-t, c.opt.Batch-done%c.opt.Batch, total-done)
				if batch := done / c.opt.Batch; batch >= first {
					list = append(list, windowPiece{s, t, t + n, batch})
				}
				t, done = t+n, done+n
			}
		}
		pieces, all = append(pieces, list), all[len(block):]
	}
	return pieces, (total + c.opt.Batch - 1) / c.opt.Batch
}

// unitHistograms is the state of a unit that is counted with running histograms.
type unitHistograms struct {
	moments *Moments
	columns []*runningHistogram
	changes [][]extremes // per column, ascending by batch
}

// extremes are the smallest and the largest value of a column up to a batch.
type extremes struct {
	batch  int
	lo, hi float64
}

// countHistograms writes the statistics of all units, with quantiles from running histograms. The
// first pass finds the batches at which an extreme of any column changes, because then the edges of
// all columns move.
func (c *windowCounter) countHistograms(ctx context.Context, fs *robocache.FeatureStats) error {
	units, first := c.resumeChain()
	pieces, batches := c.batchPieces(first)
	active := func(i int) bool { return len(pieces[i]) > 0 }
	err := c.eachUnit(ctx, c.units, active, func(i int, u *windowUnit, b *windowBlock) error {
		units[i].findExtremes(u, b, pieces[b.index])
		return nil
	})
	if err != nil {
		return err
	}
	isMoved := make([]bool, batches)
	for _, u := range units {
		for _, list := range u.changes {
			for _, e := range list {
				if e.batch >= first { // else: from the chain
					isMoved[e.batch] = true
				}
			}
		}
	}
	var moves []int
	for batch, is := range isMoved {
		if is {
			moves = append(moves, batch)
		}
	}
	nextMove := make([]int, len(units)) // per unit: position in moves
	err = c.eachUnit(ctx, c.units, active, func(i int, u *windowUnit, b *windowBlock) error {
		nextMove[i] = units[i].fillHistograms(u, b, pieces[b.index], moves, nextMove[i])
		return nil
	})
	if err != nil {
		return err
	}
	for i, u := range c.units {
		c.setMoments(fs, u, units[i].moments)
		for k, h := range units[i].columns {
			for _, q := range Quantiles {
				at := u.step*c.width + u.at + k
				fs.Quantiles[q.Name][at] = h.quantile(q.Q, units[i].moments.N[k])
			}
		}
	}
	c.keepChain(units, batches)
	return nil
}

// newUnitHistograms returns the empty state of a unit.
func newUnitHistograms(u *windowUnit, bins int) *unitHistograms {
	s := &unitHistograms{moments: NewMoments(u.width), changes: make([][]extremes, u.width)}
	for range u.width {
		s.columns = append(s.columns, newRunningHistogram(bins))
	}
	return s
}

// findExtremes adds pieces to the moments, and notes where the extremes change. The moments of a
// piece are joined as a whole, so that they do not depend on where counting begins.
func (s *unitHistograms) findExtremes(u *windowUnit, b *windowBlock, pieces []windowPiece) {
	var sums slidingSums
	one := NewMoments(u.width)
	for _, p := range pieces {
		one.reset()
		if !sums.addDifferences(one, u, b, p) {
			one.reset()
			u.eachRun(b, p.span, p.from, p.to, func(k int, values []float64, weights []int64) {
				one.addWeighted(k, values, weights)
			})
		}
		for k := range u.width {
			m := s.moments
			if one.N[k] > 0 && (one.Min[k] < m.Min[k] || one.Max[k] > m.Max[k]) {
				now := extremes{p.batch, min(m.Min[k], one.Min[k]), max(m.Max[k], one.Max[k])}
				if n := len(s.changes[k]); n > 0 && s.changes[k][n-1].batch == p.batch {
					s.changes[k][n-1] = now
				} else {
					s.changes[k] = append(s.changes[k], now)
				}
			}
		}
		s.moments.Merge(one)
	}
}

// fillHistograms counts the values of pieces. moves are the batches before which edges move, and
// next is the position of the next one. It returns the new position.
func (s *unitHistograms) fillHistograms(
	u *windowUnit, b *windowBlock, pieces []windowPiece, moves []int, next int,
) int {
	for i := 0; i < len(pieces); {
		p := pieces[i]
		for next < len(moves) && moves[next] <= p.batch {
			s.moveColumns(moves[next])
			next++
		}
		for i++; i < len(pieces); i++ { // pieces of one episode up to the next move
			q := &pieces[i]
			if q.span != p.span || next < len(moves) && moves[next] <= q.batch {
				break
			}
			p.to = q.to
		}
		if u.isDifference() && !b.isOmitting {
			u.eachSlice(b, p.span, p.from, p.to, s.columns[0].addDifferences)
			continue
		}
		u.eachRun(b, p.span, p.from, p.to, func(k int, values []float64, weights []int64) {
			s.columns[k].addValues(values, weights)
		})
	}
	return next
}

// moveColumns moves the edges of all columns to the extremes after a batch.
func (s *unitHistograms) moveColumns(batch int) {
	for k, h := range s.columns {
		list := s.changes[k]
		at, _ := slices.BinarySearchFunc(list, batch+1, func(e extremes, b int) int {
			return e.batch - b
		})
		if at > 0 {
			h.moveEdges(list[at-1].lo, list[at-1].hi)
		}
	}
}
