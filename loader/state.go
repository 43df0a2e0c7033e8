package loader

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// State is where a Loader stands: small, readable, and enough to go on exactly (L5). It counts samples that were handed out.
// Epoch and Position are the place; a user may change them, to skip batches say. What a source says of its own epoch and position
// follows from them.
type State struct {
	Version     int           `json:"version"` // 2; 1 is read as well
	Order       string        `json:"order"`   // "global", "pool" or "file"
	PoolParams                // of the order "pool" of one source
	Seed        int64         `json:"seed"`
	Epoch       int64         `json:"epoch"`
	Position    int64         `json:"position"` // samples of the epoch that all ranks have had
	Samples     int64         `json:"samples"`  // of the epoch
	BatchSize   int           `json:"batch_size"`
	WorldSize   int           `json:"world_size"`
	Rank        int           `json:"rank"`
	Ahead       int64         `json:"ahead,omitempty"` // samples that this rank took beyond Position, in place of bad ones
	Fingerprint Fingerprint   `json:"fingerprint,omitzero"`
	Mixture     *MixtureState `json:"mixture,omitempty"`
	Sources     []SourceState `json:"sources,omitempty"` // of a mixture
	BadEpisodes []BadEpisode  `json:"bad_episodes,omitempty"`
}

// MixtureState is how a mixture deals its positions to its sources.
type MixtureState struct {
	Total      int64 `json:"total"` // what the sources' shares sum up to
	Stratified bool  `json:"stratified,omitempty"`
}

// SourceState is one source of a mixture.
type SourceState struct {
	Name  string `json:"name"`
	Share int64  `json:"share"` // of the mixture's total
	PoolParams
	Weight      float64     `json:"weight"`   // the share as a part of 1; to be read
	Drawn       int64       `json:"drawn"`    // samples of it in this epoch of the mixture; to be read
	Epoch       int64       `json:"epoch"`    // its own; to be read
	Position    int64       `json:"position"` // in that; to be read
	Fingerprint Fingerprint `json:"fingerprint"`
}

// Fingerprint tells one set of episodes from another; it does not depend on where they lie.
type Fingerprint struct {
	Format   string `json:"format"`
	Episodes int    `json:"episodes"`
	Samples  int64  `json:"samples"`
	Lengths  string `json:"lengths"`          // hash over the selected episodes' numbers and samples
	Stream   string `json:"stream,omitempty"` // of whose rows Values is a hash: a few of the first and the last selected episode
	Values   string `json:"values,omitempty"`
}

// BadEpisode is an episode that was found bad. Its samples are left out of the order from the position on where it was found; all of them where
// opening found it (Epoch and Position 0), which is in Stats, not in a State.
type BadEpisode struct {
	Source   int    `json:"source,omitempty"` // of a mixture
	Episode  int    `json:"episode"`          // position in the dataset; -1: a file that opening could not read, whose episodes have none
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"`
	Error    string `json:"error"`
}

// orderNames are the modes as a state names them.
var orderNames = map[Shuffle]string{FileOrder: "file", Global: "global", Pool: "pool"}

// State is where the loader stands, at any moment, and of which data.
func (l *Loader) State() State {
	s := l.Standing()
	l.Identify(&s)
	return s
}

// Standing is State for who asks before every batch: nothing is read, so that it does not tell datasets of the same lengths apart before Identify.
func (l *Loader) Standing() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.order
	c := l.course(l.start)
	s := State{Version: 2, Order: orderNames[o.mode], Seed: o.seed, Epoch: l.epoch, Samples: c.n, BatchSize: l.cfg.BatchSize, WorldSize: l.cfg.WorldSize, Rank: l.cfg.Rank, BadEpisodes: l.bad}
	s.Position, s.Ahead = c.here(l.at)
	if l.given && c.ended(l.at) {
		// After the last batch the loader stands at the start of the next epoch, whether io.EOF was seen or not.
		s.Epoch, s.Position, s.Ahead = l.epoch+1, 0, 0
	}
	o.describe(&s)
	return s
}

// describe writes the order's parameters, and where its sources stand.
func (o *ordering) describe(s *State) {
	p := o.plan
	if p == nil {
		s.Fingerprint = o.data.tables[0].print
		if o.mode == Pool {
			s.PoolParams = o.pools[0]
		}
		return
	}
	s.Mixture = &MixtureState{Total: int64(p.total), Stratified: o.asked.stratified}
	drawn := p.counted(s.Position)
	for i, t := range o.data.tables {
		src := SourceState{Name: p.names[i], Share: int64(p.shares[i]), Weight: p.share(i), Drawn: drawn[i], Fingerprint: t.print}
		if o.mode == Pool {
			src.PoolParams = o.pools[i]
		}
		if p.sizes[i] > 0 {
			src.Epoch, src.Position = p.drawOf(i, s.Epoch, drawn[i])
		}
		s.Sources = append(s.Sources, src)
	}
}

// difference names the first thing in which a state is not of this order; "" where it is.
func (o *ordering) difference(s *State) (what, want, got string) {
	p := o.plan
	one := func(k int) string {
		if k == 0 {
			return "one dataset"
		}
		return fmt.Sprintf("a mixture of %d", k)
	}
	switch {
	case p == nil && len(s.Sources) > 0:
		return "the state is of a mixture", one(len(s.Sources)), "one dataset"
	case p != nil && len(s.Sources) != len(p.sizes):
		return "the state is of other sources", one(len(s.Sources)), one(len(p.sizes))
	case p == nil:
		if d := s.Fingerprint.difference(o.data.tables[0].print); d != "" {
			return "the state is of other data: " + d, "", ""
		}
	}
	for i := range s.Sources {
		if s.Sources[i].Name != p.names[i] {
			return fmt.Sprintf("source %d of the state has another name", i), s.Sources[i].Name, p.names[i]
		}
	}
	for i := range s.Sources {
		if d := s.Sources[i].Fingerprint.difference(o.data.tables[i].print); d != "" {
			return "the state is of other data: source " + p.names[i] + ": " + d, "", ""
		}
	}
	if s.Order != orderNames[o.mode] {
		return "the state is of another order", "shuffle as in the state: " + s.Order, "shuffle=" + orderNames[o.mode]
	}
	return "", "", ""
}

// restored is this order with the seed and the parameters of a state. Where the state contradicts it, it is an error that names the
// difference; force keeps what is configured here instead.
func (o *ordering) restored(s *State, force bool) (*ordering, error) {
	mismatch := func(what, want, got string) error {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: what, Want: want, Got: got, Hint: "force=True goes on all the same"}
	}
	if what, want, got := o.difference(s); what != "" && !force {
		return nil, mismatch(what, want, got)
	}
	out := *o
	out.seed = s.Seed
	if o.plan != nil {
		m := *o.asked
		same := s.Mixture != nil && len(s.Sources) == len(o.plan.sizes)
		if same && m.stratified && s.Mixture.Stratified && s.Mixture.Total > 0 && s.Mixture.Total <= mixTotal {
			m.globalBatch = s.Mixture.Total // shares of the batch that the run began with
		}
		var err error
		if out.plan, err = newMixPlan(m, o.plan.sizes, s.Seed); err != nil {
			return nil, err
		}
		if same {
			what, want, got := out.plan.adopt(s, m)
			if what != "" && !force {
				return nil, mismatch(what, want, got)
			}
		}
	}
	if o.mode == Pool && s.Order == orderNames[Pool] {
		pools := []PoolParams{s.PoolParams}
		if len(s.Sources) > 0 {
			pools = pools[:0]
			for i := range s.Sources {
				pools = append(pools, s.Sources[i].PoolParams)
			}
		}
		for _, p := range pools {
			if p.PoolSamples < 0 || p.PoolEpisodes < 0 || p.PoolShards < 1 || p.PoolShards > maxShards {
				return nil, misuse("state pool", fmt.Sprintf("pool_samples and pool_episodes not below 0, pool_shards 1 to %d", maxShards), fmt.Sprintf("%d, %d, %d", p.PoolSamples, p.PoolEpisodes, p.PoolShards))
			}
		}
		if len(pools) == len(o.pools) {
			out.pools = pools
		}
	}
	return &out, nil
}

// adopt takes over a state's shares, where they are those that are configured here; and says what differs, where they are not.
func (p *mixPlan) adopt(s *State, m mixParams) (what, want, got string) {
	if s.Mixture.Total != int64(p.total) || s.Mixture.Stratified != m.stratified {
		return "the state's mixture is another", fmt.Sprintf("stratified=%v, shares of %d", s.Mixture.Stratified, s.Mixture.Total), fmt.Sprintf("stratified=%v, shares of %d", m.stratified, p.total)
	}
	shares := make([]uint64, len(p.shares))
	sum := uint64(0)
	for i := range s.Sources {
		w := s.Sources[i].Share
		// Machines may differ in the last bits of a power.
		if off := w - int64(p.shares[i]); w < 0 || w > int64(p.total) || max(off, -off) > int64(p.total>>28) || (w == 0) != (p.shares[i] == 0) {
			return "weight of " + p.names[i], fmt.Sprintf("as in the state: %.6g", float64(w)/float64(p.total)), fmt.Sprintf("%.6g", p.share(i))
		}
		shares[i] = uint64(w)
		sum += shares[i]
	}
	if sum != p.total {
		return "the state's shares", fmt.Sprintf("a sum of %d", p.total), fmt.Sprint(sum)
	}
	q := *p
	q.shares, q.n = shares, 0
	if err := q.settle(m); err != nil {
		return "the state's shares", "an epoch", err.Error()
	}
	if q.n != s.Samples {
		return "the state's epoch has another length (stop, epoch_size)", fmt.Sprintf("%d samples", s.Samples), fmt.Sprint(q.n)
	}
	*p = q
	return "", "", ""
}

// Restore goes to a state: made at any world size, batch size and number of threads. The state's seed, pool and shares replace the
// configuration's. A state of other data, or of another order, is Misuse that names the difference; force goes on all the same, with
// what is configured here where the two contradict each other. It costs O(1); with shuffle="pool" the first batch then waits until
// the draws before it are simulated (some 20 ns each).
func (l *Loader) Restore(s State, force bool) error {
	if s.Version != 1 && s.Version != 2 {
		return misuse("state version", "1 or 2", fmt.Sprint(s.Version))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed()
	}
	o, err := l.order.restored(&s, force)
	if err != nil {
		return err
	}
	if !force {
		if what := l.otherData(&s); what != "" {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: what, Hint: "force=True goes on all the same"}
		}
	}
	n := o.samples()
	if s.Epoch < 0 {
		return misuse("state epoch", "0 or more", fmt.Sprint(s.Epoch))
	}
	if s.Position < 0 || s.Position > n || s.Ahead < 0 || s.Ahead > 1<<60 {
		return misuse("state position", fmt.Sprintf("0 to %d", n), fmt.Sprint(s.Position, ", ahead ", s.Ahead))
	}
	for _, b := range s.BadEpisodes {
		if b.Source < 0 || b.Source >= len(l.a.sources) || b.Episode < 0 || b.Episode >= l.a.sources[b.Source].ds.Info().Episodes {
			return misuse("state bad_episodes", "episodes of the dataset", fmt.Sprint(b.Episode))
		}
	}
	l.stopRun()
	l.order, l.cfg.Seed = o, s.Seed
	l.bad = slices.Clone(s.BadEpisodes)
	l.goTo(s.Epoch)
	l.start = s.Position
	if s.WorldSize == l.cfg.WorldSize && s.BatchSize == l.cfg.BatchSize && s.Rank == l.cfg.Rank {
		l.at.index = s.Ahead
		if g := int64(s.BatchSize) * int64(s.WorldSize); s.WorldSize > 1 && s.Position%g == 0 {
			// The epoch's own steps, so that a rank that lacks samples goes round the same positions as it would have.
			step := s.Position / g
			l.start, l.at = 0, cursor{step*int64(s.BatchSize) + s.Ahead, step}
		}
	}
	c := l.course(l.start)
	if s.Position > 0 && c.ended(l.at) {
		// Nothing is left, or less than drop_last drops.
		l.goTo(s.Epoch + 1)
	}
	return nil
}
