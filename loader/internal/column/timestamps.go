package column

import (
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// Timestamps caches the timestamps of streams within a byte budget. It has two generations of half
// the budget each: when the recent one is full, it replaces the older one, whose entries are
// dropped. Safe for concurrent use.
type Timestamps struct {
	Info       *robocache.Info
	Read       func(ctx context.Context, episode int, stream string) ([]int64, error)
	HalfBudget int64
	IsChanging bool // the timestamps change between calls, so that nothing is cached

	mu            sync.Mutex
	recent, older map[timestampKey][]int64
	recentBytes   int64 // bytes of recent
}

type timestampKey struct {
	episode int
	stream  string
}

// OfStream returns the timestamps of a stream. The result is shared and must not be changed.
// Concurrent callers may read the same timestamps twice.
func (s *Timestamps) OfStream(
	ctx context.Context,
	episode int,
	stream string,
) (t []int64, err error) {
	if s.IsChanging {
		return s.Read(ctx, episode, stream)
	}
	k := timestampKey{episode, stream}
	s.mu.Lock()
	t, isRecent := s.recent[k]
	isOlder := false
	if !isRecent {
		t, isOlder = s.older[k]
	}
	s.mu.Unlock()
	if isRecent {
		return t, nil
	}
	if !isOlder {
		if t, err = s.Read(ctx, episode, stream); err != nil {
			return nil, robocache.At(
				err,
				robocache.Where{"episode": s.Info.EpisodeIndex(episode), "stream": stream},
			)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	const entryOverhead = 128 // bytes of the map entry, about
	size := int64(8*len(t)) + entryOverhead
	if s.recent == nil || s.recentBytes+size > s.HalfBudget {
		s.recent, s.older, s.recentBytes = map[timestampKey][]int64{}, s.recent, 0
	}
	if _, isStored := s.recent[k]; !isStored {
		s.recent[k] = t
		s.recentBytes += size
	}
	return t, nil
}

// checkTime compares the time of frame ordinal of f with the time of the row in slot k. It runs for
// each slot, because rows of several episodes may share a frame.
func checkTime(ctx context.Context, p *Part, c *Column, f frames.File, k, ordinal int) error {
	src := p.Source
	row := p.rows[c.Window][k]
	start, ok, err := src.VideoStart(ctx, row.Episode, c.StreamKey())
	if err != nil || !ok {
		return err
	}
	rowTimes, err := src.Timestamps.OfStream(ctx, row.Episode, "")
	if err != nil || row.Index >= len(rowTimes) {
		return err
	}
	return src.compareTimes(c, row, f.TimeNS(ordinal), start+rowTimes[row.Index])
}

// compareTimes returns an error if the times of a frame and its row differ by more than
// tolerance_s.
func (src *DataSource) compareTimes(c *Column, r robocache.Row, frame, row int64) error {
	limit := int64(min(*src.Tolerance, 4e9) * 1e9) // in ns; more than 4e9 s would overflow
	if d := frame - row; d > limit || -d > limit {
		return robocache.Malformed("loader", src.Where(c, r), "the frame's time is further from "+
			"the row's than tolerance_s").
			Expected(fmt.Sprintf("at most %d ns", limit), fmt.Sprintf("%d ns", d)).
			WithHint("omit tolerance_s: frames are found by number, so this frame is the right one")
	}
	return nil
}

// checkTimestamps compares the recorded timestamps of frames and rows. It applies if the dataset
// does not record where episodes begin in video files.
func (src *DataSource) checkTimestamps(
	ctx context.Context,
	p *Part,
	c *Column,
	rows []robocache.Row,
) {
	if c.Time != nil || src.Timebase.Key != "" || src.Tolerance == nil || src.VideoStart != nil {
		return // a grid has no recorded row to compare with
	}
	check := func(r robocache.Row) error {
		frame, err := src.Timestamps.OfStream(ctx, r.Episode, c.StreamKey())
		if err != nil {
			return err
		}
		row, err := src.Timestamps.OfStream(ctx, r.Episode, "")
		if err != nil {
			return err
		}
		if r.Index >= len(frame) || r.Index >= len(row) {
			return robocache.Malformed("loader", src.Where(c, r), "no timestamp").
				Expected(fmt.Sprint(len(row)), fmt.Sprint(len(frame)))
		}
		return src.compareTimes(c, r, frame[r.Index], row[r.Index])
	}
	for i, r := range rows {
		if i > 0 && r == rows[i-1] {
			continue
		}
		if err := check(r); err != nil {
			p.recordBadEpisode(r.Episode, err)
			return
		}
	}
}
