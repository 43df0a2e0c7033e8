package order

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// mixPlan deals the positions of a mixture to its sources, each at a constant rate.
//
// Source i has W_i of S shares and a start U_i in [0, S). Its j-th draw has the time
// (j·S + U_i) / W_i, and positions follow the times. At equal times the order of the sources
// decides. The source at a position is therefore a function of shares, seed and position. It is the
// same in every epoch. W_i, U_i and S are integers, so times are compared exactly.
//
// Bound on the distance of a source from its share. N_i = ⌈(τW_i − U_i) / S⌉ draws of source i are
// before time τ > 0, or one more if draws of equal time are divided. With w = W/S and u = U/S,
// d_i = N_i − τw_i is in [−u_i, 1−u_i]. Prefix p ends at some τ, and p = ΣN_i = τ + Σd_i, so
//
//	N_i − w_i p = d_i − w_i Σ_j d_j = (1−w_i) d_i − w_i Σ_{j≠i} d_j
//
// This is at most (1−w_i)(1−u_i) + w_i Σ_{j≠i} u_j < 1 + w_i (k−2) ≤ k−1 for k sources with a
// share. By the same steps with u and 1−u exchanged it is at least −(1 + w_i (k−2)). At every
// prefix the count of a source is therefore within 1 + w_i (k−2) of its share: within one sample
// for two sources, and never more than k−1.
//
// With shares by size (w_i = n_i/Σn) the epoch ends at τ = L = Σn, where N_i = ⌈n_i − u_i⌉ = n_i.
// Each sample of each source then occurs exactly once per epoch. Shares are rounded to 1/S. Starts
// that keep S/16 from both ends make this hold as long as L ≤ S/16.
type mixPlan struct {
	sourceNames  []string
	sourceSizes  []int64
	totalShares  uint64   // S
	shares       []uint64 // W
	starts       []uint64 // U
	epochSamples int64    // L
	counts       []int64  // draws of each source in an epoch
}

// mixTotal is S, unless shares are those of a global batch (Stratified).
const mixTotal = 1 << 40

// maxEpoch bounds the samples of an epoch. JSON numbers that are read as floats are exact up to it.
const maxEpoch = 1 << 53

// Stop selects the end of an epoch of a mixture.
type Stop string

const (
	StopSum   Stop = ""      // after the sum of the sizes
	StopFirst Stop = "first" // when the first source has delivered all its samples
	StopAll   Stop = "all"   // when all sources have
)

// MixParams holds the options of a mixture.
type MixParams struct {
	Names       []string
	Weights     []float64 // nil: by size
	Balance     bool      // weights are multiplied by the sizes
	Primary     []bool    // sources that end an epoch; nil or none: all
	Temperature float64   // 0 means 1
	Stop        Stop
	EpochSize   int64 // samples of an epoch; 0: determined by Stop
	Stratified  bool  // each global batch has exactly the shares
	GlobalBatch int64 // samples of a global batch, for Stratified
}

// misuseOf returns the error of an invalid option of a mixture.
func (m *MixParams) misuseOf(option, want, got string) error {
	return robocache.Misuse("mixture", nil, "%s", option).Expected(want, got)
}

// newMixPlan validates the options and returns the plan of a mixture of sources with these sizes.
func newMixPlan(m MixParams, sizes []int64, seed int64) (*mixPlan, error) {
	switch {
	case m.Stop != StopSum && m.Stop != StopFirst && m.Stop != StopAll:
		return nil, m.misuseOf(robocache.Option("stop"), `"first", "all" or none`, string(m.Stop))
	case m.EpochSize < 0 || m.EpochSize > maxEpoch:
		return nil, m.misuseOf(robocache.Option("epoch_size"), "0 to 2^53", fmt.Sprint(m.EpochSize))
	case m.EpochSize > 0 && m.Stop != StopSum:
		both := robocache.Option("epoch_size") + " and " + robocache.Option("stop")
		return nil, m.misuseOf(both, "one of them", "both")
	case m.Temperature != 0 && !(m.Temperature > 0):
		return nil, m.misuseOf(
			robocache.Option("temperature"),
			"above 0",
			fmt.Sprint(m.Temperature),
		)
	}
	p := &mixPlan{sourceNames: m.Names, sourceSizes: sizes, totalShares: mixTotal}
	if m.Stratified {
		p.totalShares = uint64(m.GlobalBatch)
	}
	weights, err := m.relativeWeights(sizes)
	if err != nil {
		return nil, err
	}
	if p.shares, err = m.integerShares(weights, p.totalShares); err != nil {
		return nil, err
	}
	if err := m.checkPrimary(p.shares); err != nil {
		return nil, err
	}
	for i, w := range p.shares {
		if w > 0 && sizes[i] == 0 {
			return nil, m.misuseOf(
				"weight of "+m.Names[i],
				"0: the source has no samples",
				fmt.Sprint(m.Weights[i]),
			)
		}
	}
	p.starts = make([]uint64, len(sizes))
	margin := p.totalShares / 16 // distance of a start from 0 and from S; see mixPlan
	for i := range p.starts {
		key := deriveKey(seed, int64(i), mixStartKey)
		p.starts[i] = margin + scaleTo(key, p.totalShares-2*margin)
	}
	return p, p.computeEpoch(m)
}

// hasPrimary reports whether only some of the sources end an epoch.
func (m *MixParams) hasPrimary() bool { return slices.Contains(m.Primary, true) }

// checkPrimary rejects an epoch size together with primary sources, and primary sources without
// samples or weight.
func (m *MixParams) checkPrimary(shares []uint64) error {
	for i, isPrimary := range m.Primary {
		switch {
		case isPrimary && m.EpochSize > 0:
			both := robocache.Option("primary", true) + " and " + robocache.Option("epoch_size")
			return m.misuseOf(both, "one of them", "both")
		case isPrimary && shares[i] == 0:
			return m.misuseOf("primary source "+m.Names[i], "samples and a weight above 0", "none")
		}
	}
	return nil
}

// relativeWeights returns the configured weights, or sizes, at the temperature. They sum up to 1.
func (m *MixParams) relativeWeights(sizes []int64) ([]float64, error) {
	out := slices.Clone(m.Weights)
	if out == nil {
		for _, n := range sizes {
			out = append(out, float64(n))
		}
	} else if m.Balance && len(out) == len(sizes) {
		for i, n := range sizes {
			out[i] *= float64(n)
		}
	}
	if len(out) != len(sizes) {
		return nil, m.misuseOf(
			"weights",
			fmt.Sprintf("%d, one a source", len(sizes)),
			fmt.Sprint(len(out)),
		)
	}
	sum := 0.0
	for i, w := range out {
		if !(w >= 0) || w > 1e300 {
			return nil, m.misuseOf("weight of "+m.Names[i], "0 or more", fmt.Sprint(w))
		}
		if t := m.Temperature; t != 0 && t != 1 && w > 0 {
			// The last bit of Pow may differ between machines. The first 32 bits do not.
			f, e := math.Frexp(math.Pow(w, 1/t))
			out[i] = math.Ldexp(math.Round(f*(1<<32))/(1<<32), e)
		}
		sum += out[i]
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return nil, m.misuseOf(
			"weights",
			"one above 0, and a sum that is a number",
			fmt.Sprint(sum),
		)
	}
	for i := range out {
		out[i] /= sum
	}
	return out, nil
}

// integerShares divides total by weights into integers, by largest remainder. Every source with a
// weight gets at least one share.
func (m *MixParams) integerShares(weights []float64, total uint64) ([]uint64, error) {
	type remainder struct {
		fraction float64 // of a share
		source   int
	}
	out := make([]uint64, len(weights))
	remainders := make([]remainder, 0, len(weights))
	unassigned := total
	for i, w := range weights {
		if w == 0 {
			continue
		}
		whole, fraction := math.Modf(w * float64(total))
		out[i] = min(uint64(whole), unassigned)
		unassigned -= out[i]
		remainders = append(remainders, remainder{fraction, i})
	}
	slices.SortStableFunc(remainders, func(a, b remainder) int {
		return cmp.Compare(b.fraction, a.fraction)
	})
	for i := 0; unassigned > 0; i++ { // rounding may leave more shares than sources
		out[remainders[i%len(remainders)].source]++
		unassigned--
	}
	for _, r := range remainders {
		if out[r.source] > 0 {
			continue
		}
		if m.Stratified {
			return nil, robocache.Misuse("mixture", nil, "Stratified: a global batch has no "+
				"sample for %s", m.Names[r.source]).
				Expected(fmt.Sprintf("a share of about 1/%d or more", total),
					fmt.Sprintf("%.3g", weights[r.source])).
				WithHint("raise batch_size or the weight, or omit stratified")
		}
		largest := 0
		for i := range out {
			if out[i] > out[largest] {
				largest = i
			}
		}
		out[largest]--
		out[r.source] = 1
	}
	return out, nil
}

// computeEpoch sets the length of an epoch and the draws of each source in it.
func (p *mixPlan) computeEpoch(m MixParams) error {
	switch {
	case m.EpochSize > 0:
		p.epochSamples = m.EpochSize
	case m.Stop == StopSum && !m.hasPrimary():
		for i, n := range p.sourceSizes {
			if p.shares[i] > 0 { // a source of weight 0 is ignored
				p.epochSamples += n
			}
		}
	default:
		for i, n := range p.sourceSizes {
			if p.shares[i] == 0 || m.hasPrimary() && !m.Primary[i] {
				continue
			}
			at, ok := p.drawPosition(i, n-1)
			if !ok {
				at = maxEpoch
			}
			// StopFirst takes the first of the ends, and the other modes the last one.
			end := at + 1
			isEarlier := end < p.epochSamples
			if p.epochSamples == 0 || isEarlier == (m.Stop == StopFirst) {
				p.epochSamples = end
			}
		}
	}
	if p.epochSamples > maxEpoch {
		got := robocache.Option("stop", m.Stop) +
			" needs more: a large source has a very small weight"
		return m.misuseOf("the epoch", "at most 2^53 samples", got)
	}
	d := p.newDealer()
	d.seekTo(p.epochSamples)
	p.counts = d.drawn
	return nil
}

// activeSources returns the number of sources with a share.
func (p *mixPlan) activeSources() (k int) {
	for _, w := range p.shares {
		if w > 0 {
			k++
		}
	}
	return k
}

// shareBound returns the maximum difference between the count of source i and its share, at any
// prefix of an epoch.
func (p *mixPlan) shareBound(i int) float64 {
	k := p.activeSources()
	if k < 2 {
		return 0
	}
	return 1 + p.shareOf(i)*float64(k-2)
}

// shareOf returns the share of source i as a fraction of 1.
func (p *mixPlan) shareOf(i int) float64 { return float64(p.shares[i]) / float64(p.totalShares) }

// drawTime returns the time (j·S + U) / W of the j-th draw of source i, as q + r/W with r < W. S is
// p.totalShares, and U and W are the start and the share of the source. j·S may need 128 bits. ok
// is false if q is 2^63 or more.
func (p *mixPlan) drawTime(i int, j int64) (q, r uint64, ok bool) {
	hi, lo := bits.Mul64(uint64(j), p.totalShares)
	lo, carry := bits.Add64(lo, p.starts[i], 0)
	if hi += carry; hi >= p.shares[i] {
		return 0, 0, false
	}
	q, r = bits.Div64(hi, lo, p.shares[i])
	return q, r, q < 1<<63
}

// drawsBefore returns the number of draws of source l that precede a draw of source i at the time
// q + r/share, where r < share. A draw of l at the same time precedes it if l < i.
func (p *mixPlan) drawsBefore(l int, q, r, share uint64, i int) int64 {
	if p.shares[l] == 0 {
		return 0
	}
	// Draw m of source l has the time (m·S + U_l) / W_l. It is earlier if m·S + U_l is less than
	// x = (q + r/share)·W_l. hi and lo are the 128 bits of x, rounded down.
	hi, lo := bits.Mul64(q, p.shares[l])
	rhi, rlo := bits.Mul64(r, p.shares[l]) // r < share, so the quotient fits
	part, rest := bits.Div64(rhi, rlo, share)
	lo, carry := bits.Add64(lo, part, 0)
	hi += carry
	if rest == 0 && l >= i {
		if hi == 0 && lo == 0 {
			return 0
		}
		var borrow uint64
		lo, borrow = bits.Sub64(lo, 1, 0)
		hi -= borrow
	}
	lo, borrow := bits.Sub64(lo, p.starts[l], 0)
	hi, borrow = bits.Sub64(hi, 0, borrow)
	if borrow != 0 {
		return 0
	}
	n, _ := bits.Div64(hi, lo, p.totalShares) // ≤ q, since W ≤ S
	return int64(n) + 1
}

// drawPosition returns the position of the j-th draw of source i. ok is false beyond 2^53.
func (p *mixPlan) drawPosition(i int, j int64) (at int64, ok bool) {
	q, r, ok := p.drawTime(i, j)
	if !ok || q > maxEpoch {
		return 0, false
	}
	for l := range p.shares {
		if l == i {
			at += j
		} else {
			at += p.drawsBefore(l, q, r, p.shares[i], i)
		}
	}
	return at, at < maxEpoch
}

// countsBefore returns the draws of each source before a position.
func (p *mixPlan) countsBefore(position int64) []int64 {
	d := p.newDealer()
	d.seekTo(position)
	return d.drawn
}

// dealer assigns the positions of an epoch to sources, in order.
type dealer struct {
	plan     *mixPlan
	position int64        // the next position
	drawn    []int64      // draws of each source before it
	turns    []sourceTurn // next draw of each source with a share
}

// sourceTurn is the next draw of a source. The source with the earliest time is drawn next. Times
// are exact fractions: a whole number and a remainder over the source's shares.
type sourceTurn struct {
	q, r         uint64 // the time is q + r/w
	stepQ, stepR uint64 // the following draw is stepQ + stepR/w later
	w            uint64 // shares of the source
	source       int
}

// newDealer returns a dealer at position 0.
func (p *mixPlan) newDealer() *dealer {
	d := &dealer{plan: p, drawn: make([]int64, len(p.shares))}
	for i, w := range p.shares {
		if w > 0 {
			q, r, _ := p.drawTime(i, 0)
			d.turns = append(d.turns, sourceTurn{
				q:      q,
				r:      r,
				stepQ:  p.totalShares / w,
				stepR:  p.totalShares % w,
				w:      w,
				source: i,
			})
		}
	}
	return d
}

// nextSource returns the source of the next position and the number of its draw in the epoch. O(k)
// for k sources.
func (d *dealer) nextSource() (source int, draw int64) {
	t := &d.turns[0]
	for i := 1; i < len(d.turns); i++ {
		o := &d.turns[i]
		if o.q > t.q {
			continue
		}
		if o.q == t.q {
			// Compare o.r/o.w with t.r/t.w in 128 bits.
			ahi, alo := bits.Mul64(o.r, t.w)
			bhi, blo := bits.Mul64(t.r, o.w)
			if ahi > bhi || ahi == bhi && alo >= blo {
				continue
			}
		}
		t = o
	}
	t.q += t.stepQ
	if t.r += t.stepR; t.r >= t.w {
		t.r -= t.w
		t.q++
	}
	draw = d.drawn[t.source]
	d.drawn[t.source]++
	d.position++
	return t.source, draw
}

// seekTo moves to a position. A binary search finds an integer time before it, since times and
// positions differ by at most k. At most k+1 draws then remain. O(k² + k log k).
func (d *dealer) seekTo(position int64) {
	if position >= d.position && position-d.position < int64(8*len(d.turns)) {
		// A few single draws cost less than a search.
		for d.position < position {
			d.nextSource()
		}
		return
	}
	p := d.plan
	k := int64(len(d.turns))
	// invariant: countDraws(lo) ≤ position < countDraws(hi)
	lo, hi := max(position-k-1, 0), position+k+1
	countDraws := func(time int64) (n int64) { // draws of all sources before an integer time
		for i := range p.shares {
			n += p.drawsBefore(i, uint64(time), 0, 1, 0)
		}
		return n
	}
	for hi-lo > 1 {
		if middle := lo + (hi-lo)/2; countDraws(middle) <= position {
			lo = middle
		} else {
			hi = middle
		}
	}
	d.position = 0
	for i := range d.turns {
		t := &d.turns[i]
		n := p.drawsBefore(t.source, uint64(lo), 0, 1, 0)
		t.q, t.r, _ = p.drawTime(t.source, n)
		d.drawn[t.source] = n
		d.position += n
	}
	for d.position < position {
		d.nextSource()
	}
}

// sourceDraw returns the epoch and the position in the source's own order of its j-th draw in an
// epoch of the mixture. Sources continue where the previous epoch of the mixture left them.
func (p *mixPlan) sourceDraw(source int, epoch, j int64) (sourceEpoch, position int64) {
	return drawInPasses(epoch, p.counts[source], j, p.sourceSizes[source])
}
