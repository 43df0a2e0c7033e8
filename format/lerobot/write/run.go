package write

import (
	"context"
	"errors"
	"math"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
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
	t.findings = append(
		t.findings,
		robocache.Finding{Severity: s, Code: code, Where: where, Message: msg},
	)
}

// size is what an episode takes in memory.
func (t *turn) size() int64 {
	if t.ep == nil {
		return 0
	}
	return t.ep.Size()
}

// Episodes that share an encoder: as many as keep its start, a tenth of a second, below a few
// percent of its work.
const (
	groupRows   = 4096
	groupPixels = 256 << 20
	// rows, unless the option group_rows says another number: small datasets are made in few groups
	groupLeast  = 1024
	groupStills = 256 // rows, where images stay images: they lie in memory with their episode
)

// groups cuts the episodes into runs that are read and encoded together. They follow from the
// dataset alone, not from the machine (C9).
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
			c.countFrames(t)
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

// countFrames lets the encoders of an episode's cameras advance the count of rows.
func (c *conversion) countFrames(t *turn) {
	if t.ep == nil {
		return
	}
	encoded := 0
	for _, v := range t.ep.Videos {
		if v.Library == nil {
			encoded++
		}
	}
	share := 1 / float64(max(1, encoded*t.ep.Length))
	t.ep.frameEncoded = func() { c.rows.Advance(t.e, share) }
}

// aheadBytes bounds what lies in memory of episodes that were read ahead.
const aheadBytes = 1 << 30

// estimate is what a group's rows declare that they take in memory: numbers twice (as read, and as
// the column that is made of them), images that stay images as raw pixels, texts not at all.
func (c *conversion) estimate(group []int) (n int64) {
	var row int64 = 8 // the bookkeeping columns, packed
	for i := range c.features {
		switch f := &c.features[i]; f.Kind {
		case robocache.KindNumeric:
			row += 2 * int64(f.Elements()) * int64(f.DType.Size())
		case robocache.KindImage:
			row += int64(
				f.Width,
			) * int64(
				f.Height,
			) * int64(
				max(1, f.Channels),
			) * int64(
				f.DType.Size(),
			)
		}
	}
	for _, i := range group {
		n += int64(c.src.Len(c.opt.Episodes[i])) * row
	}
	return n
}

// ahead gives the episodes in order, read and encoded while those before them are written: Threads
// groups at once, one more waiting. Where groups are large they are fewer: those in memory, and
// those under way at the size that their rows declare (corrected by those that are finished), stay
// within aheadBytes, but for the one whose turn is next.
func (c *conversion) ahead(ctx context.Context, w *Writer, take func(*turn) error) error {
	ctx, stop := context.WithCancel(ctx)
	var admit sync.WaitGroup
	var work errgroup.Group
	groups := c.groups()
	r := newLimiter(c.opt.Threads+1, aheadBytes)
	// before the caller stops the writer
	defer func() { stop(); r.close(); admit.Wait(); _ = work.Wait() }()
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
func (c *conversion) write(ctx context.Context, w *Writer) error {
	// skip leaves an episode out where its error lets it; else the work ends.
	skip := func(t *turn, err error, place string, bearable bool) error {
		if ctx.Err() != nil || !c.opt.SkipBad || !bearable || !robocache.Bad(err) {
			return robocache.At(err, robocache.Where{place: c.src.Info().EpisodeIndex(t.e)})
		}
		c.find(
			robocache.SeverityError,
			"episode-skipped",
			robocache.Where{"episode": t.m.Old},
			err.Error(),
		)
		t.m.New, t.m.FromIndex = -1, 0
		return nil
	}
	c.rows = robocache.NewRowCounter(c.src, c.opt.Episodes, c.opt.Progress)
	return c.ahead(ctx, w, func(t *turn) error {
		c.report.Findings = append(c.report.Findings, t.findings...)
		if t.err != nil {
			if err := skip(t, t.err, "episode", true); err != nil {
				return err
			}
		}
		if t.m.New >= 0 {
			t.m.New, t.m.FromIndex = w.written, w.rows
			err := t.made
			if err == nil {
				err = w.AddEpisode(ctx, *t.ep)
			}
			if err != nil {
				// Pixels that cannot be decoded show only here. What the machine lacks is no fault
				// of the episode.
				if err := skip(
					t,
					err,
					"source episode",
					!errors.Is(err, robocache.ErrUnsupported) && w.failed == nil,
				); err != nil {
					return err
				}
			}
			c.count(t.m)
		}
		c.report.Episodes = append(c.report.Episodes, t.m)
		c.rows.Finish(t.e)
		return nil
	})
}

// limiter lets groups in, while there is room for them: so many at once, and so many bytes. A group
// says how large it will be; how much larger or smaller those were that are finished corrects what
// the others say, and until one is finished their own estimate stands.
type limiter struct {
	mu       sync.Mutex
	free     *sync.Cond
	atOnce   int
	limit    int64
	inside   int     // groups that entered and did not leave
	held     int64   // bytes of those that are finished
	underway int64   // estimates of those that are not
	ratio    float64 // the largest of size to estimate, of those that are finished; 0: none is
	closed   bool
}

func newLimiter(atOnce int, limit int64) *limiter {
	r := &limiter{atOnce: atOnce, limit: limit}
	r.free = sync.NewCond(&r.mu)
	return r
}

// enter waits for room for a group that says its size; false where the limiter was closed. One
// alone always has room.
func (r *limiter) enter(estimate int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && r.full(estimate) {
		r.free.Wait()
	}
	r.inside, r.underway = r.inside+1, r.underway+estimate
	return !r.closed
}

// full says that a group must wait.
func (r *limiter) full(estimate int64) bool {
	return r.inside > 0 && (r.inside >= r.atOnce || r.expect(r.underway+estimate) > r.limit)
}

// expect is what will be held once groups of some estimate are finished.
func (r *limiter) expect(estimate int64) int64 {
	if r.ratio > 0 {
		estimate = int64(math.Ceil(min(float64(estimate)*r.ratio, 1<<60)))
	}
	return r.held + estimate
}

// finished tells how large a group is, and what was estimated.
func (r *limiter) finished(estimate, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway -= estimate
	r.held, r.ratio = r.held+size, max(r.ratio, float64(size)/float64(max(estimate, 1)))
	r.free.Broadcast()
}

// leave takes a group away.
func (r *limiter) leave(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside, r.held = r.inside-1, r.held-size
	r.free.Broadcast()
}

func (r *limiter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.free.Broadcast()
}
