package loader

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
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

// checkTime is that test of one place.
func (w *worker) checkTime(p *part, c *column, r reel, x *want) error {
	src := p.src
	row := p.rows[c.rows][x.slot]
	start, ok, err := src.starts.VideoStart(w.ctx(), row.Episode, src.ownKey(c.key))
	if err != nil || !ok {
		return err
	}
	own, err := src.timestamps.of(w.ctx(), row.Episode, "")
	if err != nil {
		return err
	}
	if row.Index >= len(own) {
		return nil
	}
	return src.compare(c, row, r.timeNS(x.ordinal), start+own[row.Index])
}

// timely takes out of wants those whose frames have times that are refused: before they are looked for among kept ones, of which nobody
// knows whether they were checked, or for which row.
func (w *worker) timely(parts []*part, col int, wants []want, paths []string) []want {
	src := parts[0].src
	c := &src.layout.columns[col]
	left := wants[:0]
	for lo := 0; lo < len(wants); {
		hi := lo
		for hi < len(wants) && wants[hi].path == wants[lo].path {
			hi++
		}
		own := wants[lo:hi]
		path := paths[own[0].path]
		if r, err := src.reels.open(w.ctx(), path); err == nil { // else who decodes it says so
			own = w.timelyOf(r, parts, c, own, path)
			r.release()
		}
		left = append(left, own...)
		lo = hi
	}
	return left
}

// timelyOf does so for one file. Each place is tested, for episodes may share a frame.
func (w *worker) timelyOf(r reel, parts []*part, c *column, wants []want, path string) []want {
	left := wants[:0]
	for _, x := range wants {
		p := parts[x.part]
		if err := w.checkTime(p, c, r, &x); err != nil {
			w.loseAt(p, c, int(x.slot), path, x.ordinal, err)
			continue
		}
		left = append(left, x)
	}
	return left
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
