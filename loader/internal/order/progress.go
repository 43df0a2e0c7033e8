package order

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Ranks states how an epoch is divided into batches of ranks.
type Ranks struct {
	Batch, World, Rank int
	DropLast           bool // omit an incomplete last global batch of the epoch
	// the last step has short batches; else it is filled with the epoch's first samples
	Short bool
}

// Progress is the position of one rank in its epochs. It counts delivered samples (loader.L5). A
// Progress is not safe for concurrent use.
type Progress struct {
	Order *Ordering
	Ranks Ranks
	Epoch int64
	Bad   []BadEpisode // replaced, never changed: a Sampler may still read the old list

	start      int64 // position in the epoch at which cursor begins
	cursor     Cursor
	isAdvanced bool // a batch was delivered since the start, GoTo or Restored
}

// Sampler returns the rank's samples of the current epoch, and the current position in them.
func (p *Progress) Sampler() (*Sampler, Cursor) {
	s := p.samplerFrom(p.start)
	return &s, p.cursor
}

// samplerFrom returns the rank's samples of the current epoch from a position on.
func (p *Progress) samplerFrom(start int64) Sampler {
	order, epoch, r := p.Order, p.Epoch, &p.Ranks
	return Sampler{
		rankSlice: rankSlice{
			start:        start,
			epochSamples: order.Samples(),
			batch:        int64(r.Batch),
			world:        int64(r.World),
			rank:         int64(r.Rank),
			dropLast:     r.DropLast,
			short:        r.Short,
		},
		epoch:     epoch,
		makeOrder: func() sequence { return order.sequence(epoch) },
		data:      order.data,
		bad:       p.Bad,
	}
}

// Check rejects an epoch that holds no batch.
func (p *Progress) Check() error {
	c := p.samplerFrom(0)
	if c.epochSamples == 0 || c.steps() > 0 {
		return nil
	}
	step := robocache.Option("batch_size", c.batch)
	if c.world > 1 {
		world := robocache.Option("world_size", c.world)
		step += fmt.Sprintf(" × %s, %d samples a step", world, c.batch*c.world)
	}
	return robocache.Misuse("loader", nil, "an epoch of %d samples holds no batch: %s, and "+
		"drop_last leaves out what does not fill one", c.epochSamples, step).
		WithHint(
			"a smaller %s, or %s",
			robocache.Option("batch_size"),
			robocache.Option("drop_last", false),
		)
}

// Given advances to the position after a delivered batch.
func (p *Progress) Given(after Cursor) { p.cursor, p.isAdvanced = after, true }

// GoTo moves to the start of an epoch.
func (p *Progress) GoTo(epoch int64) {
	p.Epoch, p.start, p.cursor, p.isAdvanced = epoch, 0, Cursor{}, false
}

// Fresh reports whether the current epoch is epoch and nothing was delivered since the Progress was
// made or restored.
func (p *Progress) Fresh(epoch int64) bool { return p.Epoch == epoch && !p.isAdvanced }

// Ended reports whether a batch was delivered and no batch is left in the epoch.
func (p *Progress) Ended() bool {
	c := p.samplerFrom(p.start)
	return p.isAdvanced && c.isEnded(p.cursor)
}

// Len returns the number of batches of a whole epoch on each rank.
func (p *Progress) Len() int64 {
	c := p.samplerFrom(0)
	return c.batches()
}

// Remaining returns the number of batches until the epoch ends.
func (p *Progress) Remaining() int64 {
	c := p.samplerFrom(p.start)
	if c.world == 1 {
		c.start += p.cursor.index // more than the delivered samples if bad episodes were skipped
		return c.batches()
	}
	return max(c.batches()-p.cursor.step, 0)
}

// RankOrder returns the samples that a rank delivers in a whole epoch, including wrapped ones. Bad
// episodes are included.
func (p *Progress) RankOrder(epoch int64, rank int) []int64 {
	one := Progress{Order: p.Order, Ranks: p.Ranks, Epoch: epoch}
	one.Ranks.Rank = rank
	c := one.samplerFrom(0)
	var out []int64
	var at Cursor
	for s := new(Step); c.Next(at, s); at = s.After {
		out = append(out, s.Samples...)
	}
	return out
}

// Position returns the position in the epoch of the next sample. If the next batch could not be
// built, its first sample counts as the next one.
func (p *Progress) Position() int64 {
	c := p.samplerFrom(p.start)
	position, ok := c.samplePosition(p.cursor.index)
	if !ok {
		return c.epochSamples
	}
	return position
}

// Exclude adds bad episodes. It changes nothing and returns false if no sample would be left.
func (p *Progress) Exclude(found []BadEpisode) bool {
	bad := slices.Concat(p.Bad, found)
	if p.Order.data.countGoodSamples(bad) == 0 {
		return false
	}
	p.Bad = bad
	return true
}

// Sources returns the statistics of the sources so far. bad lists the episodes that are left out.
// It returns nil without a mixture.
func (p *Progress) Sources(bad []BadEpisode) []SourceStats {
	c := p.samplerFrom(p.start)
	position, _ := c.globalPosition(p.cursor)
	return p.Order.sourceStats(p.Epoch, position, bad)
}

// State returns the position as a State.
func (p *Progress) State() State {
	o := p.Order
	c := p.samplerFrom(p.start)
	s := State{
		Version:     stateVersion,
		Order:       orderNames[o.Mode],
		Seed:        o.Seed,
		Epoch:       p.Epoch,
		Samples:     c.epochSamples,
		BatchSize:   p.Ranks.Batch,
		WorldSize:   p.Ranks.World,
		Rank:        p.Ranks.Rank,
		BadEpisodes: p.Bad,
	}
	s.Position, s.Ahead = c.globalPosition(p.cursor)
	if p.Ended() {
		// After the last batch the position is the start of the next epoch, even before io.EOF.
		s.Epoch, s.Position, s.Ahead = p.Epoch+1, 0, 0
	}
	o.describeState(&s)
	return s
}

// Restored returns a Progress at the position of a state, which may come from another world size
// and batch size. Seed, pool and shares of the state override those of the order. If the two
// contradict each other, it returns Misuse that names the difference; with force the order's own
// values apply. has reports whether an episode exists.
func (p *Progress) Restored(
	s *State, force bool, has func(BadEpisode) bool,
) (*Progress, error) {
	if s.Version < 1 || s.Version > stateVersion {
		return nil, misuseOf(
			"state version",
			fmt.Sprint("1 to ", stateVersion),
			fmt.Sprint(s.Version),
		)
	}
	o, err := p.Order.withState(s, force)
	if err != nil {
		return nil, err
	}
	n := o.Samples()
	if s.Epoch < 0 {
		return nil, misuseOf("state epoch", "0 or more", fmt.Sprint(s.Epoch))
	}
	if s.Position < 0 || s.Position > n || s.Ahead < 0 || s.Ahead > 1<<60 {
		got := fmt.Sprint(s.Position, ", ahead ", s.Ahead)
		return nil, misuseOf("state position", fmt.Sprintf("0 to %d", n), got)
	}
	for _, b := range s.BadEpisodes {
		if !has(b) {
			return nil, misuseOf(
				"state bad_episodes",
				"episodes of the dataset",
				fmt.Sprint(b.Episode),
			)
		}
	}
	out := &Progress{
		Order: o,
		Ranks: p.Ranks,
		Epoch: s.Epoch,
		Bad:   slices.Clone(s.BadEpisodes),
		start: s.Position,
	}
	if r := &p.Ranks; s.WorldSize == r.World && s.BatchSize == r.Batch && s.Rank == r.Rank {
		out.cursor.index = s.Ahead
		globalBatch := int64(s.BatchSize) * int64(s.WorldSize)
		if s.WorldSize > 1 && s.Position%globalBatch == 0 {
			// Count from the start of the epoch, so that a rank that lacks samples wraps to the
			// same positions as without the restore.
			step := s.Position / globalBatch
			out.start, out.cursor = 0, Cursor{step*int64(s.BatchSize) + s.Ahead, step}
		}
	}
	c := out.samplerFrom(out.start)
	if s.Position > 0 && c.isEnded(out.cursor) {
		// No batch is left, or only one that drop_last omits.
		out.GoTo(s.Epoch + 1)
	}
	return out, nil
}

// misuseOf returns the error of an invalid option or state.
func misuseOf(option, want, got string) error {
	return robocache.Misuse("loader", nil, "%s", option).Expected(want, got)
}
