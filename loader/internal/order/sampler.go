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

// slice is the part of an epoch that one rank takes, from position start on: step t is the positions [start+tG, start+(t+1)G),
// G = batch × world, and the rank has the rank-th slice of batch in each. In the last step, where there is no whole one left,
// positions go round to the epoch's first ones; or, short, what is left is cut into world parts that differ by at most one sample.
type slice struct {
	start, n           int64
	batch, world, rank int64
	dropLast, short    bool
}

// steps is the number of global steps that are left; the same on all ranks.
func (s *slice) steps() int64 {
	left := max(s.n-s.start, 0)
	g := s.batch * s.world
	if s.dropLast {
		return left / g
	}
	return (left + g - 1) / g
}

// batches is the number of steps that are left in which this rank has a sample. It is steps, but for a short last one with
// fewer samples than ranks.
func (s *slice) batches() int64 {
	n := s.steps()
	if n > 0 {
		if from, to := s.cut(n - 1); from == to {
			n--
		}
	}
	return n
}

// cut says which part of a step's positions the rank has, counted from the step's first one.
func (s *slice) cut(step int64) (from, to int64) {
	left := s.n - s.start - step*s.batch*s.world
	switch {
	case left >= s.batch*s.world:
	case s.world == 1:
		return 0, max(left, 0)
	case s.short:
		return share(max(left, 0), int(s.rank), int(s.world)), share(max(left, 0), int(s.rank+1), int(s.world))
	}
	return s.rank * s.batch, (s.rank + 1) * s.batch
}

// consumed is the position of the epoch after t steps of all ranks.
func (s *slice) consumed(t int64) int64 {
	return min(s.start+t*s.batch*s.world, s.n)
}

// Sampler is the sequence of samples of one rank in one epoch: the order, cut by rank, less the bad episodes. Where the order
// has shards, and there are several ranks, a step's positions are cut after a stable sort by shard, so that a rank keeps to few
// shards; what it gets it gives in the order of positions.
type Sampler struct {
	slice
	epoch int64
	make  func() sequence
	data  Catalog
	bad   []BadEpisode

	order   sequence
	shards  pooled         // the order, where it has shards
	loaded  int64          // step whose part is loaded, plus one
	mine    []spot         // the rank's part of it, in the order of positions
	all     []spot         // scratch
	present []*shard       // scratch: shards of a step
	nextOf  []int64        // scratch: where the next of a group of shards stands
	watched []*shard       // whose draws are all followed
	untold  map[entry]bool // bad when they entered
	out     *Step          // of the call of next
}

// spot is a position of a step.
type spot struct {
	p       int64  // of the epoch
	shard   *shard // nil where the order has none
	draw    int64
	sample  int64
	epoch   int64 // of the sample's source
	wrapped bool
	mine    bool
}

// entry is an episode by its place in a table.
type entry struct{ source, place int }

// Next collects the samples of the batch at a Cursor into dst, whose slices are used again. It is false at the end of the epoch.
func (c *Sampler) Next(at Cursor, dst *Step) (ok bool) {
	*dst = Step{Samples: dst.Samples[:0], Epochs: dst.Epochs[:0], After: at, Admitted: dst.Admitted[:0], Passed: dst.Passed[:0]}
	c.out = dst
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
		c.load(t/c.batch, t%c.batch, i >= own)
		if t%c.batch >= int64(len(c.mine)) { // the last part is shorter
			break
		}
		s := c.mine[t%c.batch]
		i++
		wrap := s.wrapped || t != i-1
		if len(c.bad) > 0 && c.isBad(s.sample, s.p, wrap) {
			dst.Skipped++
			if s.shard != nil && !wrap {
				c.pass(s.sample)
			}
			continue
		}
		if len(dst.Samples) == 0 {
			dst.First = s.p
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

// position gives the place in the epoch of the rank's i-th sample; false where there is none. It simulates nothing.
func (c *Sampler) position(i int64) (p int64, ok bool) {
	if i/c.batch >= c.steps() {
		return 0, false
	}
	c.begin()
	c.spots(i / c.batch)
	c.loaded = 0
	if i %= c.batch; i >= int64(len(c.mine)) {
		return 0, false
	}
	return c.mine[i].p, true
}

// begin makes the order.
func (c *Sampler) begin() {
	if c.order == nil {
		c.order = c.make()
		c.shards, _ = c.order.(pooled)
	}
}

// spots finds the rank's part of a step, without samples.
func (c *Sampler) spots(t int64) {
	from, to := c.cut(t)
	begin := c.start + t*c.batch*c.world
	spotAt := func(k int64) spot {
		p := begin + k
		if p < c.n {
			return spot{p: p}
		}
		return spot{p: p % c.n, wrapped: true}
	}
	c.mine = c.mine[:0]
	if c.shards == nil {
		for k := from; k < to; k++ {
			c.mine = append(c.mine, spotAt(k))
		}
		return
	}
	all := c.batch * c.world
	if c.short || c.world == 1 {
		all = min(all, c.n-begin)
	}
	c.all = c.all[:0]
	for k := range all {
		s := spotAt(k)
		s.shard, s.draw = c.shards.place(s.p)
		s.epoch = c.epochAt(s.p)
		c.all = append(c.all, s)
	}
	c.deal(from, to)
	for _, s := range c.all {
		if s.mine {
			c.mine = append(c.mine, s)
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

// deal marks the rank's part [from, to) of a step's positions, sorted by shard. Shards are compared as fractions of their number,
// so that those of several sources lie side by side.
func (c *Sampler) deal(from, to int64) {
	if c.world == 1 {
		for k := range c.all {
			c.all[k].mine = true
		}
		return
	}
	c.present = c.present[:0]
	for k := range c.all {
		c.all[k].shard.spots = 0
	}
	for k := range c.all {
		ln := c.all[k].shard
		if ln.spots++; ln.spots == 1 {
			c.present = append(c.present, ln)
		}
	}
	key := func(ln *shard) uint64 { return uint64(ln.number) << 32 / uint64(ln.shards) }
	slices.SortFunc(c.present, func(a, b *shard) int { return cmp.Compare(key(a), key(b)) })
	c.nextOf = c.nextOf[:0]
	var before, count int64
	for k, ln := range c.present {
		if k == 0 || key(ln) != key(c.present[k-1]) {
			c.nextOf = append(c.nextOf, before+count)
			before, count = before+count, 0
		}
		count += ln.spots
		ln.group = len(c.nextOf) - 1
	}
	for k := range c.all {
		at := &c.nextOf[c.all[k].shard.group]
		c.all[k].mine = from <= *at && *at < to
		*at++
	}
}

// load makes the rank's part of a step, from its given-th sample on, and tells what enters and what other ranks take.
// again says that the step is gone round to a second time.
func (c *Sampler) load(t, given int64, again bool) {
	if c.loaded == t+1 {
		return
	}
	c.begin()
	c.loaded = t + 1
	c.spots(t)
	if c.shards == nil {
		for k := range c.mine {
			c.mine[k].sample = c.order.At(c.mine[k].p)
			c.mine[k].epoch = c.epochAt(c.mine[k].p)
		}
		return
	}
	if again {
		c.unwatch()
	} else {
		c.watch()
	}
	k := 0
	for _, s := range c.all {
		switch {
		case s.mine:
			if s.wrapped {
				s.shard.tell = nil
			}
			s.sample = s.shard.at(s.draw)
			c.mine[k] = s
			if !s.wrapped && int64(k) < given && !again {
				c.pass(s.sample) // given before the Sampler began
			}
			k++
		case !again && !s.wrapped && s.shard.tell != nil:
			c.pass(s.shard.at(s.draw))
		}
	}
	if !again {
		c.watched = slices.DeleteFunc(c.watched, func(ln *shard) bool {
			if ln.tell != nil && ln.drawn < ln.n {
				return false
			}
			ln.tell = nil
			return true
		})
	}
}

// watch follows the shards that the rank draws from in the step, from the step's first draw on.
func (c *Sampler) watch() {
	for i := range c.all {
		if ln := c.all[i].shard; ln.tell == nil {
			ln.own, ln.all = 0, 0
		}
	}
	for i := range c.all {
		if s := &c.all[i]; !s.wrapped {
			s.shard.all++
			if s.mine {
				s.shard.own++
			}
		}
	}
	for i := range c.all {
		s := &c.all[i]
		if s.wrapped || s.shard.own == 0 || s.shard.tell != nil {
			continue
		}
		s.shard.seek(s.draw) // the shard's first draw of the step
		s.shard.remaining(func(place int32, samples []int64) { c.admit(s.shard, place, samples) })
		s.shard.tell = func(ln *shard, place int32) { c.admit(ln, place, nil) }
		c.watched = append(c.watched, s.shard)
	}
}

func (c *Sampler) unwatch() {
	for _, ln := range c.watched {
		ln.tell = nil
	}
	c.watched = c.watched[:0]
}

// admit tells of an episode that entered; samples nil: all of them are still to be drawn.
func (c *Sampler) admit(ln *shard, place int32, samples []int64) {
	from, to := ln.table.Span(int(place))
	if len(c.bad) > 0 && c.isBad(ln.offset+from, c.all[0].p, false) {
		if c.untold == nil {
			c.untold = map[entry]bool{}
		}
		c.untold[entry{ln.source, int(place)}] = true
		return
	}
	// The inner slices are used again as well.
	out := c.out
	if n := len(out.Admitted); n < cap(out.Admitted) {
		out.Admitted = out.Admitted[:n+1]
	} else {
		out.Admitted = append(out.Admitted, Admission{})
	}
	a := &out.Admitted[len(out.Admitted)-1]
	a.Source, a.Place, a.Samples = ln.source, int(place), append(a.Samples[:0], samples...)
	a.Share = 1
	if ln.all > 0 {
		a.Share = float64(ln.own) / float64(ln.all)
	}
	if samples == nil {
		for id := from; id < to; id++ {
			a.Samples = append(a.Samples, ln.offset+id)
		}
	}
}

// pass tells of a sample that the rank will never give.
func (c *Sampler) pass(sample int64) {
	if len(c.untold) > 0 {
		source, place, _ := c.data.find(sample)
		if c.untold[entry{source, place}] {
			return
		}
	}
	c.out.Passed = append(c.out.Passed, sample)
}

// isBad says whether the sample at a position is of an episode that was found bad at or before it.
func (c *Sampler) isBad(sample, p int64, wrapped bool) bool {
	source, place, _ := c.data.find(sample)
	episode := c.data.tables[source].Episode(place)
	for k := range c.bad {
		b := &c.bad[k]
		if b.Episode == episode && b.Source == source && (b.Epoch < c.epoch || b.Epoch == c.epoch && (wrapped || p >= b.Position)) {
			return true
		}
	}
	return false
}

// here is the position of the epoch that a Cursor stands at, over all ranks, and what this rank took beyond it.
func (c *Sampler) here(at Cursor) (position, ahead int64) {
	if c.world == 1 {
		return min(c.start+at.index, c.n), 0
	}
	return c.consumed(at.step), max(at.index-at.step*c.batch, 0)
}

// Left is how many samples of the rank are behind a Cursor.
func (c *Sampler) Left(at Cursor) int64 {
	if c.world == 1 {
		return max(c.n-c.start-at.index, 0)
	}
	return max(c.steps()-at.step, 0) * c.batch
}

// ended says whether nothing is left behind a Cursor.
func (c *Sampler) ended(at Cursor) bool {
	if c.world == 1 {
		left := c.Left(at)
		return left <= 0 || c.dropLast && left < c.batch
	}
	return at.step >= c.steps()
}
