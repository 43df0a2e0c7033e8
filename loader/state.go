package loader

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// State is where a Loader stands: small, readable, and enough to go on exactly (L5). It counts samples that were handed out.
type State struct {
	Version     int          `json:"version"` // 2; 1 is read as well
	Order       string       `json:"order"`   // "global", "pool" or "file"
	PoolParams               // of the order "pool"
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
	Source   int    `json:"source,omitempty"` // of a mixture
	Episode  int    `json:"episode"`          // position in the dataset
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"`
	Error    string `json:"error"`
}

// orderNames are the modes as a state names them.
var orderNames = map[Shuffle]string{FileOrder: "file", Global: "global", Pool: "pool"}

// State is where the loader stands, at any moment.
func (l *Loader) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.order
	c := l.course(l.start)
	s := State{Version: 2, Order: orderNames[o.mode], Seed: o.seed, Epoch: l.epoch, Samples: c.n, BatchSize: l.cfg.BatchSize, WorldSize: l.cfg.WorldSize, Rank: l.cfg.Rank,
		Fingerprint: o.data.tables[0].print, BadEpisodes: l.bad}
	if o.mode == Pool {
		s.PoolParams = o.pools[0]
	}
	s.Position, s.Ahead = c.here(l.at)
	if l.given && c.ended(l.at) {
		// After the last batch the loader stands at the start of the next epoch, whether io.EOF was seen or not.
		s.Epoch, s.Position, s.Ahead = l.epoch+1, 0, 0
	}
	return s
}

// Restore goes to a state: made at any world size, batch size and number of threads. The state's seed and pool replace the
// configuration's. A state of other data, or of another order, is Misuse that names the difference; force goes on all the same.
// It costs O(1); with shuffle="pool" the first batch then waits until the draws before it are simulated (some 20 ns each).
func (l *Loader) Restore(s State, force bool) error {
	if s.Version != 1 && s.Version != 2 {
		return misuse("state version", "1 or 2", fmt.Sprint(s.Version))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed()
	}
	o := *l.order
	n := o.samples()
	if !force {
		if d := s.Fingerprint.difference(o.data.tables[0].print); d != "" {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "the state is of other data: " + d, Hint: "force=True goes on all the same"}
		}
		if s.Order != orderNames[o.mode] {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "the state is of another order", Want: "shuffle as in the state: " + s.Order, Got: "shuffle=" + orderNames[o.mode], Hint: "force=True goes on all the same"}
		}
	}
	if s.Position < 0 || s.Position > n || s.Ahead < 0 || s.Ahead > n {
		return misuse("state position", fmt.Sprintf("0 to %d", n), fmt.Sprint(s.Position))
	}
	for _, b := range s.BadEpisodes {
		if b.Source < 0 || b.Source >= len(l.a.sources) || b.Episode < 0 || b.Episode >= l.a.sources[b.Source].ds.Info().Episodes {
			return misuse("state bad_episodes", "episodes of the dataset", fmt.Sprint(b.Episode))
		}
	}
	if o.mode == Pool && s.Order == "pool" {
		p := s.PoolParams
		if p.PoolSamples < 0 || p.PoolEpisodes < 0 || p.PoolShards < 1 || p.PoolShards > maxShards {
			return misuse("state pool", fmt.Sprintf("pool_samples and pool_episodes not below 0, pool_shards 1 to %d", maxShards), fmt.Sprintf("%+v", p))
		}
		o.pools = []PoolParams{p}
	}
	o.seed = s.Seed
	l.stopRun()
	l.order, l.cfg.Seed = &o, s.Seed
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
