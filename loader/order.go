package loader

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/pipeline"
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
	FollowState  = order.FollowState
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
	if l.follow != nil {
		l.follow.describeState(&s)
	}
	return s
}

// Restore moves to a state, which may come from another world size, batch size or number of
// threads. Seed, pool and shares of the state override the configuration.
//
// A state of other data or of another order is Misuse, and the error names the difference. With
// force, Restore succeeds, and the configuration applies where the two contradict each other.
// Restore is O(1). With shuffle="pool" the first batch then waits until the earlier draws are
// simulated, at about 20 ns each. A loader that follows a dataset opens it again.
func (l *Loader) Restore(s State, force bool) error {
	if l.follow != nil {
		if done, err := l.restoreGeneration(&s, force); done || err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return errClosed()
	}
	if s.Follow != nil && l.follow == nil && !force {
		return robocache.Misuse("loader", nil, "the state is of a loader that follows a dataset").
			WithHint("Pass %s.", robocache.Option("follow", true))
	}
	at, err := restoredProgress(l.progress, l.assembler, &s, force)
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

// restoredProgress returns a Progress at the position of a state, in the order of progress.
func restoredProgress(
	progress *order.Progress, a *pipeline.Assembler, s *State, force bool,
) (*order.Progress, error) {
	var err error
	if s.Version >= 3 { // earlier versions hold positions
		if s.BadEpisodes, err = a.BadEpisodesByPosition(s.BadEpisodes); err != nil {
			return nil, err
		}
	}
	return progress.Restored(s, force, func(b BadEpisode) bool {
		if b.Source < 0 || b.Source >= len(a.Sources) {
			return false
		}
		return b.Episode >= 0 && b.Episode < a.Sources[b.Source].Dataset.Info().Episodes
	})
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
