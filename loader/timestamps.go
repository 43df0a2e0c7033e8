package loader

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
)

// timestamps keeps the time timestamps of streams, least recently used first out, within a budget in bytes.
type timestamps struct {
	read   func(ctx context.Context, episode int, stream string) ([]int64, error)
	budget int64

	mu     sync.Mutex
	have   map[timestampKey]*list.Element
	recent *list.List
	bytes  int64
}

type timestampKey struct {
	episode int
	stream  string
}

type timestampEntry struct {
	key   timestampKey
	times []int64
}

func newTimestamps(read func(ctx context.Context, episode int, stream string) ([]int64, error), budget int64) *timestamps {
	return &timestamps{read: read, budget: budget, have: map[timestampKey]*list.Element{}, recent: list.New()}
}

// of gives the timestamps of a stream; they are shared and not to be changed. Two callers may read the same ones at once.
func (s *timestamps) of(ctx context.Context, episode int, stream string) ([]int64, error) {
	k := timestampKey{episode, stream}
	s.mu.Lock()
	if e := s.have[k]; e != nil {
		s.recent.MoveToFront(e)
		t := e.Value.(*timestampEntry).times
		s.mu.Unlock()
		return t, nil
	}
	s.mu.Unlock()
	t, err := s.read(ctx, episode, stream)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"episode": episode, "stream": stream})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have[k] == nil {
		s.have[k] = s.recent.PushFront(&timestampEntry{k, t})
		s.bytes += size(t)
	}
	for s.bytes > s.budget && s.recent.Len() > 1 {
		last := s.recent.Back()
		old := s.recent.Remove(last).(*timestampEntry)
		delete(s.have, old.key)
		s.bytes -= size(old.times)
	}
	return t, nil
}

func size(t []int64) int64 { return int64(8*len(t)) + 128 }

// timed says whether frames' times in their files are to be checked against those of their rows there: the reference's opt-in test.
func (src *source) timed(c *column) bool {
	return src.cfg.Tolerance != nil && src.starts != nil && c.aligns == nil
}

// checkTime is that test of one place. Each place is tested, for episodes may share a frame.
func (w *worker) checkTime(p *part, c *column, f frames.File, k, ordinal int) error {
	src := p.src
	row := p.rows[c.rows][k]
	start, ok, err := src.starts.VideoStart(w.Ctx(), row.Episode, src.ownKey(c.key))
	if err != nil || !ok {
		return err
	}
	own, err := src.timestamps.of(w.Ctx(), row.Episode, "")
	if err != nil || row.Index >= len(own) {
		return err
	}
	return src.compare(c, row, f.TimeNS(ordinal), start+own[row.Index])
}

func (src *source) compare(c *column, r robocache.Row, pic, row int64) error {
	limit := int64(min(*src.cfg.Tolerance, 4e9) * 1e9) // more does not fit
	if d := pic - row; d > limit || -d > limit {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: src.where(c, r), Msg: "the frame's time is further from the row's than tolerance_s",
			Want: fmt.Sprintf("at most %d ns", limit), Got: fmt.Sprintf("%d ns", d), Hint: "the frame is found by its number and is the right one; leave tolerance_s out unless such timestamps must be refused"}
	}
	return nil
}

// checkStamps compares the recorded timestamps of frames and rows, where the dataset does not say where its episodes lie in the files.
func (src *source) checkTimestamps(ctx context.Context, p *part, c *column, rows []robocache.Row) {
	if c.aligns != nil || src.line.key != "" {
		return // a timeline has no row of its own to compare with
	}
	for i, r := range rows {
		if i > 0 && r == rows[i-1] {
			continue
		}
		imgs, err := src.timestamps.of(ctx, r.Episode, c.key)
		if err != nil {
			p.blame(r.Episode, err)
			return
		}
		own, err := src.timestamps.of(ctx, r.Episode, "")
		if err != nil {
			p.blame(r.Episode, err)
			return
		}
		if r.Index >= len(imgs) || r.Index >= len(own) {
			p.blame(r.Episode, &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: src.where(c, r), Msg: "no timestamp", Want: fmt.Sprint(len(own)), Got: fmt.Sprint(len(imgs))})
			return
		}
		if err := src.compare(c, r, imgs[r.Index], own[r.Index]); err != nil {
			p.blame(r.Episode, err)
			return
		}
	}
}
