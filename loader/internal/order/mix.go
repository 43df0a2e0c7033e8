package order

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// A mixture's positions are dealt to its sources at a constant rate each. Source i has W_i of S shares, and a start U_i in [0, S);
// its j-th draw stands at time (j·S + U_i) / W_i, and positions follow the times (equal ones: the sources' order). So the source at a
// position is a function of the shares, the seed and the position alone, in every epoch the same; W_i, U_i, S are integers, and times
// are compared exactly.
//
// How far a source can be from its share. Of source i, N_i = ⌈(τW_i − U_i) / S⌉ draws stand before time τ > 0, or one more where draws
// of equal time are cut. With w = W/S, u = U/S: d_i = N_i − τw_i lies in [−u_i, 1−u_i]. Prefix p ends at some τ: p = ΣN_i = τ + Σd_i, so
//
//	N_i − w_i p = d_i − w_i Σ_j d_j = (1−w_i) d_i − w_i Σ_{j≠i} d_j
//
// which is at most (1−w_i)(1−u_i) + w_i Σ_{j≠i} u_j < 1 + w_i (k−2) ≤ k−1 of k sources with a share, and by the same steps with u and
// 1−u exchanged at least −(1 + w_i (k−2)). So at every prefix the count of a source is within 1 + w_i (k−2) of its share of the prefix:
// within one sample for two sources, and never more than k−1 off.
//
// By size alone (w_i = n_i/Σn) the epoch ends at τ = L = Σn, where N_i = ⌈n_i − u_i⌉ = n_i: each sample of each source comes exactly once
// an epoch. Shares are rounded to 1/S; starts that keep S/16 from both ends make this hold as long as L ≤ S/16.
type mixPlan struct {
	sourceNames  []string
	sourceSizes  []int64
	totalShares  uint64   // S
	shares       []uint64 // W
	starts       []uint64 // U
	epochSamples int64    // L, samples of an epoch
	counts       []int64  // of each source in an epoch
}

// mixTotal is S, but where shares are of a global batch.
const mixTotal = 1 << 40

// maxEpoch bounds an epoch: a JSON number that is read as a float is exact up to here.
const maxEpoch = 1 << 53

// Stop says when an epoch of a mixture ends.
type Stop string

const (
	StopSum   Stop = ""      // after the sum of the sizes
	StopFirst Stop = "first" // when the first source has given all its samples
	StopAll   Stop = "all"   // when all have
)

// MixParams is what a mixture is asked to be.
type MixParams struct {
	Names       []string
	Weights     []float64 // nil: by size
	Temperature float64   // 0 = 1
	Stop        Stop
	EpochSize   int64 // 0 = by Stop
	Stratified  bool  // each global batch has its exact shares
	GlobalBatch int64 // of Stratified
}

func (m *MixParams) misuseOf(option, want, got string) error {
	return robocache.Misuse("mixture", nil, "%s", option).Expected(want, got)
}

func newMixPlan(m MixParams, sizes []int64, seed int64) (*mixPlan, error) {
	switch {
	case m.Stop != StopSum && m.Stop != StopFirst && m.Stop != StopAll:
		return nil, m.misuseOf("stop", `"first", "all" or none`, string(m.Stop))
	case m.EpochSize < 0 || m.EpochSize > maxEpoch:
		return nil, m.misuseOf("epoch_size", "0 to 2^53", fmt.Sprint(m.EpochSize))
	case m.EpochSize > 0 && m.Stop != StopSum:
		return nil, m.misuseOf("epoch_size and stop", "one of them", "both")
	case m.Temperature != 0 && !(m.Temperature > 0):
		return nil, m.misuseOf("temperature", "above 0", fmt.Sprint(m.Temperature))
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
	for i, w := range p.shares {
		if w > 0 && sizes[i] == 0 {
			return nil, m.misuseOf("weight of "+m.Names[i], "0: the source has no samples", fmt.Sprint(m.Weights[i]))
		}
	}
	p.starts = make([]uint64, len(sizes))
	for i := range p.starts {
		edge := p.totalShares / 16
		p.starts[i] = edge + scaleTo(deriveKey(seed, int64(i), 3), p.totalShares-2*edge)
	}
	return p, p.computeEpoch(m)
}

// relativeWeights gives the weights as they were asked for, or by size, at the temperature.
func (m *MixParams) relativeWeights(sizes []int64) ([]float64, error) {
	out := slices.Clone(m.Weights)
	if out == nil {
		for _, n := range sizes {
			out = append(out, float64(n))
		}
	}
	if len(out) != len(sizes) {
		return nil, m.misuseOf("weights", fmt.Sprintf("%d, one a source", len(sizes)), fmt.Sprint(len(out)))
	}
	sum := 0.0
	for i, w := range out {
		if !(w >= 0) || w > 1e300 {
			return nil, m.misuseOf("weight of "+m.Names[i], "0 or more", fmt.Sprint(w))
		}
		if t := m.Temperature; t != 0 && t != 1 && w > 0 {
			// Pow may differ in the last bit from one machine to another; 32 bits of it do not.
			f, e := math.Frexp(math.Pow(w, 1/t))
			out[i] = math.Ldexp(math.Round(f*(1<<32))/(1<<32), e)
		}
		sum += out[i]
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		return nil, m.misuseOf("weights", "one above 0, and a sum that is a number", fmt.Sprint(sum))
	}
	for i := range out {
		out[i] /= sum
	}
	return out, nil
}

// integerShares gives integer shares of a total by largest remainder.
func (m *MixParams) integerShares(weights []float64, total uint64) ([]uint64, error) {
	type rest struct {
		part   float64
		source int
	}
	out := make([]uint64, len(weights))
	rests := make([]rest, 0, len(weights))
	left := total
	for i, w := range weights {
		if w == 0 {
			continue
		}
		whole, part := math.Modf(w * float64(total))
		out[i] = min(uint64(whole), left)
		left -= out[i]
		rests = append(rests, rest{part, i})
	}
	slices.SortStableFunc(rests, func(a, b rest) int { return cmp.Compare(b.part, a.part) })
	for i := 0; left > 0; i++ { // rounding may leave more than there are sources
		out[rests[i%len(rests)].source]++
		left--
	}
	for _, r := range rests {
		if out[r.source] > 0 {
			continue
		}
		if m.Stratified {
			return nil, robocache.Misuse("mixture", nil, "Stratified: a global batch has no sample for %s", m.Names[r.source]).
				Expected(fmt.Sprintf("a share of about 1/%d or more", total), fmt.Sprintf("%.3g", weights[r.source])).
				WithHint("raise batch_size or the weight, or leave stratified out")
		}
		most := 0
		for i := range out {
			if out[i] > out[most] {
				most = i
			}
		}
		out[most]--
		out[r.source] = 1
	}
	return out, nil
}

// computeEpoch finds where the epoch ends, and how often each source comes in it.
func (p *mixPlan) computeEpoch(m MixParams) error {
	switch {
	case m.EpochSize > 0:
		p.epochSamples = m.EpochSize
	case m.Stop == StopSum:
		for i, n := range p.sourceSizes {
			if p.shares[i] > 0 { // a source with weight 0 is as good as not there
				p.epochSamples += n
			}
		}
	default:
		for i, n := range p.sourceSizes {
			if p.shares[i] == 0 {
				continue
			}
			at, ok := p.drawPosition(i, n-1)
			if !ok {
				at = maxEpoch
			}
			if p.epochSamples == 0 || (m.Stop == StopFirst) == (at+1 < p.epochSamples) {
				p.epochSamples = at + 1
			}
		}
	}
	if p.epochSamples > maxEpoch {
		return m.misuseOf("the epoch", "at most 2^53 samples", robocache.Option("stop", m.Stop)+" needs more: a large source has a very small weight")
	}
	d := p.newDealer()
	d.seekTo(p.epochSamples)
	p.counts = d.drawn
	return nil
}

// activeSources is the number of sources that have a share.
func (p *mixPlan) activeSources() (k int) {
	for _, w := range p.shares {
		if w > 0 {
			k++
		}
	}
	return k
}

// shareBound is how far the count of a source can be from its share of any prefix of an epoch.
func (p *mixPlan) shareBound(i int) float64 {
	k := p.activeSources()
	if k < 2 {
		return 0
	}
	return 1 + p.shareOf(i)*float64(k-2)
}

func (p *mixPlan) shareOf(i int) float64 { return float64(p.shares[i]) / float64(p.totalShares) }

// drawTime is when a source's j-th draw stands: q + r/W, r < W; false beyond 2^63.
func (p *mixPlan) drawTime(i int, j int64) (q, r uint64, ok bool) {
	hi, lo := bits.Mul64(uint64(j), p.totalShares)
	lo, carry := bits.Add64(lo, p.starts[i], 0)
	if hi += carry; hi >= p.shares[i] {
		return 0, 0, false
	}
	q, r = bits.Div64(hi, lo, p.shares[i])
	return q, r, q < 1<<63
}

// drawsBefore counts the draws of source l that stand before time q + r/w of source i.
func (p *mixPlan) drawsBefore(l int, q, r, w uint64, i int) int64 {
	if p.shares[l] == 0 {
		return 0
	}
	// m·S + U_l < x, or ≤ where l comes first at equal times; x = (q + r/w)·W_l.
	hi, lo := bits.Mul64(q, p.shares[l])
	rhi, rlo := bits.Mul64(r, p.shares[l]) // r < w, so that the quotient fits
	part, rest := bits.Div64(rhi, rlo, w)
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

// drawPosition is where a source's j-th draw stands; false beyond 2^53.
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

// countsBefore gives the draws of each source before a position.
func (p *mixPlan) countsBefore(position int64) []int64 {
	d := p.newDealer()
	d.seekTo(position)
	return d.drawn
}

// dealer walks the positions of an epoch.
type dealer struct {
	plan     *mixPlan
	position int64        // the next position
	drawn    []int64      // of each source before it
	turns    []sourceTurn // of the sources that have a share
}

// sourceTurn is the time of a source's next draw, and what lies between two of its draws.
type sourceTurn struct {
	q, r         uint64
	stepQ, stepR uint64
	w            uint64
	source       int
}

func (p *mixPlan) newDealer() *dealer {
	d := &dealer{plan: p, drawn: make([]int64, len(p.shares))}
	for i, w := range p.shares {
		if w > 0 {
			q, r, _ := p.drawTime(i, 0)
			d.turns = append(d.turns, sourceTurn{q: q, r: r, stepQ: p.totalShares / w, stepR: p.totalShares % w, w: w, source: i})
		}
	}
	return d
}

// nextSource gives the source at the next position, and which of its draws of the epoch it is. O(k).
func (d *dealer) nextSource() (source int, draw int64) {
	t := &d.turns[0]
	for i := 1; i < len(d.turns); i++ {
		o := &d.turns[i]
		if o.q > t.q {
			continue
		}
		if o.q == t.q {
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

// seekTo goes to a position: by a binary search for the whole time before it (times and positions differ by at most k), and from
// there by at most k+1 draws. O(k² + k log k).
func (d *dealer) seekTo(position int64) {
	if position >= d.position && position-d.position < int64(8*len(d.turns)) {
		for d.position < position {
			d.nextSource()
		}
		return
	}
	p := d.plan
	k := int64(len(d.turns))
	lo, hi := max(position-k-1, 0), position+k+1 // draws before lo ≤ position < draws before hi
	count := func(t int64) (n int64) {
		for i := range p.shares {
			n += p.drawsBefore(i, uint64(t), 0, 1, 0)
		}
		return n
	}
	for hi-lo > 1 {
		if m := lo + (hi-lo)/2; count(m) <= position {
			lo = m
		} else {
			hi = m
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

// sourceDraw says which epoch and place of a source's own order its j-th draw of an epoch of the mixture is. Sources go on where the last
// epoch left them.
func (p *mixPlan) sourceDraw(source int, epoch, j int64) (own, place int64) {
	n := uint64(p.sourceSizes[source])
	hi, lo := bits.Mul64(uint64(epoch), uint64(p.counts[source]))
	lo, carry := bits.Add64(lo, uint64(j), 0)
	q, r := bits.Div64((hi+carry)%n, lo, n) // epochs beyond 2^63 wrap
	return int64(q), int64(r)
}

// SourceStats is what a mixture took of one source, over all ranks.
type SourceStats struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"` // its part of the samples
	Bound  float64 `json:"bound"`  // at no prefix of an epoch is Drawn more samples than this off the weight's part
	Drawn  int64   `json:"drawn"`  // in this epoch
	Share  float64 `json:"share"`  // of the epoch so far
	Passes float64 `json:"passes"` // over its samples, in all epochs
	Bad    int     `json:"bad_episodes"`
}

// sourceStats is what the sources have given before a position; nil where there is no mixture.
func (o *Ordering) sourceStats(epoch, position int64, bad []BadEpisode) []SourceStats {
	p := o.mixPlan
	if p == nil {
		return nil
	}
	out := make([]SourceStats, len(p.sourceSizes))
	for i, n := range p.countsBefore(position) {
		s := &out[i]
		*s = SourceStats{Name: p.sourceNames[i], Weight: p.shareOf(i), Bound: p.shareBound(i), Drawn: n}
		if position > 0 {
			s.Share = float64(n) / float64(position)
		}
		if size := p.sourceSizes[i]; size > 0 {
			s.Passes = (float64(epoch)*float64(p.counts[i]) + float64(n)) / float64(size)
		}
		for k := range bad {
			if bad[k].Source == i {
				s.Bad++
			}
		}
	}
	return out
}

// mixture is the order of several sources.
type mixture struct {
	o     *Ordering
	epoch int64
	deal  *dealer

	// The last position that was found.
	last   int64
	source int
	spot   int64

	inner []sequence // of each source, in the epoch that it is in
	own   []int64    // that epoch
}

func newMixture(o *Ordering, epoch int64) *mixture {
	return &mixture{o: o, epoch: epoch, deal: o.mixPlan.newDealer(), last: -1, inner: make([]sequence, len(o.mixPlan.sourceSizes)), own: make([]int64, len(o.mixPlan.sourceSizes))}
}

// Len is the number of samples of the epoch.
func (m *mixture) Len() int64 { return m.o.mixPlan.epochSamples }

// find goes to a position: its source, and the place in the source's own epoch, whose order is then at hand.
func (m *mixture) find(p int64) (source int, place int64) {
	if p == m.last {
		return m.source, m.spot
	}
	if p != m.deal.position {
		m.deal.seekTo(p)
	}
	i, j := m.deal.nextSource()
	own, place := m.o.mixPlan.sourceDraw(i, m.epoch, j)
	if m.inner[i] == nil || m.own[i] != own {
		m.inner[i], m.own[i] = m.o.sourceSequence(i, own), own
	}
	m.last, m.source, m.spot = p, i, place
	return i, place
}

// At gives the sample at a position, as it is numbered over all sources.
func (m *mixture) At(p int64) int64 {
	i, place := m.find(p)
	return m.o.data.offsets[i] + m.inner[i].At(place)
}

// epochAt is the source's own epoch at a position.
func (m *mixture) epochAt(p int64) int64 {
	i, _ := m.find(p)
	return m.own[i]
}

// mixedPools is a mixture of pools.
type mixedPools struct{ *mixture }

func (m mixedPools) shardAt(p int64) (*shard, int64) {
	i, place := m.find(p)
	return m.inner[i].(*pool).shardAt(place)
}

// At gives the sample at a position, as it is numbered over all sources.
func (m mixedPools) At(p int64) int64 {
	ln, draw := m.shardAt(p)
	return ln.drawAt(draw)
}
