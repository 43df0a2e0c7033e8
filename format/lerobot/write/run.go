package write

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// partsName is the folder of encoded episodes in the destination of a run that can be resumed.
const partsName = ".robocache-encoded"

// turn is one episode on its way: read and encoded ahead by any goroutine, written in its turn.
type turn struct {
	at, e    int
	ep       *EpisodeData
	m        EpisodeMap
	findings []robocache.Finding
	err      error // the episode cannot be read
	made     error // its images cannot be decoded or encoded
}

func (t *turn) find(s robocache.Severity, code string, where robocache.Where, msg string) {
	t.findings = append(t.findings, robocache.Finding{Severity: s, Code: code, Where: where, Message: msg})
}

// size is what an episode takes in memory.
func (t *turn) size() int64 {
	if t.ep == nil {
		return 0
	}
	return t.ep.Size()
}

// Episodes that share an encoder: as many as keep its start, a tenth of a second, below a few percent of its work.
const (
	groupRows   = 4096
	groupPixels = 256 << 20
	groupLeast  = 1024 // rows, unless the option group_rows says another number: small datasets are made in few groups
	groupStills = 256  // rows, where images stay images: they lie in memory with their episode
)

// groups cuts the episodes into runs that are read and encoded together. They follow from the dataset alone, not from the machine (C9).
func (c *conversion) groups() [][]int {
	pixels, encodes, stills, total := 0, false, false, 0
	for i := range c.features {
		f := &c.features[i]
		switch {
		case f.still, f.Kind == robocache.KindVideo:
			encodes, pixels = true, max(pixels, f.Width*f.Height)
		case f.Kind == robocache.KindImage:
			stills = true
		}
	}
	for _, e := range c.opt.Episodes {
		total += c.src.Len(e)
	}
	limit := min(groupRows, max(groupPixels/max(pixels, 1), 1), max(total/8, c.opt.groupRows))
	if stills {
		limit = min(limit, groupStills)
	}
	var out [][]int
	rows := 0
	for i, e := range c.opt.Episodes {
		n := c.src.Len(e)
		if k := len(out); k > 0 && encodes && rows+n <= limit {
			out[k-1], rows = append(out[k-1], i), rows+n
			continue
		}
		out, rows = append(out, []int{i}), n
	}
	return out
}

// prepare reads the episodes of a group and encodes what is to be encoded.
func (c *conversion) prepare(ctx context.Context, w *Writer, group []int) []*turn {
	turns := make([]*turn, len(group))
	var eps []*EpisodeData
	var of []*turn
	for k, i := range group {
		t := &turn{at: i, e: c.opt.Episodes[i]}
		turns[k] = t
		if t.err = ctx.Err(); t.err == nil {
			t.ep, t.err = c.episode(ctx, t)
		}
		if t.err == nil && t.m.New >= 0 {
			eps, of = append(eps, t.ep), append(of, t)
		}
	}
	for k, err := range w.Prepare(ctx, eps, group[0]) {
		of[k].made = err
	}
	return turns
}

// aheadBytes bounds what lies in memory of episodes that were read ahead.
const aheadBytes = 1 << 30

// estimate is what a group's rows declare that they take in memory: numbers twice (as read, and as the column that is made of them), images that stay
// images as raw pixels, texts not at all.
func (c *conversion) estimate(group []int) (n int64) {
	var row int64 = 8 // the bookkeeping columns, packed
	for i := range c.features {
		switch f := &c.features[i]; f.Kind {
		case robocache.KindNumeric:
			row += 2 * int64(f.Elements()) * int64(f.DType.Size())
		case robocache.KindImage:
			row += int64(f.Width) * int64(f.Height) * int64(max(1, f.Channels)) * int64(f.DType.Size())
		}
	}
	for _, i := range group {
		n += int64(c.src.Len(c.opt.Episodes[i])) * row
	}
	return n
}

// ahead gives the episodes in order, read and encoded while those before them are written: Threads groups at once, one more waiting. Where groups are
// large they are fewer: those in memory, and those under way at the size that their rows declare (corrected by those that are finished), stay within aheadBytes,
// but for the one whose turn is next.
func (c *conversion) ahead(ctx context.Context, w *Writer, take func(*turn) error) error {
	ctx, stop := context.WithCancel(ctx)
	var admit sync.WaitGroup
	var work errgroup.Group
	groups := c.groups()
	r := newLimiter(c.opt.Threads+1, aheadBytes)
	defer func() { stop(); r.close(); admit.Wait(); _ = work.Wait() }() // before the caller stops the writer
	places := make([]chan []*turn, len(groups))
	for i := range places {
		places[i] = make(chan []*turn, 1)
	}
	work.SetLimit(c.opt.Threads)
	admit.Go(func() {
		for i := range groups {
			if !r.enter(c.estimate(groups[i])) {
				return
			}
			work.Go(func() error {
				turns := c.prepare(ctx, w, groups[i])
				var size int64
				for _, t := range turns {
					size += t.size()
				}
				r.finished(c.estimate(groups[i]), size)
				places[i] <- turns
				return nil
			})
		}
	})
	for i := range groups {
		var turns []*turn
		select {
		case turns = <-places[i]:
		case <-ctx.Done():
			return ctx.Err()
		}
		var size int64
		for k, t := range turns {
			size += t.size()
			if err := take(t); err != nil {
				return err
			}
			turns[k] = nil
		}
		r.leave(size)
	}
	return nil
}

// write takes the episodes in their turn.
func (c *conversion) write(ctx context.Context, w *Writer) (err error) {
	defer guard.Malformed("convert", &err)
	return c.ahead(ctx, w, func(t *turn) error {
		c.report.Findings = append(c.report.Findings, t.findings...)
		if t.err != nil {
			if ctx.Err() != nil || !c.opt.SkipBad {
				return robocache.At(t.err, robocache.Where{"episode": t.e})
			}
			c.skip(t.e, t.err)
			t.m.New = -1
		}
		if t.m.New >= 0 {
			t.m.New, t.m.FromIndex = w.Episodes(), w.Frames()
			err := t.made
			if err == nil {
				err = w.AddEpisode(ctx, *t.ep)
			}
			if err != nil {
				// Pixels that cannot be decoded show only here. What the machine lacks is no fault of the episode.
				bad := errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrNotFound)
				if ctx.Err() != nil || !c.opt.SkipBad || !bad || w.Failed() != nil {
					return robocache.At(err, robocache.Where{"source episode": t.e})
				}
				c.skip(t.e, err)
				t.m.New, t.m.FromIndex = -1, 0
			}
			c.count(t.m)
		}
		c.report.Episodes = append(c.report.Episodes, t.m)
		if c.opt.Progress != nil {
			c.opt.Progress(t.at+1, len(c.opt.Episodes))
		}
		return nil
	})
}

func (c *conversion) skip(episode int, err error) {
	c.find(robocache.SeverityError, "episode-skipped", robocache.Where{"episode": episode}, err.Error())
}
