package stats

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
)

// The first edges of a running histogram lie this far outside the values.
const histogramMargin = 1e-10

// runningHistogram counts values in equal bins between the extremes so far. When the extremes
// change, each bin moves to the bin of its lower edge. These are openpi's rules.
type runningHistogram struct {
	edges, next  []float64 // of bins, ascending
	counts, sums []int64
	lo, hi       float64 // of all values so far
	scale        float64
}

func newRunningHistogram(bins int) *runningHistogram {
	return &runningHistogram{
		edges: make([]float64, bins+1), next: make([]float64, bins+1),
		counts: make([]int64, bins), sums: make([]int64, bins),
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

// countBins counts values, each as often as its weight states; without weights, once.
func (h *runningHistogram) countBins(values []float64, weights []int64) {
	edges, counts := h.edges, h.counts
	low, scale := edges[0], h.scale
	for i, v := range values {
		n := int64(1)
		if len(weights) > 0 {
			n = weights[i]
		}
		// Most values are in the bin that the scale gives. binOf finds the others.
		bin := int((v - low) * scale)
		if uint(bin) < uint(len(counts)) && uint(bin)+1 < uint(len(edges)) &&
			v >= edges[bin] && v < edges[bin+1] {
			counts[bin] += n
		} else if bin := h.binOf(v); bin >= 0 {
			counts[bin] += n
		}
	}
}

// moveEdges changes the edges to the extremes so far.
func (h *runningHistogram) moveEdges() {
	setEdges(h.next, h.lo, h.hi)
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
func (h *batchHistogram) quantile(q float64, n int64) float64 {
	if h.runningHistogram == nil {
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

// batchPieces divides the windows of all blocks into batches. Result i has those of block i.
func (c *windowCounter) batchPieces() (pieces [][]windowPiece, batches int) {
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
				list = append(list, windowPiece{s, t, t + n, done / c.opt.Batch})
				t, done = t+n, done+n
			}
		}
		pieces, all = append(pieces, list), all[len(block):]
	}
	return pieces, (total + c.opt.Batch - 1) / c.opt.Batch
}

// countHistograms writes the statistics of all units, with quantiles from running histograms. The
// first pass finds the batches at which an extreme of any column changes, because then the edges of
// all columns move.
func (c *windowCounter) countHistograms(ctx context.Context, fs *robocache.FeatureStats) error {
	pieces, batches := c.batchPieces()
	changes := make([][]bool, len(c.units))
	ranges := make([][]valueRange, len(c.units))
	for i, u := range c.units {
		changes[i] = make([]bool, batches)
		for range u.width {
			ranges[i] = append(ranges[i], valueRange{math.Inf(1), math.Inf(-1)})
		}
	}
	err := c.eachUnit(ctx, c.units, func(i int, u *windowUnit, b *windowBlock) error {
		u.eachRange(b, pieces[b.index], func(k int, r valueRange, batch int) {
			whole := &ranges[i][k]
			changes[i][batch] = changes[i][batch] || r.lo < whole.lo || r.hi > whole.hi
			whole.lo, whole.hi = min(whole.lo, r.lo), max(whole.hi, r.hi)
		})
		return nil
	})
	if err != nil {
		return err
	}
	isMoved := make([]bool, batches)
	for _, list := range changes {
		for k, is := range list {
			isMoved[k] = isMoved[k] || is
		}
	}
	histograms, moments, err := c.fillHistograms(ctx, pieces, isMoved)
	if err != nil {
		return err
	}
	for i, u := range c.units {
		c.setMoments(fs, u, moments[i])
		for k := range histograms[i] {
			h := &histograms[i][k]
			h.flush(isMoved)
			for _, q := range Quantiles {
				fs.Quantiles[q.Name][u.step*c.width+u.at+k] = h.quantile(q.Q, moments[i].N[k])
			}
		}
	}
	return nil
}

// fillHistograms counts the values of all units, and their moments. The last batch is not flushed.
func (c *windowCounter) fillHistograms(
	ctx context.Context, pieces [][]windowPiece, isMoved []bool,
) ([][]batchHistogram, []*Moments, error) {
	all := make([][]batchHistogram, len(c.units))
	moments := make([]*Moments, len(c.units))
	for i, u := range c.units {
		moments[i] = NewMoments(u.width)
		for range u.width {
			all[i] = append(all[i], batchHistogram{bins: c.opt.Histogram})
		}
	}
	return all, moments, c.eachUnit(ctx, c.units, func(i int, u *windowUnit, b *windowBlock) error {
		for _, p := range pieces[b.index] {
			u.eachRun(b, p.span, p.from, p.to, func(k int, values []float64, weights []int64) {
				moments[i].addWeighted(k, values, weights)
				all[i][k].add(p.batch, values, weights, isMoved)
			})
		}
		return nil
	})
}

// batchHistogram collects the values of a batch before it counts them.
type batchHistogram struct {
	*runningHistogram
	bins    int
	batch   int
	values  []float64
	weights []int64 // of values; empty: 1
}

// add adds values of a batch. The batches must ascend.
func (h *batchHistogram) add(batch int, values []float64, weights []int64, isMoved []bool) {
	if batch != h.batch {
		h.flush(isMoved)
		h.batch = batch
	}
	if !isMoved[batch] { // no edge moves, so the values need not be collected first
		if h.runningHistogram != nil {
			h.countBins(values, weights)
		}
		return
	}
	if weights == nil && len(h.weights) == 0 {
		h.values = append(h.values, values...)
		return
	}
	for len(h.weights) < len(h.values) {
		h.weights = append(h.weights, 1)
	}
	for i, v := range values {
		n := int64(1)
		if weights != nil {
			n = weights[i]
		}
		h.values, h.weights = append(h.values, v), append(h.weights, n)
	}
}

// flush counts the values of the batch.
func (h *batchHistogram) flush(isMoved []bool) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, v := range h.values {
		if (v < lo || v > hi) && v-v == 0 && h.weight(i) > 0 {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	switch {
	case lo > hi: // no values
	case h.runningHistogram == nil:
		h.runningHistogram = newRunningHistogram(h.bins)
		h.lo, h.hi = lo, hi
		setEdges(h.edges, lo-histogramMargin, hi+histogramMargin)
		h.setScale()
	default:
		h.lo, h.hi = min(h.lo, lo), max(h.hi, hi)
		if isMoved[h.batch] {
			h.moveEdges()
		}
	}
	if h.runningHistogram != nil {
		h.countBins(h.values, h.weights)
	}
	h.values, h.weights = h.values[:0], h.weights[:0]
}

// weight returns how often value i occurs in the batch.
func (h *batchHistogram) weight(i int) int64 {
	if len(h.weights) == 0 {
		return 1
	}
	return h.weights[i]
}
