package order

import (
	"cmp"
	"slices"
)

// Cursor is where a rank stands in its own sequence of an epoch: samples passed over or given, and batches given.
type Cursor struct{ index, step int64 }

// Admission is an episode that becomes resident, told before the first of its samples is drawn.
type Admission struct {
	Source, Place int     // place: index into the table's ends
	Samples       []int64 // that are still to be drawn, ascending: all of them, but after a resume
	// Share is the part of its shard's samples that this rank took since it first drew from the shard, this step's among them. A rank
	// for which it is small does better to decode on demand.
	Share float64
}

// Own is how many of the samples this rank will take, about.
func (a *Admission) Own() float64 { return a.Share * float64(len(a.Samples)) }

// Step is what one rank does in one global step. Its slices are used again by the next call with it.
type Step struct {
	Samples, Epochs  []int64 // and the epoch of each in its source
	First            int64   // position of the first of them
	After            Cursor
	Wrapped, Skipped int64
	// Pool only: episodes that entered the shards that this rank draws from, up to and with this step, in the order of their entering;
	// and samples of such episodes that this rank will never give. Each sample of an admission is given or passed once, in its own step
	// or a later one, but for those that drop_last drops. Wrapped samples need not be of an admitted episode.
	Admitted []Admission
	Passed   []int64
}

// rankSlice is the part of an epoch that one rank takes, from position start on: step t is the positions [start+tG, start+(t+1)G),
// G = batch × world, and the rank has the rank-th slice of batch in each. In the last step, where there is no whole one left,
// positions go round to the epoch's first ones; or, short, what is left is cut into world parts that differ by at most one sample.
type rankSlice struct {
	start, epochSamples int64
	batch, world, rank  int64
	dropLast, short     bool
}

// steps is the number of global steps that are left; the same on all ranks.
func (s *rankSlice) steps() int64 {
	left := max(s.epochSamples-s.start, 0)
	g := s.batch * s.world
	if s.dropLast {
		return left / g
	}
	return (left + g - 1) / g
}

// batches is the number of steps that are left in which this rank has a sample. It is steps, but for a short last one with
// fewer samples than ranks.
func (s *rankSlice) batches() int64 {
	n := s.steps()
	if n > 0 {
		if from, to := s.rankPart(n - 1); from == to {
			n--
		}
	}
	return n
}

// rankPart says which part of a step's positions the rank has, counted from the step's first one.
func (s *rankSlice) rankPart(step int64) (from, to int64) {
	left := s.epochSamples - s.start - step*s.batch*s.world
	switch {
	case left >= s.batch*s.world:
	case s.world == 1:
		return 0, max(left, 0)
	case s.short:
		return floorShare(max(left, 0), int(s.rank), int(s.world)), floorShare(max(left, 0), int(s.rank+1), int(s.world))
	}
	return s.rank * s.batch, (s.rank + 1) * s.batch
}

// positionAfter is the position of the epoch after t steps of all ranks.
func (s *rankSlice) positionAfter(t int64) int64 {
	return min(s.start+t*s.batch*s.world, s.epochSamples)
}

// Sampler is the sequence of samples of one rank in one epoch: the order, cut by rank, less the bad episodes. Where the order
// has shards, and there are several ranks, a step's positions are cut after a stable sort by shard, so that a rank keeps to few
// shards; what it gets it gives in the order of positions.
type Sampler struct {
	rankSlice
	epoch     int64
	makeOrder func() sequence
	data      Catalog
	bad       []BadEpisode

	order          sequence
	shards         pooled              // the order, where it has shards
	loaded         int64               // step whose part is loaded, plus one
	rankSpots      []spot              // the rank's part of it, in the order of positions
	stepSpots      []spot              // scratch
	stepShards     []*shard            // scratch: shards of a step
	nextInGroup    []int64             // scratch: where the next of a group of shards stands
	followedShards []*shard            // whose draws are all followed
	badAdmitted    map[tableEntry]bool // bad when they entered
	step           *Step               // of the call of next
}

// spot is a position of a step.
type spot struct {
	position  int64  // of the epoch
	shard     *shard // nil where the order has none
	draw      int64
	sample    int64
	epoch     int64 // of the sample's source
	isWrapped bool
	isRanks   bool
}

// tableEntry is an episode by its place in a table.
type tableEntry struct{ source, place int }

// Next collects the samples of the batch at a Cursor into dst, whose slices are used again. It is false at the end of the epoch.
func (c *Sampler) Next(at Cursor, dst *Step) (ok bool) {
	*dst = Step{Samples: dst.Samples[:0], Epochs: dst.Epochs[:0], After: at, Admitted: dst.Admitted[:0], Passed: dst.Passed[:0]}
	c.step = dst
	own := c.steps() * c.batch // the rank's positions
	if c.world > 1 && at.step >= c.steps() || own == 0 {
		return false
	}
	i := at.index
	found := i // where the last good sample was
	for int64(len(dst.Samples)) < c.batch {
		t := i
		if i >= own {
			if c.world == 1 || c.short || i >= found+2*own {
				break
			}
			// Bad episodes took samples of this rank: it goes round its own positions, so that all ranks give equally many batches.
			t = i % own
		}
		c.loadStep(t/c.batch, t%c.batch, i >= own)
		if t%c.batch >= int64(len(c.rankSpots)) { // the last part is shorter
			break
		}
		s := c.rankSpots[t%c.batch]
		i++
		wrap := s.isWrapped || t != i-1
		if len(c.bad) > 0 && c.isBad(s.sample, s.position, wrap) {
			dst.Skipped++
			if s.shard != nil && !wrap {
				c.recordPassed(s.sample)
			}
			continue
		}
		if len(dst.Samples) == 0 {
			dst.First = s.position
		}
		if wrap {
			dst.Wrapped++
		}
		found = i
		dst.Samples, dst.Epochs = append(dst.Samples, s.sample), append(dst.Epochs, s.epoch)
	}
	if len(dst.Samples) == 0 || c.world == 1 && c.dropLast && int64(len(dst.Samples)) < c.batch {
		return false
	}
	dst.After = Cursor{i, at.step + 1}
	return true
}

// Starved says whether the end that next found at a Cursor is not the epoch's: every sample of the rank is of a bad episode.
func (c *Sampler) Starved(at Cursor) bool {
	return c.world > 1 && !c.short && at.step < c.steps()
}

// samplePosition gives the place in the epoch of the rank's i-th sample; false where there is none. It simulates nothing.
func (c *Sampler) samplePosition(i int64) (p int64, ok bool) {
	if i/c.batch >= c.steps() {
		return 0, false
	}
	c.ensureOrder()
	c.findSpots(i / c.batch)
	c.loaded = 0
	if i %= c.batch; i >= int64(len(c.rankSpots)) {
		return 0, false
	}
	return c.rankSpots[i].position, true
}

// ensureOrder makes the order.
func (c *Sampler) ensureOrder() {
	if c.order == nil {
		c.order = c.makeOrder()
		c.shards, _ = c.order.(pooled)
	}
}

// findSpots finds the rank's part of a step, without samples.
func (c *Sampler) findSpots(t int64) {
	from, to := c.rankPart(t)
	begin := c.start + t*c.batch*c.world
	spotAt := func(k int64) spot {
		p := begin + k
		if p < c.epochSamples {
			return spot{position: p}
		}
		return spot{position: p % c.epochSamples, isWrapped: true}
	}
	c.rankSpots = c.rankSpots[:0]
	if c.shards == nil {
		for k := from; k < to; k++ {
			c.rankSpots = append(c.rankSpots, spotAt(k))
		}
		return
	}
	all := c.batch * c.world
	if c.short || c.world == 1 {
		all = min(all, c.epochSamples-begin)
	}
	c.stepSpots = c.stepSpots[:0]
	for k := range all {
		s := spotAt(k)
		s.shard, s.draw = c.shards.shardAt(s.position)
		s.epoch = c.epochAt(s.position)
		c.stepSpots = append(c.stepSpots, s)
	}
	c.markRankPart(from, to)
	for _, s := range c.stepSpots {
		if s.isRanks {
			c.rankSpots = append(c.rankSpots, s)
		}
	}
}

// epochAt is the epoch that the source of a position is in: of a mixture each has its own. The position is the one that was found last.
func (c *Sampler) epochAt(p int64) int64 {
	if m, ok := c.order.(interface{ epochAt(p int64) int64 }); ok {
		return m.epochAt(p)
	}
	return c.epoch
}

// markRankPart marks the rank's part [from, to) of a step's positions, sorted by shard. Shards are compared as fractions of their number,
// so that those of several sources lie side by side.
func (c *Sampler) markRankPart(from, to int64) {
	if c.world == 1 {
		for k := range c.stepSpots {
			c.stepSpots[k].isRanks = true
		}
		return
	}
	c.stepShards = c.stepShards[:0]
	for k := range c.stepSpots {
		c.stepSpots[k].shard.stepSpots = 0
	}
	for k := range c.stepSpots {
		ln := c.stepSpots[k].shard
		if ln.stepSpots++; ln.stepSpots == 1 {
			c.stepShards = append(c.stepShards, ln)
		}
	}
	key := func(ln *shard) uint64 { return uint64(ln.number) << 32 / uint64(ln.shards) }
	slices.SortFunc(c.stepShards, func(a, b *shard) int { return cmp.Compare(key(a), key(b)) })
	c.nextInGroup = c.nextInGroup[:0]
	var before, count int64
	for k, ln := range c.stepShards {
		if k == 0 || key(ln) != key(c.stepShards[k-1]) {
			c.nextInGroup = append(c.nextInGroup, before+count)
			before, count = before+count, 0
		}
		count += ln.stepSpots
		ln.dealGroup = len(c.nextInGroup) - 1
	}
	for k := range c.stepSpots {
		at := &c.nextInGroup[c.stepSpots[k].shard.dealGroup]
		c.stepSpots[k].isRanks = from <= *at && *at < to
		*at++
	}
}

// loadStep makes the rank's part of a step, from its given-th sample on, and tells what enters and what other ranks take.
// again says that the step is gone round to a second time.
func (c *Sampler) loadStep(t, given int64, again bool) {
	if c.loaded == t+1 {
		return
	}
	c.ensureOrder()
	c.loaded = t + 1
	c.findSpots(t)
	if c.shards == nil {
		for k := range c.rankSpots {
			c.rankSpots[k].sample = c.order.At(c.rankSpots[k].position)
			c.rankSpots[k].epoch = c.epochAt(c.rankSpots[k].position)
		}
		return
	}
	if again {
		c.unfollowShards()
	} else {
		c.followShards()
	}
	k := 0
	for _, s := range c.stepSpots {
		switch {
		case s.isRanks:
			if s.isWrapped {
				s.shard.onAdmit = nil
			}
			s.sample = s.shard.drawAt(s.draw)
			c.rankSpots[k] = s
			if !s.isWrapped && int64(k) < given && !again {
				c.recordPassed(s.sample) // given before the Sampler began
			}
			k++
		case !again && !s.isWrapped && s.shard.onAdmit != nil:
			c.recordPassed(s.shard.drawAt(s.draw))
		}
	}
	if !again {
		c.followedShards = slices.DeleteFunc(c.followedShards, func(ln *shard) bool {
			if ln.onAdmit != nil && ln.drawn < ln.samples {
				return false
			}
			ln.onAdmit = nil
			return true
		})
	}
}

// followShards follows the shards that the rank draws from in the step, from the step's first draw on.
func (c *Sampler) followShards() {
	for i := range c.stepSpots {
		if ln := c.stepSpots[i].shard; ln.onAdmit == nil {
			ln.rankDraws, ln.allDraws = 0, 0
		}
	}
	for i := range c.stepSpots {
		if s := &c.stepSpots[i]; !s.isWrapped {
			s.shard.allDraws++
			if s.isRanks {
				s.shard.rankDraws++
			}
		}
	}
	for i := range c.stepSpots {
		s := &c.stepSpots[i]
		if s.isWrapped || s.shard.rankDraws == 0 || s.shard.onAdmit != nil {
			continue
		}
		s.shard.seekTo(s.draw) // the shard's first draw of the step
		s.shard.forEachResident(func(place int32, samples []int64) { c.recordAdmission(s.shard, place, samples) })
		s.shard.onAdmit = func(ln *shard, place int32) { c.recordAdmission(ln, place, nil) }
		c.followedShards = append(c.followedShards, s.shard)
	}
}

func (c *Sampler) unfollowShards() {
	for _, ln := range c.followedShards {
		ln.onAdmit = nil
	}
	c.followedShards = c.followedShards[:0]
}

// recordAdmission tells of an episode that entered; samples nil: all of them are still to be drawn.
func (c *Sampler) recordAdmission(ln *shard, place int32, samples []int64) {
	from, to := ln.table.Span(int(place))
	if len(c.bad) > 0 && c.isBad(ln.offset+from, c.stepSpots[0].position, false) {
		if c.badAdmitted == nil {
			c.badAdmitted = map[tableEntry]bool{}
		}
		c.badAdmitted[tableEntry{ln.source, int(place)}] = true
		return
	}
	// The inner slices are used again as well.
	out := c.step
	if n := len(out.Admitted); n < cap(out.Admitted) {
		out.Admitted = out.Admitted[:n+1]
	} else {
		out.Admitted = append(out.Admitted, Admission{})
	}
	a := &out.Admitted[len(out.Admitted)-1]
	a.Source, a.Place, a.Samples = ln.source, int(place), append(a.Samples[:0], samples...)
	a.Share = 1
	if ln.allDraws > 0 {
		a.Share = float64(ln.rankDraws) / float64(ln.allDraws)
	}
	if samples == nil {
		for id := from; id < to; id++ {
			a.Samples = append(a.Samples, ln.offset+id)
		}
	}
}

// recordPassed tells of a sample that the rank will never give.
func (c *Sampler) recordPassed(sample int64) {
	if len(c.badAdmitted) > 0 {
		source, place, _ := c.data.locateSample(sample)
		if c.badAdmitted[tableEntry{source, place}] {
			return
		}
	}
	c.step.Passed = append(c.step.Passed, sample)
}

// isBad says whether the sample at a position is of an episode that was found bad at or before it.
func (c *Sampler) isBad(sample, p int64, wrapped bool) bool {
	source, place, _ := c.data.locateSample(sample)
	episode := c.data.tables[source].Episode(place)
	for k := range c.bad {
		b := &c.bad[k]
		if b.Episode == episode && b.Source == source && (b.Epoch < c.epoch || b.Epoch == c.epoch && (wrapped || p >= b.Position)) {
			return true
		}
	}
	return false
}

// globalPosition is the position of the epoch that a Cursor stands at, over all ranks, and what this rank took beyond it.
func (c *Sampler) globalPosition(at Cursor) (position, ahead int64) {
	if c.world == 1 {
		return min(c.start+at.index, c.epochSamples), 0
	}
	return c.positionAfter(at.step), max(at.index-at.step*c.batch, 0)
}

// Left is how many samples of the rank are behind a Cursor.
func (c *Sampler) Left(at Cursor) int64 {
	if c.world == 1 {
		return max(c.epochSamples-c.start-at.index, 0)
	}
	return max(c.steps()-at.step, 0) * c.batch
}

// isEnded says whether nothing is left behind a Cursor.
func (c *Sampler) isEnded(at Cursor) bool {
	if c.world == 1 {
		left := c.Left(at)
		return left <= 0 || c.dropLast && left < c.batch
	}
	return at.step >= c.steps()
}
