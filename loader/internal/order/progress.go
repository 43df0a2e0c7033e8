package order

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Ranks says how an epoch is shared out: batches of one rank among several.
type Ranks struct {
	Batch, World, Rank int
	DropLast           bool // drop the rest of the epoch's last global batch
	Short              bool // the last step has short batches; else its positions go round to the epoch's first ones
}

// Progress is where one rank stands in its epochs. It counts samples that were handed out (loader.L5). Not safe for concurrent use.
type Progress struct {
	Order *Ordering
	Ranks Ranks
	Epoch int64
	Bad   []BadEpisode // replaced when one is added, never changed: a sampler may still read the old list

	start      int64 // position of the epoch where the cursor counts from
	cursor     Cursor
	isAdvanced bool // a batch was handed out since the start, SetEpoch or Restored
}

// Sampler is the rank's sequence of the current epoch, and where it stands there.
func (p *Progress) Sampler() (*Sampler, Cursor) {
	s := p.samplerFrom(p.start)
	return &s, p.cursor
}

func (p *Progress) samplerFrom(start int64) Sampler {
	order, epoch, r := p.Order, p.Epoch, &p.Ranks
	return Sampler{
		rankSlice: rankSlice{start: start, epochSamples: order.Samples(), batch: int64(r.Batch), world: int64(r.World), rank: int64(r.Rank), dropLast: r.DropLast, short: r.Short},
		epoch:     epoch, makeOrder: func() sequence { return order.sequence(epoch) }, data: order.data, bad: p.Bad,
	}
}

// Check refuses an epoch that holds no batch.
func (p *Progress) Check() error {
	c := p.samplerFrom(0)
	if c.epochSamples == 0 || c.steps() > 0 {
		return nil
	}
	step := robocache.Option("batch_size", c.batch)
	if c.world > 1 {
		step += fmt.Sprintf(" × %s, %d samples a step", robocache.Option("world_size", c.world), c.batch*c.world)
	}
	return robocache.Misuse("loader", nil, "an epoch of %d samples holds no batch: %s, and drop_last leaves out what does not fill one", c.epochSamples, step).
		WithHint("a smaller %s, or %s", robocache.Option("batch_size"), robocache.Option("drop_last", false))
}

// Given moves on behind a batch that was handed out.
func (p *Progress) Given(after Cursor) { p.cursor, p.isAdvanced = after, true }

// GoTo stands at the start of an epoch.
func (p *Progress) GoTo(epoch int64) {
	p.Epoch, p.start, p.cursor, p.isAdvanced = epoch, 0, Cursor{}, false
}

// Fresh says whether it stands in an epoch of which it has given nothing since it was made or restored.
func (p *Progress) Fresh(epoch int64) bool { return p.Epoch == epoch && !p.isAdvanced }

// Ended says whether a batch was handed out, and none is left in the epoch.
func (p *Progress) Ended() bool {
	c := p.samplerFrom(p.start)
	return p.isAdvanced && c.isEnded(p.cursor)
}

// Len is the number of batches of a whole epoch on each rank.
func (p *Progress) Len() int64 {
	c := p.samplerFrom(0)
	return c.batches()
}

// Remaining is the number of batches until the epoch ends.
func (p *Progress) Remaining() int64 {
	c := p.samplerFrom(p.start)
	if c.world == 1 {
		c.start += p.cursor.index // more than the batches given, where bad episodes were passed over
		return c.batches()
	}
	return max(c.batches()-p.cursor.step, 0)
}

// RankOrder is what one rank gives in a whole epoch, wrapped samples among it. Bad episodes are not taken out.
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

// Position is the place of the next sample in the epoch: that of the batch that could not be made.
func (p *Progress) Position() int64 {
	c := p.samplerFrom(p.start)
	position, ok := c.samplePosition(p.cursor.index)
	if !ok {
		return c.epochSamples
	}
	return position
}

// Exclude takes bad episodes out of the order; false where nothing would be left.
func (p *Progress) Exclude(found []BadEpisode) bool {
	bad := slices.Concat(p.Bad, found)
	if p.Order.data.samplesWithout(bad) == 0 {
		return false
	}
	p.Bad = bad
	return true
}

// Sources is what a mixture took of its sources so far; nil of one dataset. bad are the episodes that are left out.
func (p *Progress) Sources(bad []BadEpisode) []SourceStats {
	c := p.samplerFrom(p.start)
	position, _ := c.globalPosition(p.cursor)
	return p.Order.sourceStats(p.Epoch, position, bad)
}

// State is where it stands.
func (p *Progress) State() State {
	o := p.Order
	c := p.samplerFrom(p.start)
	s := State{Version: stateVersion, Order: orderNames[o.Mode], Seed: o.Seed, Epoch: p.Epoch, Samples: c.epochSamples, BatchSize: p.Ranks.Batch, WorldSize: p.Ranks.World, Rank: p.Ranks.Rank, BadEpisodes: p.Bad}
	s.Position, s.Ahead = c.globalPosition(p.cursor)
	if p.Ended() {
		// After the last batch the loader stands at the start of the next epoch, whether io.EOF was seen or not.
		s.Epoch, s.Position, s.Ahead = p.Epoch+1, 0, 0
	}
	o.describeState(&s)
	return s
}

// Restored is where a state stands: made at any world size and batch size. The state's seed, pool and shares replace those of the order.
// Where they contradict each other it is Misuse that names the difference; force keeps what is configured here. has says whether there
// is such an episode.
func (p *Progress) Restored(s *State, force bool, has func(BadEpisode) bool) (*Progress, error) {
	if s.Version < 1 || s.Version > stateVersion {
		return nil, misuseOf("state version", fmt.Sprint("1 to ", stateVersion), fmt.Sprint(s.Version))
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
		return nil, misuseOf("state position", fmt.Sprintf("0 to %d", n), fmt.Sprint(s.Position, ", ahead ", s.Ahead))
	}
	for _, b := range s.BadEpisodes {
		if !has(b) {
			return nil, misuseOf("state bad_episodes", "episodes of the dataset", fmt.Sprint(b.Episode))
		}
	}
	out := &Progress{Order: o, Ranks: p.Ranks, Epoch: s.Epoch, Bad: slices.Clone(s.BadEpisodes), start: s.Position}
	if r := &p.Ranks; s.WorldSize == r.World && s.BatchSize == r.Batch && s.Rank == r.Rank {
		out.cursor.index = s.Ahead
		if g := int64(s.BatchSize) * int64(s.WorldSize); s.WorldSize > 1 && s.Position%g == 0 {
			// The epoch's own steps, so that a rank that lacks samples goes round the same positions as it would have.
			step := s.Position / g
			out.start, out.cursor = 0, Cursor{step*int64(s.BatchSize) + s.Ahead, step}
		}
	}
	c := out.samplerFrom(out.start)
	if s.Position > 0 && c.isEnded(out.cursor) {
		// Nothing is left, or less than drop_last drops.
		out.GoTo(s.Epoch + 1)
	}
	return out, nil
}

func misuseOf(option, want, got string) error {
	return robocache.Misuse("loader", nil, "%s", option).Expected(want, got)
}
