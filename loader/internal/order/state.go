package order

import (
	"encoding/json"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// stateVersion is the version of the states that are written.
const stateVersion = 3

// State is the position of a Loader: small, readable, and sufficient to continue exactly
// (loader.L5). It counts delivered samples. Epoch and Position are the position; a user may change
// them, for example to skip batches. The epochs and positions of sources follow from them.
type State struct {
	// 3. Versions 1 and 2, with positions in bad_episodes, are accepted
	Version    int    `json:"version"`
	Order      string `json:"order"` // "global", "pool" or "file"
	PoolParams        // of the order "pool" of one source
	Seed       int64  `json:"seed"`
	Epoch      int64  `json:"epoch"`
	// samples of the epoch that all ranks have delivered
	Position  int64 `json:"position"`
	Samples   int64 `json:"samples"` // of the epoch
	BatchSize int   `json:"batch_size"`
	WorldSize int   `json:"world_size"`
	Rank      int   `json:"rank"`
	// samples that this rank delivered beyond Position, in place of bad ones
	Ahead       int64         `json:"ahead,omitempty"`
	Fingerprint Fingerprint   `json:"fingerprint,omitzero"`
	Mixture     *MixtureState `json:"mixture,omitempty"`
	Sources     []SourceState `json:"sources,omitempty"` // of a mixture
	BadEpisodes []BadEpisode  `json:"bad_episodes,omitempty"`
	Follow      *FollowState  `json:"follow,omitempty"` // of a dataset that grows
}

// FollowState states which episodes of a growing dataset the epoch of a State has: those before a
// position of the log of arrivals.
type FollowState struct {
	Log      string `json:"log"`      // identity of the log
	Run      string `json:"run"`      // run whose boundaries follow
	Arrivals int    `json:"arrivals"` // position in the log: number of arrivals before it
	Digest   string `json:"digest"`   // of the log up to there
	// IsPending reports that the next epoch sees later arrivals, up to a boundary that may not be
	// in the log yet. The position is then the start of the epoch.
	IsPending bool `json:"pending,omitempty"`
	// Normalize holds the normalization of the first episodes, with its statistics, as JSON.
	Normalize json.RawMessage `json:"normalize,omitempty"`
}

// MixtureState states how a mixture deals its positions to its sources.
type MixtureState struct {
	Total      int64 `json:"total"` // sum of the sources' shares
	Stratified bool  `json:"stratified,omitempty"`
}

// SourceState is the state of one source of a mixture. Weight, Drawn, Epoch and Position are
// informative and ignored by Restore.
type SourceState struct {
	Name  string `json:"name"`
	Share int64  `json:"share"` // of MixtureState.Total
	PoolParams
	Weight      float64     `json:"weight"`   // the share as a fraction of 1
	Drawn       int64       `json:"drawn"`    // its samples in this epoch of the mixture
	Epoch       int64       `json:"epoch"`    // its own epoch
	Position    int64       `json:"position"` // in its own epoch
	Fingerprint Fingerprint `json:"fingerprint"`
}

// Fingerprint identifies a set of episodes. It does not depend on their location.
type Fingerprint struct {
	Format   string `json:"format"`
	Episodes int    `json:"episodes"`
	Samples  int64  `json:"samples"`
	// hash of the numbers and samples of the selected episodes
	Lengths string `json:"lengths"`
	Stream  string `json:"stream,omitempty"` // stream that Values is a hash of
	// hash of a few rows of the first and the last selected episode
	Values string `json:"values,omitempty"`
	// hash of the keys and values of derived streams
	Derived string `json:"derived,omitempty"`
}

// BadEpisode is an episode that cannot be read. The order omits its samples from Epoch and Position
// on. Episodes that opening found to be bad have Epoch and Position 0 and are omitted entirely;
// they are part of Stats, not of a State.
type BadEpisode struct {
	Source int `json:"source,omitempty"` // position in the mixture
	// Episode is its index in a State and in Stats, and its position in the dataset inside this
	// package. It is -1 for a file that opening could not read, whose episodes are unknown.
	Episode  int    `json:"episode"`
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"`
	Error    string `json:"error"`
}

// orderNames holds the names of the modes in states.
var orderNames = map[Shuffle]string{FileOrder: "file", Global: "global", Pool: "pool"}

// shuffleOption returns the option that selects a mode, for messages.
func shuffleOption(mode Shuffle) string {
	if mode == FileOrder {
		return robocache.Option("shuffle", false)
	}
	return robocache.Option("shuffle", orderNames[mode])
}

// describeState writes the order's parameters and the positions of the sources to s.
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
		src := SourceState{
			Name:        p.sourceNames[i],
			Share:       int64(p.shares[i]),
			Weight:      p.shareOf(i),
			Drawn:       drawn[i],
			Fingerprint: t.Print,
		}
		if o.Mode == Pool {
			src.PoolParams = o.Pools[i]
		}
		if p.sourceSizes[i] > 0 {
			src.Epoch, src.Position = p.sourceDraw(i, s.Epoch, drawn[i])
		}
		s.Sources = append(s.Sources, src)
	}
}

// stateDifference describes the first difference between a state and this order. what is "" if
// there is none.
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
			return fmt.Sprintf("source %d of the state has another name", i), s.Sources[i].Name,
				p.sourceNames[i]
		}
	}
	for i := range s.Sources {
		if d := s.Sources[i].Fingerprint.differenceFrom(o.data.tables[i].Print); d != "" {
			return "the state is of other data: source " + p.sourceNames[i] + ": " + d, "", ""
		}
	}
	if s.Order != orderNames[o.Mode] {
		return "the state is of another order", "shuffle as in the state: " +
			s.Order, shuffleOption(o.Mode)
	}
	return "", "", ""
}

// withState returns this order with the seed and the parameters of a state. A contradiction is an
// error that names the difference; with force, this order's own parameters apply.
func (o *Ordering) withState(s *State, force bool) (*Ordering, error) {
	mismatch := func(what, want, got string) error {
		return robocache.Misuse("loader", nil, "%s", what).Expected(want, got).
			WithHint("%s goes on all the same", robocache.Option("force", true))
	}
	if what, want, got := o.stateDifference(s); what != "" && !force {
		return nil, mismatch(what, want, got)
	}
	out := *o
	out.Seed, out.data.seed = s.Seed, s.Seed
	if o.mixPlan != nil {
		m := *o.mixParams
		same := s.Mixture != nil && len(s.Sources) == len(o.mixPlan.sourceSizes)
		if same && m.Stratified && s.Mixture.Stratified && s.Mixture.Total > 0 &&
			s.Mixture.Total <= mixTotal {
			// shares are those of the global batch at the start of the run
			m.GlobalBatch = s.Mixture.Total
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
			if p.PoolSamples < 0 || p.PoolEpisodes < 0 || p.PoolShards < 1 ||
				p.PoolShards > MaxShards {
				want := fmt.Sprintf(
					"pool_samples and pool_episodes not below 0, pool_shards 1 to %d",
					MaxShards,
				)
				got := fmt.Sprintf("%d, %d, %d", p.PoolSamples, p.PoolEpisodes, p.PoolShards)
				return nil, misuseOf("state pool", want, got)
			}
		}
		if len(pools) == len(o.Pools) {
			out.Pools = pools
		}
	}
	return &out, nil
}

// adoptShares replaces the shares by those of a state if they agree within rounding. Otherwise it
// returns the difference.
func (p *mixPlan) adoptShares(s *State, m MixParams) (what, want, got string) {
	if s.Mixture.Total != int64(p.totalShares) || s.Mixture.Stratified != m.Stratified {
		describe := func(stratified bool, total int64) string {
			return fmt.Sprintf(
				"%s, shares of %d",
				robocache.Option("stratified", stratified),
				total,
			)
		}
		return "the state's mixture is another", describe(s.Mixture.Stratified, s.Mixture.Total),
			describe(m.Stratified, int64(p.totalShares))
	}
	shares := make([]uint64, len(p.shares))
	sum := uint64(0)
	for i := range s.Sources {
		w := s.Sources[i].Share
		// The last bits of a power may differ between machines, so allow a difference of 2^-28.
		difference, tolerance := w-int64(p.shares[i]), int64(p.totalShares>>28)
		if w < 0 || w > int64(p.totalShares) || (w == 0) != (p.shares[i] == 0) ||
			max(difference, -difference) > tolerance {
			return "weight of " + p.sourceNames[i],
				fmt.Sprintf("as in the state: %.6g", float64(w)/float64(p.totalShares)),
				fmt.Sprintf("%.6g", p.shareOf(i))
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
		return "the state's epoch has another length (stop, epoch_size)",
			fmt.Sprintf("%d samples", s.Samples), fmt.Sprint(q.epochSamples)
	}
	*p = q
	return "", "", ""
}
