package kernel

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Sums holds the samples that each row of a plan under ModeSum adds up, one entry per target
// (kernel.K24).
type Sums struct {
	// samples From … To-1; if both are equal, the row's interval covers no sample and its sum is 0
	From, To []int32
	// fractions of samples From and To-1 that the interval covers; Tail is used only if From and
	// To-1 differ
	Head, Tail []float64
}

// hasRows reports whether the sums have n rows.
func (s *Sums) hasRows(n int) bool {
	return len(s.From) == n && len(s.To) == n && len(s.Head) == n && len(s.Tail) == n
}

// makeSums returns sums of n rows that cover no sample.
func makeSums(n int) *Sums {
	return &Sums{
		From: make([]int32, n),
		To:   make([]int32, n),
		Head: make([]float64, n),
		Tail: make([]float64, n),
	}
}

// Resize sets the number of rows to n. It reuses the memory if that is large enough. The contents
// of the rows are undefined.
func (s *Sums) Resize(n int) {
	if cap(s.From) < n {
		*s = *makeSums(n)
	}
	s.From, s.To, s.Head, s.Tail = s.From[:n], s.To[:n], s.Head[:n], s.Tail[:n]
}

// Pick returns the sums of the given rows.
func (s *Sums) Pick(rows []int) *Sums {
	if s == nil {
		return nil
	}
	out := makeSums(len(rows))
	for i, r := range rows {
		out.From[i], out.To[i], out.Head[i], out.Tail[i] = s.From[r], s.To[r], s.Head[r], s.Tail[r]
	}
	return out
}

// Shift returns a copy of the sums in which every sample number is larger by offset. Rows that
// cover no sample are unchanged. Head and Tail are shared with s.
func (s *Sums) Shift(offset int) *Sums {
	out := &Sums{From: slices.Clone(s.From), To: slices.Clone(s.To), Head: s.Head, Tail: s.Tail}
	for i := range out.From {
		if out.From[i] < out.To[i] {
			out.From[i] += int32(offset)
			out.To[i] += int32(offset)
		}
	}
	return out
}

// FillSums is Fill for ModeSum. Row i covers the time from targets[i] to targets[i]+lengths[i].
// Caller must have checked src.
func (p *Plan) FillSums(src, targets, lengths []int64, rule *Rule) error {
	if len(lengths) != len(targets) {
		return misuseError(
			"plan",
			"length mismatch",
			strconv.Itoa(len(targets))+" lengths of rows",
			strconv.Itoa(len(lengths)),
		)
	}
	p.resetRows(ModeSum)
	if p.Sums == nil {
		p.Sums = new(Sums)
	}
	p.Sums.Resize(len(targets))
	if err := fillRows(p, src, targets, rule, rule.MaxGap, 0, false); err != nil {
		return err
	}
	c := coverage{src: src}
	for i, t := range targets {
		c.coverRow(i, t, lengths[i], p.Sums)
		gap, cut := c.cutGap(i, rule.MaxGap, p.Sums)
		if !cut || p.Kind[i] == Zero || p.Valid[i] == 0 {
			continue
		}
		p.Valid[i] = 0
		// checkGap applies the edge policy, because the gap is longer than MaxGap.
		f := rowFinder[int64]{rule: rule, maxGap: rule.MaxGap, plan: p}
		if err := f.checkGap(i, t, gap); err != nil {
			return err
		}
	}
	return nil
}

// coverage finds the samples that intervals cover. Sample k covers the time until sample k+1.
type coverage struct {
	src      []int64
	from, to int // results of the previous search, where the next one starts
}

// sampleEnd returns the time at which sample k ends. The last sample lasts as long as the step
// before it.
func (c *coverage) sampleEnd(k int) int64 {
	n := len(c.src)
	if k+1 < n {
		return c.src[k+1]
	}
	last := c.src[n-1]
	if before := lowerFrom(c.src, n, last) - 1; before >= 0 {
		return last + min(last-c.src[before], MaxTime)
	}
	return last
}

// coveredShare returns the fraction of sample k that lies in [from, to). It is 1 or 0 for a sample
// that lasts no time.
func (c *coverage) coveredShare(k int, from, to int64) float64 {
	start := c.src[k]
	end := c.sampleEnd(k)
	if start == end {
		if from <= start && start < to {
			return 1
		}
		return 0
	}
	part := min(end, to) - max(start, from)
	return max(0, float64(part)/float64(end-start))
}

// snapToTimestamp moves a time by at most 1 ns onto a timestamp, because the times of a grid are
// rounded.
func (c *coverage) snapToTimestamp(t int64, near int) int64 {
	k := lowerFrom(c.src, near, t)
	if k < len(c.src) && c.src[k]-t <= 1 {
		return c.src[k]
	}
	if k > 0 && t-c.src[k-1] == 1 {
		return t - 1
	}
	return t
}

// coverRow writes the samples of row i, which covers the time from t to t+length.
func (c *coverage) coverRow(i int, t, length int64, out *Sums) {
	from := t
	to := t + min(length, MaxTime-1-max(t, 0))
	// A shorter interval is not moved, because 1 ns is a large part of it.
	if length > 4 {
		from, to = c.snapToTimestamp(from, c.from), c.snapToTimestamp(to, c.to)
	}
	lo := lowerFrom(c.src, c.from, from)
	hi := lowerFrom(c.src, c.to, to)
	c.from, c.to = lo, hi
	if lo > 0 && (lo == len(c.src) || c.src[lo] != from) {
		lo-- // the previous sample extends into the interval
	}
	out.From[i], out.To[i], out.Head[i], out.Tail[i] = 0, 0, 0, 0
	if lo >= hi {
		return
	}
	head := c.coveredShare(lo, from, to)
	if head == 0 { // the last sample ended before the interval
		return
	}
	out.From[i] = int32(lo)
	out.To[i] = int32(hi)
	out.Head[i] = head
	if hi-lo > 1 {
		out.Tail[i] = c.coveredShare(hi-1, from, to)
	}
}

// cutGap reports whether row i covers only a fraction of a sample that lasts longer than limit, and
// returns the length of that sample. Only the first and the last sample of a row can be cut.
func (c *coverage) cutGap(i int, limit int64, out *Sums) (length int64, cut bool) {
	from, to := int(out.From[i]), int(out.To[i])
	if limit == 0 || from == to {
		return 0, false
	}
	for _, end := range []struct {
		sample int
		share  float64
	}{{from, out.Head[i]}, {to - 1, out.Tail[i]}} {
		length = c.sampleEnd(end.sample) - c.src[end.sample]
		if length > limit && end.share > 0 && end.share < 1 {
			return length, true
		}
	}
	return 0, false
}

// checkRow reports whether row i covers no sample, or only samples that exist.
func (s *Sums) checkRow(i, sources int) bool {
	from, to := int(s.From[i]), int(s.To[i])
	return from == to || from >= 0 && from < to && to <= sources
}

// sumRow computes row i under ModeSum: it sums the summed channels and blends the others linearly
// (kernel.K24).
func (r *resampleRun) sumRow(i int) {
	next := 0
	if r.opt.Rule.Summed == nil {
		r.sumColumns(i, 0, r.dst.Cols)
		return
	}
	for _, col := range r.opt.Rule.Summed {
		r.blendColumns(i, next, col)
		r.sumColumns(i, col, col+1)
		next = col + 1
	}
	r.blendColumns(i, next, r.dst.Cols)
}

// blendColumns computes columns from … to-1 of row i from the two samples around its time.
func (r *resampleRun) blendColumns(i, from, to int) {
	a := int(r.plan.Left[i])
	w := r.plan.Weight[i]
	if r.plan.Kind[i] == Copy || w == 0 || !r.wide && float32(w) == 0 {
		r.castColumns(i, a, from, to)
		return
	}
	r.lerpColumns(i, a, int(r.plan.Right[i]), w, from, to)
}

// sumColumns computes columns left … right-1 of row i as sums of samples. The first and the last
// sample count by the fraction that the row covers.
func (r *resampleRun) sumColumns(i, left, right int) {
	s := r.plan.Sums
	from, to := int(s.From[i]), int(s.To[i])
	for col := left; col < right; col += tile {
		n := min(tile, right-col)
		sum, y := r.a64[:n], r.b64[:n]
		clear(sum)
		for k := from; k < to; k++ {
			r.src.loadRow64(y, k, col)
			share := 1.0
			if k == from {
				share = s.Head[i]
			} else if k == to-1 {
				share = s.Tail[i]
			}
			for j := range sum {
				sum[j] += float64(share * y[j])
			}
		}
		r.finishRow64(sum, i, col)
	}
}

// checkSummed rejects channel numbers of ModeSum that do not fit.
func (r *Rule) checkSummed(op string, cols int) error {
	last := -1
	for _, c := range r.Summed {
		if c <= last || c >= cols {
			return misuseError(
				op,
				"summed channels",
				fmt.Sprintf("channels below %d in ascending order", cols),
				fmt.Sprint(r.Summed),
			)
		}
		last = c
	}
	return nil
}

// sumUnsupported returns the error of an operation that does not support ModeSum.
func sumUnsupported(op string) error {
	return robocache.Unsupported(op, nil, "no mode sum in this operation").
		Expected(modeNames.listBefore(ModeSum), ModeSum.String()).
		WithHint(
			"Use %s or %s, which have mode sum.",
			robocache.Option("align"),
			robocache.Option("hz"),
		)
}

// sumLengths returns the lengths of n rows of equal length, for FillSums.
func (r *Rule) sumLengths(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = r.After
	}
	return out
}
