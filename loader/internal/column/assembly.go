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

// BatchBuild is a batch under construction, as its columns use it.
type BatchBuild struct {
	Seq         int64 // number of the batch in its run
	Epoch       int64
	Epochs      []int64 // epoch of each sample in its source; empty for a Map
	Batch       *layout.Batch
	TensorBytes int64 // bytes of its tensors without ragged ones
	// device whose work must be finished before the batch is done; nil: none
	Device  video.DeviceMemory
	Parts   []Part        // one per source that has samples in the batch
	Pending atomic.Int64  // frames and columns that are not finished
	Done    chan struct{} // closed when Pending is 0
	OnDone  func()        // called after Done is closed; may be nil

	mu          sync.Mutex
	Err         error
	BadEpisodes map[EpisodeKey]error
}

// EpisodeKey identifies a bad episode by source and position in the dataset.
type EpisodeKey struct{ Source, Episode int }

// Complete marks parts of the batch as finished, successful or failed. The last call closes Done.
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

// Fail sets the error of the batch. The first error is kept.
func (u *BatchBuild) Fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.Err == nil {
		u.Err = err
	}
}

// recordBadEpisode records that an episode is bad, if bad episodes may be skipped and err is an
// error of the data. Any other error fails the batch.
func (p *Part) recordBadEpisode(episode int, err error) {
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

// episodeError is an error of one episode, given by its position in the dataset.
type episodeError struct {
	episode int
	err     error
}

func (e *episodeError) Error() string { return e.err.Error() }

func (e *episodeError) Unwrap() error { return e.err }

// FailAt records the episode as bad if err is an episodeError. Otherwise it fails the batch.
func (p *Part) FailAt(err error) {
	var e *episodeError
	if errors.As(err, &e) {
		p.recordBadEpisode(e.episode, e.err)
		return
	}
	p.Build.Fail(p.Source.WithPlace(err))
}

// failEpisodes reads the rows of each episode alone to find those that fail, and records them as
// bad. If bad episodes are not skipped or none fails alone, it fails the batch with first.
func (p *Part) failEpisodes(
	rows []robocache.Row, first error, try func(sub []robocache.Row) error,
) {
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
			where := robocache.Where{"episode": p.Source.Dataset.Info().EpisodeIndex(e)}
			p.recordBadEpisode(e, robocache.At(err, where))
		}
	}
	if !found {
		p.Build.Fail(p.Source.WithPlace(first))
	}
}

// Reader holds the scratch memory with which one goroutine reads rows. It is not safe for
// concurrent use.
type Reader struct {
	*frames.Worker
	rowScratch   []robocache.Row
	refScratch   []robocache.FrameRef
	orderScratch []int32
	planBuffers  planScratch
	inputs       []vectorInput
}
