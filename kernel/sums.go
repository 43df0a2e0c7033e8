package kernel

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Sums are the samples that each row of a plan under ModeSum adds up, one entry a target (K24).
type Sums struct {
	// samples From … To-1; equal: the row's interval covers none, and its sum is 0
	From, To []int32
	// the parts of samples From and To-1 that the interval covers; Tail counts if they are two
	Head, Tail []float64
}

func makeSums(n int) *Sums {
	return &Sums{
		From: make([]int32, n),
		To:   make([]int32, n),
		Head: make([]float64, n),
		Tail: make([]float64, n),
	}
}

// Resize makes the sums those of n rows. It keeps the memory if that suffices; the rows hold
// anything.
func (s *Sums) Resize(n int) {
	if cap(s.From) < n {
		*s = *makeSums(n)
	}
	s.From, s.To, s.Head, s.Tail = s.From[:n], s.To[:n], s.Head[:n], s.Tail[:n]
}

// Pick returns the sums of some rows.
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

// Shift returns the sums over samples whose numbers are by larger.
func (s *Sums) Shift(by int) *Sums {
	out := &Sums{From: slices.Clone(s.From), To: slices.Clone(s.To), Head: s.Head, Tail: s.Tail}
	for i := range out.From {
		if out.From[i] < out.To[i] {
			out.From[i] += int32(by)
			out.To[i] += int32(by)
		}
	}
	return out
}

// FillSums is Fill under ModeSum. Row i covers the time from targets[i] up to lengths[i] later. src
// is proved already.
func (p *Plan) FillSums(src, targets, lengths []int64, rule *Rule) error {
	if len(lengths) != len(targets) {
		return misuse(
			"plan",
			"length mismatch",
			strconv.Itoa(len(targets))+" lengths of rows",
			strconv.Itoa(len(lengths)),
		)
	}
	p.start(ModeSum)
	if p.Sums == nil {
		p.Sums = new(Sums)
	}
	p.Sums.Resize(len(targets))
	if err := fill(p, src, targets, rule, rule.MaxGap, 0, false); err != nil {
		return err
	}
	c := covering{src: src}
	for i, t := range targets {
		c.cover(i, t, lengths[i], p.Sums)
		gap, cut := c.cutGap(i, rule.MaxGap, p.Sums)
		if !cut || p.Kind[i] == Zero || p.Valid[i] == 0 {
			continue
		}
		p.Valid[i] = 0
		f := finder[int64]{rule: rule, maxGap: rule.MaxGap, p: p}
		if err := f.gap(i, t, gap); err != nil {
			return err
		}
	}
	return nil
}

// covering finds the samples that intervals cover. Sample k covers the time until sample k+1.
type covering struct {
	src      []int64
	from, to int // where the last search ended
}

// end returns when sample k ends. The last one lasts as long as the step before it.
func (c *covering) end(k int) int64 {
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

// share returns the part of sample k that lies in [from, to): 1 or 0 for a sample that lasts no
// time.
func (c *covering) share(k int, from, to int64) float64 {
	start, end := c.src[k], c.end(k)
	if start == end {
		if from <= start && start < to {
			return 1
		}
		return 0
	}
	part := min(end, to) - max(start, from)
	return max(0, float64(part)/float64(end-start))
}

// snap moves a time by at most 1 ns onto a timestamp. The times of a grid are rounded.
func (c *covering) snap(t int64, near int) int64 {
	k := lowerFrom(c.src, near, t)
	if k < len(c.src) && c.src[k]-t <= 1 {
		return c.src[k]
	}
	if k > 0 && t-c.src[k-1] == 1 {
		return t - 1
	}
	return t
}

// cover writes the samples of row i, which covers the time from t up to length later.
func (c *covering) cover(i int, t, length int64, out *Sums) {
	from, to := t, t+min(length, MaxTime-1-max(t, 0))
	if length > 4 {
		from, to = c.snap(from, c.from), c.snap(to, c.to)
	}
	lo := lowerFrom(c.src, c.from, from)
	hi := lowerFrom(c.src, c.to, to)
	c.from, c.to = lo, hi
	if lo > 0 && (lo == len(c.src) || c.src[lo] != from) {
		lo-- // the sample before reaches into the interval
	}
	out.From[i], out.To[i], out.Head[i], out.Tail[i] = 0, 0, 0, 0
	if lo >= hi {
		return
	}
	head := c.share(lo, from, to)
	if head == 0 { // the last sample ended before
		return
	}
	out.From[i], out.To[i], out.Head[i] = int32(lo), int32(hi), head
	if hi-lo > 1 {
		out.Tail[i] = c.share(hi-1, from, to)
	}
}

// cutGap reports whether row i holds a part, not the whole, of a sample that lasts longer than
// limit.
func (c *covering) cutGap(i int, limit int64, out *Sums) (length int64, cut bool) {
	from, to := int(out.From[i]), int(out.To[i])
	if limit == 0 || from == to {
		return 0, false
	}
	for _, end := range []struct {
		sample int
		share  float64
	}{{from, out.Head[i]}, {to - 1, out.Tail[i]}} {
		if length = c.end(
			end.sample,
		) - c.src[end.sample]; length > limit && end.share > 0 &&
			end.share < 1 {
			return length, true
		}
	}
	return 0, false
}

// checkRow proves that row i reads inside the sources.
func (s *Sums) checkRow(i, sources int) bool {
	from, to := int(s.From[i]), int(s.To[i])
	return from == to || from >= 0 && from < to && to <= sources
}

// sum makes row i under ModeSum: the summed channels of the samples that it covers, the others
// linear (K24).
func (r *run) sum(i int) {
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

// blendColumns makes columns from … to-1 of row i of the two samples around its time.
func (r *run) blendColumns(i, from, to int) {
	a, w := int(r.p.Left[i]), r.p.Weight[i]
	if r.p.Kind[i] == Copy || w == 0 || !r.wide && float32(w) == 0 {
		r.cast(i, a, from, to)
		return
	}
	r.lerp(i, a, int(r.p.Right[i]), w, from, to)
}

func (r *run) sumColumns(i, left, right int) {
	s := r.p.Sums
	from, to := int(s.From[i]), int(s.To[i])
	for col := left; col < right; col += tile {
		n := min(tile, right-col)
		sum, y := r.a64[:n], r.b64[:n]
		clear(sum)
		for k := from; k < to; k++ {
			r.src.load64(y, k, col)
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
		r.finish64(sum, i, col)
	}
}

// checkSummed checks the channels that ModeSum adds up.
func (r *Rule) checkSummed(op string, cols int) error {
	last := -1
	for _, c := range r.Summed {
		if c <= last || c >= cols {
			return misuse(
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

// notSummed is the error of an operation that has no ModeSum.
func notSummed(op string) error {
	return robocache.Unsupported(op, nil, "no mode sum in this operation").
		Expected(modeNames.before(ModeSum), ModeSum.String()).
		WithHint("Use %s or %s, which have mode sum.", robocache.Option("align"), robocache.Option("hz"))
}

func (r *Rule) sumLengths(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = r.After
	}
	return out
}
