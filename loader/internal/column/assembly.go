package column

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/video"
)

// BatchBuild is a batch under construction, as its columns see it.
type BatchBuild struct {
	Seq         int64 // of the batch in its run
	Epoch       int64
	Epochs      []int64 // of each sample, its source's own; none of a Map
	Batch       *layout.Batch
	TensorBytes int64              // of its tensors
	Device      video.DeviceMemory // what it has to do for the batch is over when the batch is done; nil: none
	Parts       []Part             // what each source gives, those without samples left out
	Pending     atomic.Int64       // frames and columns that are still to come
	Done        chan struct{}
	OnDone      func()

	mu          sync.Mutex
	Err         error
	BadEpisodes map[EpisodeKey]error
}

// EpisodeKey names an episode that failed.
type EpisodeKey struct{ Source, Episode int }

// Complete counts parts of a unit that are there, or will never be.
func (u *BatchBuild) Complete(parts int64) {
	if u.Pending.Add(-parts) == 0 {
		if u.Device != nil {
			if err := u.Device.Wait(); err != nil {
				u.Fail(err)
			}
		}
		end := u.OnDone
		close(u.Done)
		if end != nil {
			end()
		}
	}
}

// Fail notes an error of a unit: the first is kept, and an end of the context gives way to any other.
func (u *BatchBuild) Fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.Err == nil {
		u.Err = err
	}
}

// blame notes that an episode is bad, where bad episodes may be skipped; any other error ends the batch.
func (p *Part) blame(episode int, err error) {
	u := p.Build
	err = p.Source.WithPlace(err)
	if !p.Source.SkipBad || !robocache.Bad(err) {
		u.Fail(err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.BadEpisodes == nil {
		u.BadEpisodes = map[EpisodeKey]error{}
	}
	if k := (EpisodeKey{p.Source.Index, episode}); u.BadEpisodes[k] == nil {
		u.BadEpisodes[k] = err
	}
}

// episodeError says which episode an error is of, by its position.
type episodeError struct {
	episode int
	err     error
}

func (e *episodeError) Error() string { return e.err.Error() }

func (e *episodeError) Unwrap() error { return e.err }

// FailAt fails the batch, and blames the episode where the error knows it.
func (p *Part) FailAt(err error) {
	var e *episodeError
	if errors.As(err, &e) {
		p.blame(e.episode, e.err)
		return
	}
	p.Build.Fail(p.Source.WithPlace(err))
}

// isolate finds which episodes of some rows fail, by trying each alone. The batch fails either way; with skip we must know whom to skip.
func (p *Part) isolate(rows []robocache.Row, first error, try func(sub []robocache.Row) error) {
	if !p.Source.SkipBad {
		p.Build.Fail(p.Source.WithPlace(first))
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
			p.blame(e, robocache.At(err, robocache.Where{"episode": p.Source.Dataset.Info().EpisodeIndex(e)}))
		}
	}
	if !found {
		p.Build.Fail(p.Source.WithPlace(first))
	}
}

// Reader is what columns need to read rows: scratch of one goroutine, used again.
type Reader struct {
	*frames.Worker
	rows  []robocache.Row
	refs  []robocache.FrameRef
	index []int32
	plan  planRoom
}
