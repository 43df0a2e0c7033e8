package column

import (
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// Timestamps keeps the timestamps of streams within a budget in bytes: those that were asked for last, in two halves. What the young half has no room
// for makes it the old one, whose own are forgotten.
type Timestamps struct {
	Info       *robocache.Info
	Read       func(ctx context.Context, episode int, stream string) ([]int64, error)
	HalfBudget int64

	mu         sync.Mutex
	young, old map[timestampKey][]int64
	bytes      int64 // of the young
}

type timestampKey struct {
	episode int
	stream  string
}

// OfStream gives the timestamps of a stream; they are shared and not to be changed. Two callers may read the same ones at once.
func (s *Timestamps) OfStream(ctx context.Context, episode int, stream string) (t []int64, err error) {
	k := timestampKey{episode, stream}
	s.mu.Lock()
	t, young := s.young[k]
	old := false
	if !young {
		t, old = s.old[k]
	}
	s.mu.Unlock()
	if young {
		return t, nil
	}
	if !old {
		if t, err = s.Read(ctx, episode, stream); err != nil {
			return nil, robocache.At(err, robocache.Where{"episode": s.Info.EpisodeIndex(episode), "stream": stream})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if size := int64(8*len(t)) + 128; s.young == nil || s.bytes+size > s.HalfBudget {
		s.young, s.old, s.bytes = map[timestampKey][]int64{}, s.young, 0
	}
	if _, have := s.young[k]; !have {
		s.young[k] = t
		s.bytes += int64(8*len(t)) + 128
	}
	return t, nil
}

// checkTime is the opt-in test whether a frame's time in its file is that of its row there. Each place is tested, for episodes may share a frame.
func checkTime(ctx context.Context, p *Part, c *Column, f frames.File, k, ordinal int) error {
	src := p.Source
	row := p.rows[c.Window][k]
	start, ok, err := src.VideoStart(ctx, row.Episode, c.Key)
	if err != nil || !ok {
		return err
	}
	own, err := src.Timestamps.OfStream(ctx, row.Episode, "")
	if err != nil || row.Index >= len(own) {
		return err
	}
	return src.compare(c, row, f.TimeNS(ordinal), start+own[row.Index])
}

func (src *DataSource) compare(c *Column, r robocache.Row, frame, row int64) error {
	limit := int64(min(*src.Tolerance, 4e9) * 1e9) // more does not fit
	if d := frame - row; d > limit || -d > limit {
		return robocache.Malformed("loader", src.Where(c, r), "the frame's time is further from the row's than tolerance_s").
			Expected(fmt.Sprintf("at most %d ns", limit), fmt.Sprintf("%d ns", d)).
			WithHint("the frame is found by its number and is the right one; leave tolerance_s out unless such timestamps must be refused")
	}
	return nil
}

// checkTimestamps compares the recorded timestamps of frames and rows, where the dataset does not say where its episodes lie in the files.
func (src *DataSource) checkTimestamps(ctx context.Context, p *Part, c *Column, rows []robocache.Row) {
	if c.Time != nil || src.Timebase.Key != "" || src.Tolerance == nil || src.VideoStart != nil {
		return // a grid has no row of its own to compare with
	}
	check := func(r robocache.Row) error {
		frame, err := src.Timestamps.OfStream(ctx, r.Episode, c.Key)
		if err != nil {
			return err
		}
		own, err := src.Timestamps.OfStream(ctx, r.Episode, "")
		if err != nil {
			return err
		}
		if r.Index >= len(frame) || r.Index >= len(own) {
			return robocache.Malformed("loader", src.Where(c, r), "no timestamp").
				Expected(fmt.Sprint(len(own)), fmt.Sprint(len(frame)))
		}
		return src.compare(c, r, frame[r.Index], own[r.Index])
	}
	for i, r := range rows {
		if i > 0 && r == rows[i-1] {
			continue
		}
		if err := check(r); err != nil {
			p.blame(r.Episode, err)
			return
		}
	}
}
