package loader

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// State is where a Loader stands: small, readable, and enough to go on exactly (L5). It counts samples that were handed out.
type State struct {
	Version     int          `json:"version"` // 1
	Order       string       `json:"order"`   // "global" or "file"
	Seed        int64        `json:"seed"`
	Epoch       int64        `json:"epoch"`
	Position    int64        `json:"position"` // samples of the epoch that all ranks have had
	Samples     int64        `json:"samples"`  // of the epoch
	BatchSize   int          `json:"batch_size"`
	WorldSize   int          `json:"world_size"`
	Rank        int          `json:"rank"`
	Ahead       int64        `json:"ahead,omitempty"` // samples that this rank took beyond Position, in place of bad ones
	Fingerprint Fingerprint  `json:"fingerprint"`
	BadEpisodes []BadEpisode `json:"bad_episodes,omitempty"`
}

// Fingerprint tells one set of episodes from another; it does not depend on where they lie.
type Fingerprint struct {
	Format   string `json:"format"`
	Episodes int    `json:"episodes"`
	Samples  int64  `json:"samples"`
	Lengths  string `json:"lengths"` // hash over the selected episodes' numbers and samples
}

// BadEpisode is an episode that was found bad while reading. Its samples are left out of the order from the position on where it was found.
type BadEpisode struct {
	Episode  int    `json:"episode"` // position in the dataset
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"`
	Error    string `json:"error"`
}

// State is where the loader stands, at any moment.
func (l *Loader) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	order := "global"
	if l.cfg.Shuffle == FileOrder {
		order = "file"
	}
	c := l.course(l.start)
	s := State{Version: 1, Order: order, Seed: l.cfg.Seed, Epoch: l.epoch, Samples: c.n, BatchSize: l.cfg.BatchSize, WorldSize: l.cfg.WorldSize, Rank: l.cfg.Rank,
		Fingerprint: l.a.sources[0].table.print, BadEpisodes: l.bad}
	s.Position, s.Ahead = c.here(l.at)
	if l.given && c.ended(l.at) {
		// After the last batch the loader stands at the start of the next epoch, whether io.EOF was seen or not.
		s.Epoch, s.Position, s.Ahead = l.epoch+1, 0, 0
	}
	return s
}

// Restore goes to a state in O(1): made at any world size, batch size and number of threads. A state of other data, or of another
// order, is Misuse that names the difference; force goes on all the same. The state's seed replaces the configuration's.
func (l *Loader) Restore(s State, force bool) error {
	if s.Version != 1 {
		return misuse("state version", "1", fmt.Sprint(s.Version))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed()
	}
	n := l.a.sources[0].table.samples()
	if !force {
		if d := s.Fingerprint.difference(l.a.sources[0].table.print); d != "" {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "the state is of other data: " + d, Hint: "force=True goes on all the same"}
		}
		if (s.Order == "file") != (l.cfg.Shuffle == FileOrder) {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "the state is of another order", Want: "shuffle as in the state: " + s.Order, Got: "shuffle=" + string(l.cfg.Shuffle), Hint: "force=True goes on all the same"}
		}
	}
	if s.Position < 0 || s.Position > n || s.Ahead < 0 {
		return misuse("state position", fmt.Sprintf("0 to %d", n), fmt.Sprint(s.Position))
	}
	for _, b := range s.BadEpisodes {
		if b.Episode < 0 || b.Episode >= l.a.sources[0].ds.Info().Episodes {
			return misuse("state bad_episodes", "episodes of the dataset", fmt.Sprint(b.Episode))
		}
	}
	l.stopRun()
	l.cfg.Seed = s.Seed
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
