package loader

// sequence is what comes at each position of one epoch. Not safe for concurrent use; a run makes its own.
type sequence interface {
	Len() int64
	// At gives the sample at position p, 0 ≤ p < Len. O(1) for file and global; for pool O(1) a position going forward, and a simulation from the start going back.
	At(p int64) int64
	// Lane is the canonical shard of a position; (0, 1) where the order has none. It simulates nothing.
	Lane(p int64) (lane, lanes int32)
}

// cursor is where a rank stands in its own sequence of an epoch: samples passed over or given, and batches given.
type cursor struct{ index, step int64 }

// step is what one rank does in one global step.
type step struct {
	samples          []int64
	first            int64 // position of the first of them
	after            cursor
	wrapped, skipped int64
}

// course is the sequence of samples of one rank in one epoch: the order, cut by rank, less the bad episodes.
type course struct {
	slice
	epoch int64
	order sequence
	table *table
	bad   []BadEpisode
}

// next collects the samples of the batch at a cursor into dst, whose slices are used again. It is false at the end of the epoch.
func (c *course) next(at cursor, dst *step) (ok bool) {
	*dst = step{samples: dst.samples[:0], after: at}
	own := c.steps() * c.batch // the rank's positions
	if c.world > 1 && at.step >= c.steps() || own == 0 {
		return false
	}
	i := at.index
	for int64(len(dst.samples)) < c.batch {
		p, wrap, have := c.position(i)
		if !have {
			if c.world == 1 || i >= at.index+2*own {
				break
			}
			// Bad episodes took samples of this rank: it goes round its own positions, so that all ranks give equally many batches.
			p, _, _ = c.position(i % own)
			wrap = true
		}
		i++
		sample := c.order.At(p)
		if len(c.bad) > 0 && c.isBad(sample, p, wrap) {
			dst.skipped++
			continue
		}
		if len(dst.samples) == 0 {
			dst.first = p
		}
		if wrap {
			dst.wrapped++
		}
		dst.samples = append(dst.samples, sample)
	}
	if len(dst.samples) == 0 || c.world == 1 && c.dropLast && int64(len(dst.samples)) < c.batch {
		return false
	}
	dst.after = cursor{i, at.step + 1}
	return true
}

// isBad says whether the sample at a position is of an episode that was found bad at or before it.
func (c *course) isBad(sample, p int64, wrapped bool) bool {
	r, _ := c.table.row(sample)
	for k := range c.bad {
		b := &c.bad[k]
		if b.Episode == r.Episode && (b.Epoch < c.epoch || b.Epoch == c.epoch && (wrapped || p >= b.Position)) {
			return true
		}
	}
	return false
}

// here is the position of the epoch that a cursor stands at, over all ranks, and what this rank took beyond it.
func (c *course) here(at cursor) (position, ahead int64) {
	if c.world == 1 {
		return min(c.start+at.index, c.n), 0
	}
	return c.consumed(at.step), max(at.index-at.step*c.batch, 0)
}

// ended says whether nothing is left behind a cursor.
func (c *course) ended(at cursor) bool {
	if c.world == 1 {
		left := c.n - c.start - at.index
		return left <= 0 || c.dropLast && left < c.batch
	}
	return at.step >= c.steps()
}

// slice is the part of an epoch that one rank takes, from position start on: step t is the positions [start+tG, start+(t+1)G),
// G = batch × world, and the rank has the rank-th slice of batch in each.
type slice struct {
	start, n           int64
	batch, world, rank int64
	dropLast           bool
}

// steps is the number of global steps that are left; the same on all ranks.
func (s slice) steps() int64 {
	left := max(s.n-s.start, 0)
	g := s.batch * s.world
	if s.dropLast {
		return left / g
	}
	return (left + g - 1) / g
}

// position gives the place in the epoch of the rank's i-th sample, and whether it wrapped to the epoch's first positions.
// ok is false where there is none: after the last step, or, with one rank, after the last sample.
func (s slice) position(i int64) (p int64, wrapped, ok bool) {
	t := i / s.batch
	if t >= s.steps() {
		return 0, false, false
	}
	p = s.start + t*s.batch*s.world + s.rank*s.batch + i%s.batch
	if p < s.n {
		return p, false, true
	}
	if s.world == 1 {
		return 0, false, false
	}
	return p % s.n, true, true
}

// consumed is the position of the epoch after t steps of all ranks.
func (s slice) consumed(t int64) int64 {
	return min(s.start+t*s.batch*s.world, s.n)
}
