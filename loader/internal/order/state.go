package order

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// stateVersion is the version of the states that are written.
const stateVersion = 3

// State is where a Loader stands: small, readable, and enough to go on exactly (loader.L5). It counts samples that were handed out.
// Epoch and Position are the place; a user may change them, to skip batches say. What a source says of its own epoch and position
// follows from them.
type State struct {
	Version     int           `json:"version"` // 3; 1 and 2, whose bad_episodes are positions, are read as well
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
	Episode  int    `json:"episode"`          // its index in a State and in Stats, its position inside of package order; -1: a file that opening could not read, whose episodes have none
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"`
	Error    string `json:"error"`
}

// orderNames are the modes as a state names them.
var orderNames = map[Shuffle]string{FileOrder: "file", Global: "global", Pool: "pool"}

// shuffleOption returns the words for the option that gives a mode.
func shuffleOption(mode Shuffle) string {
	if mode == FileOrder {
		return robocache.Option("shuffle", false)
	}
	return robocache.Option("shuffle", orderNames[mode])
}

// describeState writes the order's parameters, and where its sources stand.
func (o *Ordering) describeState(s *State) {
	p := o.mixPlan
	if p == nil {
		s.Fingerprint = o.data.tables[0].Print
		if o.Mode == Pool {
			s.PoolParams = o.Pools[0]
		}
		return
	}
	s.Mixture = &MixtureState{Total: int64(p.totalShares), Stratified: o.mixParams.Stratified}
	drawn := p.countsBefore(s.Position)
	for i, t := range o.data.tables {
		src := SourceState{Name: p.sourceNames[i], Share: int64(p.shares[i]), Weight: p.shareOf(i), Drawn: drawn[i], Fingerprint: t.Print}
		if o.Mode == Pool {
			src.PoolParams = o.Pools[i]
		}
		if p.sourceSizes[i] > 0 {
			src.Epoch, src.Position = p.sourceDraw(i, s.Epoch, drawn[i])
		}
		s.Sources = append(s.Sources, src)
	}
}

// stateDifference names the first thing in which a state is not of this order; "" where it is.
func (o *Ordering) stateDifference(s *State) (what, want, got string) {
	p := o.mixPlan
	one := func(k int) string {
		if k == 0 {
			return "one dataset"
		}
		return fmt.Sprintf("a mixture of %d", k)
	}
	switch {
	case p == nil && len(s.Sources) > 0:
		return "the state is of a mixture", one(len(s.Sources)), "one dataset"
	case p != nil && len(s.Sources) != len(p.sourceSizes):
		return "the state is of other sources", one(len(s.Sources)), one(len(p.sourceSizes))
	case p == nil:
		if d := s.Fingerprint.differenceFrom(o.data.tables[0].Print); d != "" {
			return "the state is of other data: " + d, "", ""
		}
	}
	for i := range s.Sources {
		if s.Sources[i].Name != p.sourceNames[i] {
			return fmt.Sprintf("source %d of the state has another name", i), s.Sources[i].Name, p.sourceNames[i]
		}
	}
	for i := range s.Sources {
		if d := s.Sources[i].Fingerprint.differenceFrom(o.data.tables[i].Print); d != "" {
			return "the state is of other data: source " + p.sourceNames[i] + ": " + d, "", ""
		}
	}
	if s.Order != orderNames[o.Mode] {
		return "the state is of another order", "shuffle as in the state: " + s.Order, shuffleOption(o.Mode)
	}
	return "", "", ""
}

// withState is this order with the seed and the parameters of a state. Where the state contradicts it, it is an error that names the
// difference; force keeps what is configured here instead.
func (o *Ordering) withState(s *State, force bool) (*Ordering, error) {
	mismatch := func(what, want, got string) error {
		return robocache.Misuse("loader", nil, "%s", what).Expected(want, got).
			WithHint("%s goes on all the same", robocache.Option("force", true))
	}
	if what, want, got := o.stateDifference(s); what != "" && !force {
		return nil, mismatch(what, want, got)
	}
	out := *o
	out.Seed = s.Seed
	if o.mixPlan != nil {
		m := *o.mixParams
		same := s.Mixture != nil && len(s.Sources) == len(o.mixPlan.sourceSizes)
		if same && m.Stratified && s.Mixture.Stratified && s.Mixture.Total > 0 && s.Mixture.Total <= mixTotal {
			m.GlobalBatch = s.Mixture.Total // shares of the batch that the run began with
		}
		var err error
		if out.mixPlan, err = newMixPlan(m, o.mixPlan.sourceSizes, s.Seed); err != nil {
			return nil, err
		}
		if same {
			what, want, got := out.mixPlan.adoptShares(s, m)
			if what != "" && !force {
				return nil, mismatch(what, want, got)
			}
		}
	}
	if o.Mode == Pool && s.Order == orderNames[Pool] {
		pools := []PoolParams{s.PoolParams}
		if len(s.Sources) > 0 {
			pools = pools[:0]
			for i := range s.Sources {
				pools = append(pools, s.Sources[i].PoolParams)
			}
		}
		for _, p := range pools {
			if p.PoolSamples < 0 || p.PoolEpisodes < 0 || p.PoolShards < 1 || p.PoolShards > MaxShards {
				return nil, misuseOf("state pool", fmt.Sprintf("pool_samples and pool_episodes not below 0, pool_shards 1 to %d", MaxShards), fmt.Sprintf("%d, %d, %d", p.PoolSamples, p.PoolEpisodes, p.PoolShards))
			}
		}
		if len(pools) == len(o.Pools) {
			out.Pools = pools
		}
	}
	return &out, nil
}

// adoptShares takes over a state's shares, where they are those that are configured here; and says what differs, where they are not.
func (p *mixPlan) adoptShares(s *State, m MixParams) (what, want, got string) {
	if s.Mixture.Total != int64(p.totalShares) || s.Mixture.Stratified != m.Stratified {
		return "the state's mixture is another", fmt.Sprintf("%s, shares of %d", robocache.Option("stratified", s.Mixture.Stratified), s.Mixture.Total),
			fmt.Sprintf("%s, shares of %d", robocache.Option("stratified", m.Stratified), p.totalShares)
	}
	shares := make([]uint64, len(p.shares))
	sum := uint64(0)
	for i := range s.Sources {
		w := s.Sources[i].Share
		// Machines may differ in the last bits of a power.
		if off := w - int64(p.shares[i]); w < 0 || w > int64(p.totalShares) || max(off, -off) > int64(p.totalShares>>28) || (w == 0) != (p.shares[i] == 0) {
			return "weight of " + p.sourceNames[i], fmt.Sprintf("as in the state: %.6g", float64(w)/float64(p.totalShares)), fmt.Sprintf("%.6g", p.shareOf(i))
		}
		shares[i] = uint64(w)
		sum += shares[i]
	}
	if sum != p.totalShares {
		return "the state's shares", fmt.Sprintf("a sum of %d", p.totalShares), fmt.Sprint(sum)
	}
	q := *p
	q.shares, q.epochSamples = shares, 0
	if err := q.computeEpoch(m); err != nil {
		return "the state's shares", "an epoch", err.Error()
	}
	if q.epochSamples != s.Samples {
		return "the state's epoch has another length (stop, epoch_size)", fmt.Sprintf("%d samples", s.Samples), fmt.Sprint(q.epochSamples)
	}
	*p = q
	return "", "", ""
}
