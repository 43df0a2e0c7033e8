package loader

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/arrivals"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/options"
)

// describeState adds the position in the log to a state. Caller must hold Loader.mu.
func (f *follower) describeState(s *State) {
	b := f.current.boundary
	s.Follow = &FollowState{
		Log:       f.log.ID(),
		Run:       f.run,
		Arrivals:  b.Arrivals,
		Digest:    f.log.Digest(b.Arrivals),
		IsPending: f.boundaryEpoch(s.Epoch) != b.Epoch || f.run != b.Run,
	}
	if f.normalize != nil {
		s.Follow.Normalize, _ = json.Marshal(f.normalize) // it was made from JSON
	}
	if s.Follow.IsPending { // its episodes are those of the next boundary
		s.Fingerprint, s.Samples, s.Sources, s.Mixture = order.Fingerprint{}, 0, nil, nil
	}
}

// restoreGeneration moves to a state of a loader that follows a dataset. done is false if the state
// is none, and force lets it apply all the same.
func (l *Loader) restoreGeneration(s *State, force bool) (done bool, err error) {
	f := l.follow
	l.consumerLock <- struct{}{} // so that no call of Next begins another entry
	defer func() { <-l.consumerLock }()
	if s.Follow == nil {
		if force {
			return false, nil
		}
		return false, robocache.Misuse("loader", nil,
			"the state is of a loader that does not follow its dataset").
			WithHint("%s goes on all the same", robocache.Option("force", true))
	}
	if err := f.log.Refresh(); err != nil {
		return false, err
	}
	if digest := f.log.Digest(s.Follow.Arrivals); f.log.ID() != s.Follow.Log ||
		digest != s.Follow.Digest {
		if force {
			return false, nil
		}
		return false, robocache.Misuse("loader", robocache.Where{"file": f.log.Path()},
			"the state is of another log of arrivals").
			Expected(fmt.Sprintf("log %s with %d arrivals, digest %s", s.Follow.Log,
				s.Follow.Arrivals, s.Follow.Digest),
				fmt.Sprintf("log %s with %d arrivals, digest %s", f.log.ID(), f.log.Len(),
					cmp.Or(digest, "none"))).
			WithHint("Name the log of that run: %s.", robocache.Option("follow", "log", "FILE"))
	}
	var normalize *Normalize
	if len(s.Follow.Normalize) > 0 && !f.config.RefreshStats {
		normalize = &Normalize{}
		if err := json.Unmarshal(s.Follow.Normalize, normalize); err != nil {
			return false, robocache.Misuse("loader", nil, "state follow.normalize").WithCause(err)
		}
	}
	l.mu.Lock()
	if l.isClosed {
		l.mu.Unlock()
		return true, errClosed()
	}
	f.cancelEntry()
	l.stopRun()
	l.mu.Unlock()
	f.wg.Wait() // a canceled entry may still read the fields below
	if normalize != nil {
		f.normalize = normalize
	}
	f.config.Seed, l.config.Seed = s.Seed, s.Seed
	b := arrivals.Boundary{
		Run:      s.Follow.Run,
		Epoch:    f.boundaryEpoch(s.Epoch),
		Arrivals: s.Follow.Arrivals,
	}
	switch {
	case s.Follow.IsPending: // the epoch before the boundary, in which nothing is left
		b.Epoch, b.Samples = noEpoch, f.stepSamples()
	case f.config.Follow.At == FollowStep:
		b.Samples = s.Samples
	}
	timeout := time.Duration(f.config.Follow.Timeout * float64(time.Second))
	if f.config.Rank == 0 {
		timeout = presence
	}
	listing, err := f.listPrefix(f.ctx, b.Arrivals, nil, timeout)
	if err != nil {
		return true, err
	}
	g, err := f.build(f.ctx, b, listing)
	if err != nil {
		return true, err
	}
	progress, err := g.progress, error(nil)
	if s.Follow.IsPending {
		err = g.moveToBoundary(s)
	} else {
		progress, err = restoredProgress(g.progress, g.assembler, s, force)
	}
	if err != nil {
		return true, errors.Join(err, g.close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return true, errors.Join(errClosed(), g.close())
	}
	f.run, f.waiting = s.Follow.Run, g.waiting
	l.useGeneration(g, progress)
	f.moveTo(progress.Epoch) // beyond the boundary if no batch of the epoch was left
	return true, nil
}

// noEpoch is the epoch of the boundary of a generation that has no epoch left.
const noEpoch = -1

// moveToBoundary moves to the start of the epoch of a state, whose boundary is not known yet.
func (g *generation) moveToBoundary(s *State) (err error) {
	if s.Position != 0 || s.Epoch < 0 {
		return options.Misuse("state position", "0 at a boundary", fmt.Sprint(s.Position))
	}
	g.progress.GoTo(s.Epoch)
	g.progress.Bad, err = g.assembler.BadEpisodesByPosition(s.BadEpisodes)
	return err
}
