package loader

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/video"
)

// assembly is a batch under construction, as its columns see it.
type assembly struct {
	seq    int64 // of the batch in its run
	epoch  int64
	epochs []int64 // of each sample, its source's own; none of a Map
	batch  *Batch
	bytes  int64              // of its tensors
	device video.DeviceMemory // what it has to do for the batch is over when the batch is done; nil: none
	parts  []part             // what each source gives, those without samples left out
	left   atomic.Int64       // frames and columns that are still to come
	done   chan struct{}
	onDone func()

	mu  sync.Mutex
	err error
	bad map[badKey]error
}

// badKey names an episode that failed.
type badKey struct{ source, episode int }

// finish counts parts of a unit that are there, or will never be.
func (u *assembly) finish(parts int64) {
	if u.left.Add(-parts) == 0 {
		if u.device != nil {
			if err := u.device.Wait(); err != nil {
				u.fail(err)
			}
		}
		end := u.onDone
		close(u.done)
		if end != nil {
			end()
		}
	}
}

// fail notes an error of a unit: the first is kept, and an end of the context gives way to any other.
func (u *assembly) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

// blame notes that an episode is bad, where bad episodes may be skipped; any other error ends the batch.
func (p *part) blame(episode int, err error) {
	u := p.u
	err = p.src.withPlace(err)
	if !p.src.skipBad || !robocache.Bad(err) {
		u.fail(err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bad == nil {
		u.bad = map[badKey]error{}
	}
	if k := (badKey{p.src.index, episode}); u.bad[k] == nil {
		u.bad[k] = err
	}
}

// episodeError says which episode an error is of, by its position.
type episodeError struct {
	episode int
	err     error
}

func (e *episodeError) Error() string { return e.err.Error() }
func (e *episodeError) Unwrap() error { return e.err }

// failAt fails the batch, and blames the episode where the error knows it.
func (p *part) failAt(err error) {
	var e *episodeError
	if errors.As(err, &e) {
		p.blame(e.episode, e.err)
		return
	}
	p.u.fail(p.src.withPlace(err))
}

// isolate finds which episodes of some rows fail, by trying each alone. The batch fails either way; with skip we must know whom to skip.
func (p *part) isolate(rows []robocache.Row, first error, try func(sub []robocache.Row) error) {
	if !p.src.skipBad {
		p.u.fail(p.src.withPlace(first))
		return
	}
	byEpisode := map[int][]robocache.Row{}
	for _, r := range rows {
		byEpisode[r.Episode] = append(byEpisode[r.Episode], r)
	}
	found := false
	for e, sub := range byEpisode {
		if err := try(sub); err != nil {
			found = true
			p.blame(e, robocache.At(err, robocache.Where{"episode": p.src.ds.Info().EpisodeIndex(e)}))
		}
	}
	if !found {
		p.u.fail(p.src.withPlace(first))
	}
}

// reader is what columns need to read rows: scratch of one goroutine, used again.
type reader struct {
	*frames.Worker
	rows  []robocache.Row
	refs  []robocache.FrameRef
	index []int32
	plan  planRoom
}
