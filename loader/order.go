package loader

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// Shuffle names the order of an epoch.
type Shuffle = order.Shuffle

const (
	FileOrder = order.FileOrder // Python: False
	Global    = order.Global    // a keyed permutation of all samples
	Pool      = order.Pool      // samples of resident episodes
)

// Stop says when an epoch of a mixture ends.
type Stop = order.Stop

const (
	StopSum   = order.StopSum
	StopFirst = order.StopFirst
	StopAll   = order.StopAll
)

// What a state says, and what is said of orders.
type (
	Sequence     = order.Order
	PoolParams   = order.PoolParams
	Randomness   = order.Randomness
	SourceStats  = order.SourceStats
	State        = order.State
	MixtureState = order.MixtureState
	SourceState  = order.SourceState
	Fingerprint  = order.Fingerprint
	BadEpisode   = order.BadEpisode
)

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
	s := l.at.State()
	s.BadEpisodes = l.a.BadEpisodesByIndex(s.BadEpisodes)
	return s
}

// Restore goes to a state: made at any world size, batch size and number of threads. The state's seed, pool and shares replace the
// configuration's. A state of other data, or of another order, is Misuse that names the difference; force goes on all the same, with
// what is configured here where the two contradict each other. It costs O(1); with shuffle="pool" the first batch then waits until
// the draws before it are simulated (some 20 ns each).
func (l *Loader) Restore(s State, force bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed()
	}
	var err error
	if s.Version >= 3 { // before, they were positions
		if s.BadEpisodes, err = l.a.BadEpisodesByPosition(s.BadEpisodes); err != nil {
			return err
		}
	}
	at, err := l.at.Restored(&s, force, func(b BadEpisode) bool {
		return b.Source >= 0 && b.Source < len(l.a.Sources) && b.Episode >= 0 && b.Episode < l.a.Sources[b.Source].Dataset.Info().Episodes
	})
	if err != nil {
		return err
	}
	if !force {
		if what := l.otherData(&s); what != "" {
			return robocache.Misuse("loader", nil, "%s", what).
				WithHint("%s goes on all the same", robocache.Option("force", true))
		}
	}
	l.stopRun()
	l.at, l.cfg.Seed, l.followed = at, s.Seed, false
	return nil
}

// Order is the sample order of an epoch; nothing is read for it. Bad episodes are not taken out.
func (l *Loader) Order(epoch int64) *Sequence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at.Order.Epoch(epoch)
}

// RankOrder is what one rank gives in a whole epoch, batch after batch, wrapped samples among it (L3); nothing is read for it. Bad episodes
// are not taken out.
func (l *Loader) RankOrder(epoch int64, rank int) ([]int64, error) {
	if rank < 0 || rank >= l.cfg.WorldSize {
		return nil, options.RankOutOfRange("rank", l.cfg.WorldSize, rank)
	}
	l.mu.Lock()
	at := *l.at
	l.mu.Unlock()
	return at.RankOrder(epoch, rank), nil
}

// Randomness measures this epoch's order for the batches of all ranks, over its first million positions; nothing is read. Of a mixture
// the ideals are those of its sources, each shuffled perfectly and drawn by its weight.
func (l *Loader) Randomness() Randomness {
	l.mu.Lock()
	at := *l.at
	l.mu.Unlock()
	return at.Order.Randomness(at.Epoch, int64(l.cfg.BatchSize)*int64(l.cfg.WorldSize))
}
