package loader

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Shuffle names the order of an epoch.
type Shuffle = order.Shuffle

const (
	FileOrder = order.FileOrder // Python: False
	Global    = order.Global    // a keyed permutation of all samples
	Pool      = order.Pool      // samples of resident episodes
)

// Stop selects the end of an epoch of a mixture.
type Stop = order.Stop

const (
	StopSum   = order.StopSum
	StopFirst = order.StopFirst
	StopAll   = order.StopAll
)

// Orders and states; see package order.
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

// State returns the position of the loader and the identity of its data. It may be called at any
// time.
func (l *Loader) State() State {
	s := l.Standing()
	l.Identify(&s)
	return s
}

// Standing returns State without the hash of values, so that it reads nothing. It is meant for
// callers that need the position before every batch. Identify adds the hash.
func (l *Loader) Standing() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.progress.State()
	s.BadEpisodes = l.assembler.BadEpisodesByIndex(s.BadEpisodes)
	return s
}

// Restore moves to a state, which may come from another world size, batch size or number of
// threads. Seed, pool and shares of the state override the configuration.
//
// A state of other data or of another order is Misuse, and the error names the difference. With
// force, Restore succeeds, and the configuration applies where the two contradict each other.
// Restore is O(1). With shuffle="pool" the first batch then waits until the earlier draws are
// simulated, at about 20 ns each.
func (l *Loader) Restore(s State, force bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return errClosed()
	}
	var err error
	if s.Version >= 3 { // earlier versions hold positions
		if s.BadEpisodes, err = l.assembler.BadEpisodesByPosition(s.BadEpisodes); err != nil {
			return err
		}
	}
	at, err := l.progress.Restored(&s, force, func(b BadEpisode) bool {
		if b.Source < 0 || b.Source >= len(l.assembler.Sources) {
			return false
		}
		episodes := l.assembler.Sources[b.Source].Dataset.Info().Episodes
		return b.Episode >= 0 && b.Episode < episodes
	})
	if err != nil {
		return err
	}
	if !force {
		if what := l.dataMismatch(&s); what != "" {
			return robocache.Misuse("loader", nil, "%s", what).
				WithHint("%s goes on all the same", robocache.Option("force", true))
		}
	}
	l.stopRun()
	l.progress, l.config.Seed, l.isContinuing = at, s.Seed, false
	return nil
}

// Order returns the sample order of an epoch. It reads nothing. Bad episodes are included.
func (l *Loader) Order(epoch int64) *Sequence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress.Order.Epoch(epoch)
}

// RankOrder returns the samples that a rank delivers in a whole epoch, in order, including wrapped
// ones (loader.L3). It reads nothing. Bad episodes are included.
func (l *Loader) RankOrder(epoch int64, rank int) ([]int64, error) {
	if rank < 0 || rank >= l.config.WorldSize {
		return nil, options.RankOutOfRange("rank", l.config.WorldSize, rank)
	}
	l.mu.Lock()
	progress := *l.progress
	l.mu.Unlock()
	return progress.RankOrder(epoch, rank), nil
}

// Randomness measures how well this epoch's order mixes episodes in the batches of all ranks, over
// its first million positions. It reads nothing. The ideals of a mixture are those of its sources,
// each shuffled perfectly and drawn by its weight.
func (l *Loader) Randomness() Randomness {
	l.mu.Lock()
	progress := *l.progress
	l.mu.Unlock()
	globalBatch := int64(l.config.BatchSize) * int64(l.config.WorldSize)
	return progress.Order.Randomness(progress.Epoch, globalBatch)
}
