package loader

import (
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// readTimestamps is how the timestamps of a stream are read where values go by time: proved to ascend, once.
func (src *source) readTimestamps(ctx context.Context, episode int, stream string) ([]int64, error) {
	cfg := src.cfg.Align
	if cfg == nil {
		cfg = &align.Config{}
	}
	return cfg.Timestamps(ctx, src.ds, episode, stream)
}

// timestampsOf is the stream whose timestamps stand for those of a feature: the first one of its clock, so that they are read and kept once.
func (src *source) timestampsOf(f *robocache.Feature) string {
	if f.Clock == "" {
		return f.Key
	}
	cfg := src.cfg.Align
	for _, g := range src.ds.Info().Features {
		if g.Clock == f.Clock && (cfg == nil || cfg.Clock[g.Key] == cfg.Clock[f.Key] && cfg.Drift[g.Key] == cfg.Drift[f.Key]) {
			return g.Key
		}
	}
	return f.Key
}

// timestamps keeps the timestamps of streams within a budget in bytes: those that were asked for last, in two halves. What the young half has no room
// for makes it the old one, whose own are forgotten.
type timestamps struct {
	info *robocache.Info
	read func(ctx context.Context, episode int, stream string) ([]int64, error)
	half int64

	mu         sync.Mutex
	young, old map[timestampKey][]int64
	bytes      int64 // of the young
}

type timestampKey struct {
	episode int
	stream  string
}

// of gives the timestamps of a stream; they are shared and not to be changed. Two callers may read the same ones at once.
func (s *timestamps) of(ctx context.Context, episode int, stream string) (t []int64, err error) {
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
		if t, err = s.read(ctx, episode, stream); err != nil {
			return nil, robocache.At(err, robocache.Where{"episode": s.info.EpisodeIndex(episode), "stream": stream})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if size := int64(8*len(t)) + 128; s.young == nil || s.bytes+size > s.half {
		s.young, s.old, s.bytes = map[timestampKey][]int64{}, s.young, 0
	}
	if _, have := s.young[k]; !have {
		s.young[k] = t
		s.bytes += int64(8*len(t)) + 128
	}
	return t, nil
}

// checkTime is the opt-in test whether a frame's time in its file is that of its row there. Each place is tested, for episodes may share a frame.
func checkTime(ctx context.Context, p *part, c *column, f frames.File, k, ordinal int) error {
	src := p.src
	row := p.rows[c.window][k]
	start, ok, err := src.starts.VideoStart(ctx, row.Episode, src.ownKey(c.key))
	if err != nil || !ok {
		return err
	}
	own, err := src.timestamps.of(ctx, row.Episode, "")
	if err != nil || row.Index >= len(own) {
		return err
	}
	return src.compare(c, row, f.TimeNS(ordinal), start+own[row.Index])
}

func (src *dataSource) compare(c *column, r robocache.Row, frame, row int64) error {
	limit := int64(min(*src.tolerance, 4e9) * 1e9) // more does not fit
	if d := frame - row; d > limit || -d > limit {
		return robocache.Malformed("loader", src.where(c, r), "the frame's time is further from the row's than tolerance_s").
			Expected(fmt.Sprintf("at most %d ns", limit), fmt.Sprintf("%d ns", d)).
			WithHint("the frame is found by its number and is the right one; leave tolerance_s out unless such timestamps must be refused")
	}
	return nil
}

// checkTimestamps compares the recorded timestamps of frames and rows, where the dataset does not say where its episodes lie in the files.
func (src *dataSource) checkTimestamps(ctx context.Context, p *part, c *column, rows []robocache.Row) {
	if c.time != nil || src.timebase.key != "" || src.tolerance == nil || src.starts != nil {
		return // a grid has no row of its own to compare with
	}
	check := func(r robocache.Row) error {
		frame, err := src.timestamps.of(ctx, r.Episode, c.key)
		if err != nil {
			return err
		}
		own, err := src.timestamps.of(ctx, r.Episode, "")
		if err != nil {
			return err
		}
		if r.Index >= len(frame) || r.Index >= len(own) {
			return robocache.Malformed("loader", src.where(c, r), "no timestamp").
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
