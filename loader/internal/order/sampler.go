package order

import (
	"cmp"
	"slices"
)

// Cursor is a position in a rank's samples of an epoch: samples delivered or skipped, and batches
// delivered.
type Cursor struct{ index, step int64 }

// Admission reports an episode that becomes resident. It precedes the first draw of its samples.
type Admission struct {
	Source, Place int     // Place: position of the episode in the source's table
	Samples       []int64 // samples to be drawn, ascending: all of them, except after a restore
	// Share is the fraction of its shard's draws that this rank has made since it first drew from
	// the shard, including this step. If it is small, decoding on demand is cheaper than storing
	// the frames.
	Share float64
}

// Own returns the expected number of the samples that this rank delivers.
func (a *Admission) Own() float64 { return a.Share * float64(len(a.Samples)) }

// Step is one batch of a rank. The next call of Sampler.Next with it reuses its slices.
type Step struct {
	Samples, Epochs  []int64 // Epochs: the epoch of each sample in its source
	First            int64   // position of the first sample
	After            Cursor
	Wrapped, Skipped int64
	// Admitted lists the episodes that entered the shards of this rank up to and including this
	// step, in order. Passed lists samples of such episodes that this rank never delivers. Only for
	// pools.
	//
	// Each sample of an admission is delivered or passed once, in this step or a later one, except
	// those that drop_last omits. Wrapped samples may be of episodes that were not admitted.
	Admitted []Admission
	Passed   []int64
}

// rankSlice is the part of an epoch that one rank delivers, from position start on. Step t covers
// positions [start+tG, start+(t+1)G), with G = batch × world. The rank has the rank-th slice of
// batch positions in each step.
//
// The last step may be incomplete. It is then filled with the epoch's first positions. If short is
// set, it is divided into world parts that differ by at most one sample instead.
type rankSlice struct {
	start, epochSamples int64
	batch, world, rank  int64
	dropLast, short     bool
}

// steps returns the number of global steps that are left. It is equal on all ranks.
func (s *rankSlice) steps() int64 {
	samples := max(s.epochSamples-s.start, 0)
	globalBatch := s.batch * s.world
	if s.dropLast {
		return samples / globalBatch
	}
	return (samples + globalBatch - 1) / globalBatch
}

// batches returns the number of steps left in which this rank has a sample. It is steps(), except
// for a short last step with fewer samples than ranks.
func (s *rankSlice) batches() int64 {
	n := s.steps()
	if n > 0 {
		if from, to := s.rankPart(n - 1); from == to {
			n--
		}
	}
	return n
}

// rankPart returns the rank's range of a step's positions, counted from the step's first one.
func (s *rankSlice) rankPart(step int64) (from, to int64) {
	remaining := s.epochSamples - s.start - step*s.batch*s.world
	switch {
	case remaining >= s.batch*s.world:
	case s.world == 1:
		return 0, max(remaining, 0)
	case s.short:
		from = floorShare(max(remaining, 0), int(s.rank), int(s.world))
		to = floorShare(max(remaining, 0), int(s.rank+1), int(s.world))
		return from, to
	}
	return s.rank * s.batch, (s.rank + 1) * s.batch
}

// positionAfter returns the position in the epoch after t steps of all ranks.
func (s *rankSlice) positionAfter(t int64) int64 {
	return min(s.start+t*s.batch*s.world, s.epochSamples)
}

// Sampler computes the samples of one rank in one epoch: the order, divided among ranks, without
// bad episodes.
//
// If the order has shards and there are several ranks, the positions of a step are sorted by shard
// (stably) before they are divided, so that a rank uses few shards. The rank delivers its part in
// the order of positions. A Sampler is not safe for concurrent use.
type Sampler struct {
	rankSlice
	epoch     int64
	makeOrder func() sequence
	data      Catalog
	bad       []BadEpisode

	order  sequence
	shards pooled // order, if it has shards; else nil
	loaded int64  // 1 + the step whose part is loaded
	// the rank's part of the loaded step, in the order of positions
	rankSpots      []spot
	stepSpots      []spot              // all positions of the step, if there are shards; reused
	stepShards     []*shard            // shards of the step; reused
	nextInGroup    []int64             // next index of each group of shards; reused
	followedShards []*shard            // shards whose draws are all followed
	badAdmitted    map[tableEntry]bool // episodes that were bad when they were admitted
	step           *Step               // argument of the current call of Next
}

// spot is one position of a step.
type spot struct {
	position  int64  // in the epoch
	shard     *shard // nil if the order has no shards
	draw      int64
	sample    int64
	epoch     int64 // of the sample's source
	isWrapped bool
	isOwn     bool // this rank delivers the position
}

// tableEntry identifies an episode by its position in a source's table.
type tableEntry struct{ source, place int }

// Next computes the batch at a Cursor into dst, whose slices it reuses. It returns false at the end
// of the epoch.
func (c *Sampler) Next(at Cursor, dst *Step) (ok bool) {
	*dst = Step{
		Samples:  dst.Samples[:0],
		Epochs:   dst.Epochs[:0],
		After:    at,
		Admitted: dst.Admitted[:0],
		Passed:   dst.Passed[:0],
	}
	c.step = dst
	rankPositions := c.steps() * c.batch
	if c.world > 1 && at.step >= c.steps() || rankPositions == 0 {
		return false
	}
	index := at.index
	afterLastGood := index // index after the last good sample
	for int64(len(dst.Samples)) < c.batch {
		rankPosition := index // among the positions of this rank
		if index >= rankPositions {
			// Two rounds of the rank's positions without a good sample are enough.
			if c.world == 1 || c.short || index >= afterLastGood+2*rankPositions {
				break
			}
			// Bad episodes took samples of this rank. It wraps around its own positions, so that
			// all ranks deliver equally many batches.
			rankPosition = index % rankPositions
		}
		c.loadStep(rankPosition/c.batch, rankPosition%c.batch, index >= rankPositions)
		if rankPosition%c.batch >= int64(len(c.rankSpots)) { // the last part is shorter
			break
		}
		s := c.rankSpots[rankPosition%c.batch]
		wrap := s.isWrapped || rankPosition != index
		index++
		if len(c.bad) > 0 && c.isBad(s.sample, s.position, wrap) {
			dst.Skipped++
			if s.shard != nil && !wrap {
				c.recordPassed(s.sample, s.shard)
			}
			continue
		}
		if len(dst.Samples) == 0 {
			dst.First = s.position
		}
		if wrap {
			dst.Wrapped++
		}
		afterLastGood = index
		sample, epoch := c.data.drawnSample(s.sample, s.epoch)
		dst.Samples, dst.Epochs = append(dst.Samples, sample), append(dst.Epochs, epoch)
	}
	if len(dst.Samples) == 0 || c.world == 1 && c.dropLast && int64(len(dst.Samples)) < c.batch {
		return false
	}
	dst.After = Cursor{index, at.step + 1}
	return true
}

// Starved reports whether Next returned false at a Cursor before the end of the epoch. This happens
// if every sample of the rank is of a bad episode.
func (c *Sampler) Starved(at Cursor) bool {
	return c.world > 1 && !c.short && at.step < c.steps()
}

// samplePosition returns the position in the epoch of the rank's i-th sample. It returns false if
// there is none. It simulates nothing.
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

// ensureOrder makes the order if it does not exist yet.
func (c *Sampler) ensureOrder() {
	if c.order == nil {
		c.order = c.makeOrder()
		c.shards, _ = c.order.(pooled)
	}
}

// findSpots sets rankSpots to the positions of the rank in step t. It does not compute their
// samples.
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
		if s.isOwn {
			c.rankSpots = append(c.rankSpots, s)
		}
	}
}

// epochAt returns the epoch of the source at position p. Each source of a mixture has its own. p
// must be the position that the order found last.
func (c *Sampler) epochAt(p int64) int64 {
	return epochOf(c.order, c.epoch, p)
}

// markRankPart marks the positions of the step that this rank delivers. They are the range
// [from, to) of the positions when these are sorted by group of shards (groupShards). The sort is
// stable: positions of one group keep their order.
func (c *Sampler) markRankPart(from, to int64) {
	if c.world == 1 {
		for k := range c.stepSpots {
			c.stepSpots[k].isOwn = true
		}
		return
	}
	c.listStepShards()
	c.groupShards()
	// This loop numbers the positions as a counting sort would, without moving them.
	for k := range c.stepSpots {
		next := &c.nextInGroup[c.stepSpots[k].shard.dealGroup]
		c.stepSpots[k].isOwn = from <= *next && *next < to
		*next++
	}
}

// listStepShards sets stepShards to the shards of the step's positions, and counts the positions of
// each.
func (c *Sampler) listStepShards() {
	c.stepShards = c.stepShards[:0]
	for k := range c.stepSpots {
		c.stepSpots[k].shard.spotCount = 0
	}
	for k := range c.stepSpots {
		sh := c.stepSpots[k].shard
		sh.spotCount++
		if sh.spotCount == 1 {
			c.stepShards = append(c.stepShards, sh)
		}
	}
}

// groupShards sorts the shards of the step and divides them into groups. A group holds the shards
// with equal fractions number/shards; in a mixture these are shards of different sources. It sets
// nextInGroup to the index of each group's first position.
func (c *Sampler) groupShards() {
	fraction := func(sh *shard) uint64 { return uint64(sh.number) << 32 / uint64(sh.shards) }
	slices.SortFunc(c.stepShards, func(a, b *shard) int {
		return cmp.Compare(fraction(a), fraction(b))
	})
	c.nextInGroup = c.nextInGroup[:0]
	var before, count int64 // positions of earlier groups, and of this group
	for k, sh := range c.stepShards {
		if k == 0 || fraction(sh) != fraction(c.stepShards[k-1]) {
			before += count
			count = 0
			c.nextInGroup = append(c.nextInGroup, before)
		}
		count += sh.spotCount
		sh.dealGroup = len(c.nextInGroup) - 1
	}
}

// loadStep computes the samples of the rank's part of step t. It records the episodes that enter.
// It also records as passed the samples that other ranks deliver, and the first alreadyDelivered
// samples of this rank. If again is set, the rank visits the step a second time, and loadStep
// records nothing.
func (c *Sampler) loadStep(t, alreadyDelivered int64, again bool) {
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
		case s.isOwn:
			if s.isWrapped {
				s.shard.onAdmit = nil
			}
			s.sample = s.shard.drawAt(s.draw)
			c.rankSpots[k] = s
			if !s.isWrapped && int64(k) < alreadyDelivered && !again {
				c.recordPassed(s.sample, s.shard) // delivered before the Sampler began
			}
			k++
		case !again && !s.isWrapped && s.shard.onAdmit != nil:
			c.recordPassed(s.shard.drawAt(s.draw), s.shard)
		}
	}
	if !again {
		c.followedShards = slices.DeleteFunc(c.followedShards, func(sh *shard) bool {
			if sh.onAdmit != nil && sh.drawn < sh.samples {
				return false
			}
			sh.onAdmit = nil
			return true
		})
	}
}

// followShards begins to record the admissions of the shards from which the rank draws in the step.
// It moves such a shard to its first draw of the step and records its residents.
func (c *Sampler) followShards() {
	for i := range c.stepSpots {
		if sh := c.stepSpots[i].shard; sh.onAdmit == nil {
			sh.rankDraws, sh.allDraws = 0, 0
		}
	}
	for i := range c.stepSpots {
		if s := &c.stepSpots[i]; !s.isWrapped {
			s.shard.allDraws++
			if s.isOwn {
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
		s.shard.forEachResident(
			func(place int32, samples []int64) { c.recordAdmission(s.shard, place, samples) },
		)
		s.shard.onAdmit = func(sh *shard, place int32) { c.recordAdmission(sh, place, nil) }
		c.followedShards = append(c.followedShards, s.shard)
	}
}

// unfollowShards stops to record admissions of all shards.
func (c *Sampler) unfollowShards() {
	for _, sh := range c.followedShards {
		sh.onAdmit = nil
	}
	c.followedShards = c.followedShards[:0]
}

// recordAdmission adds an admitted episode to the step. If samples is nil, all its samples are
// still to be drawn.
func (c *Sampler) recordAdmission(sh *shard, place int32, samples []int64) {
	from, to := sh.table.Span(int(place))
	if len(c.bad) > 0 && c.isBad(sh.offset+from, c.stepSpots[0].position, false) {
		if c.badAdmitted == nil {
			c.badAdmitted = map[tableEntry]bool{}
		}
		c.badAdmitted[tableEntry{sh.source, int(place)}] = true
		return
	}
	// Reuse the inner slices as well.
	out := c.step
	if n := len(out.Admitted); n < cap(out.Admitted) {
		out.Admitted = out.Admitted[:n+1]
	} else {
		out.Admitted = append(out.Admitted, Admission{})
	}
	a := &out.Admitted[len(out.Admitted)-1]
	a.Source, a.Place, a.Samples = sh.source, int(place), append(a.Samples[:0], samples...)
	a.Share = 1
	if sh.allDraws > 0 {
		a.Share = float64(sh.rankDraws) / float64(sh.allDraws)
	}
	if samples == nil {
		for id := from; id < to; id++ {
			a.Samples = append(a.Samples, sh.offset+id)
		}
	}
	for i, number := range a.Samples {
		a.Samples[i], _ = c.data.drawnSample(number, sh.epoch)
	}
}

// recordPassed adds a sample of a shard that the rank never delivers to the step, unless its episode
// was bad when it was admitted.
func (c *Sampler) recordPassed(sample int64, sh *shard) {
	if len(c.badAdmitted) > 0 {
		source, place, _ := c.data.locateSample(sample)
		if c.badAdmitted[tableEntry{source, place}] {
			return
		}
	}
	sample, _ = c.data.drawnSample(sample, sh.epoch)
	c.step.Passed = append(c.step.Passed, sample)
}

// isBad reports whether the sample at position p is of an episode that was found bad at or before
// p.
func (c *Sampler) isBad(sample, p int64, wrapped bool) bool {
	source, place, _ := c.data.locateSample(sample)
	episode := c.data.tables[source].Episode(place)
	for k := range c.bad {
		b := &c.bad[k]
		applies := b.Epoch < c.epoch || b.Epoch == c.epoch && (wrapped || p >= b.Position)
		if b.Episode == episode && b.Source == source && applies {
			return true
		}
	}
	return false
}

// globalPosition returns the number of positions of the epoch that all ranks have delivered at a
// Cursor, and the number of samples that this rank delivered beyond them.
func (c *Sampler) globalPosition(at Cursor) (position, ahead int64) {
	if c.world == 1 {
		return min(c.start+at.index, c.epochSamples), 0
	}
	return c.positionAfter(at.step), max(at.index-at.step*c.batch, 0)
}

// Left returns the number of samples of the rank after a Cursor.
func (c *Sampler) Left(at Cursor) int64 {
	if c.world == 1 {
		return max(c.epochSamples-c.start-at.index, 0)
	}
	return max(c.steps()-at.step, 0) * c.batch
}

// isEnded reports whether no batch is left after a Cursor.
func (c *Sampler) isEnded(at Cursor) bool {
	if c.world == 1 {
		remaining := c.Left(at)
		return remaining <= 0 || c.dropLast && remaining < c.batch
	}
	return at.step >= c.steps()
}
