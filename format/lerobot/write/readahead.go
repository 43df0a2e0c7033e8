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

// turn is one episode of the conversion. Any goroutine may read and encode it ahead. Episodes are
// written in order.
type turn struct {
	position, episode int
	data              *EpisodeData
	mapping           EpisodeMap
	findings          []robocache.Finding
	readError         error // the episode cannot be read
	encodeError       error // its images cannot be decoded or encoded
}

// addFinding appends a finding to those of the episode.
func (t *turn) addFinding(s robocache.Severity, code string, where robocache.Where, msg string) {
	t.findings = append(
		t.findings,
		robocache.Finding{Severity: s, Code: code, Where: where, Message: msg},
	)
}

// size returns the bytes that the episode occupies in memory.
func (t *turn) size() int64 {
	if t.data == nil {
		return 0
	}
	return t.data.Size()
}

// Limits of the episodes that share an encoder. They keep the start of an encoder, a tenth of a
// second, below a few percent of its work.
const (
	groupRows   = 4096
	groupPixels = 256 << 20
	// Minimum number of rows, unless the option group_rows states another. Small datasets are
	// encoded in few groups.
	minGroupRows = 1024
	// Maximum number of rows if there are still images, which are in memory with their episode.
	maxGroupRowsWithStills = 256
)

// groupEpisodes divides the episodes into groups that are read and encoded together. The groups
// depend on the dataset only, not on the machine (write.C9).
func (c *conversion) groupEpisodes() [][]int {
	pixels, hasVideo, hasStills, total := 0, false, false, 0
	for i := range c.features {
		f := &c.features[i]
		switch {
		case f.fromStills, f.Kind == robocache.KindVideo:
			hasVideo = true
			pixels = max(pixels, f.Width*f.Height)
		case f.Kind == robocache.KindImage:
			hasStills = true
		}
	}
	for _, e := range c.options.Episodes {
		total += c.src.Len(e)
	}
	rowsByPixels := max(groupPixels/max(pixels, 1), 1)
	rowsByShare := max(total/8, c.options.groupRows) // divides a small dataset into few groups
	limit := min(groupRows, rowsByPixels, rowsByShare)
	if hasStills {
		limit = min(limit, maxGroupRowsWithStills)
	}
	var out [][]int
	rows := 0
	for i, e := range c.options.Episodes {
		n := c.src.Len(e)
		if k := len(out); k > 0 && hasVideo && rows+n <= limit {
			out[k-1] = append(out[k-1], i)
			rows += n
			continue
		}
		out = append(out, []int{i})
		rows = n
	}
	return out
}

// prepareGroup reads the episodes of a group and encodes their frames. group holds positions in
// options.Episodes. Errors are stored in the turns.
func (c *conversion) prepareGroup(ctx context.Context, w *Writer, group []int) []*turn {
	turns := make([]*turn, len(group))
	var eps []*EpisodeData
	var turnsOfEpisodes []*turn
	for k, i := range group {
		t := &turn{position: i, episode: c.options.Episodes[i]}
		turns[k] = t
		if t.readError = ctx.Err(); t.readError == nil {
			t.data, t.readError = c.readEpisode(ctx, t)
			c.trackEncodingProgress(t)
		}
		if t.readError == nil && t.mapping.New >= 0 {
			eps = append(eps, t.data)
			turnsOfEpisodes = append(turnsOfEpisodes, t)
		}
	}
	for k, err := range w.Prepare(ctx, eps, group[0]) {
		turnsOfEpisodes[k].encodeError = err
	}
	return turns
}

// trackEncodingProgress makes the encoders of an episode's cameras advance the progress count of
// rows.
func (c *conversion) trackEncodingProgress(t *turn) {
	if t.data == nil {
		return
	}
	encoded := 0
	for _, v := range t.data.Videos {
		if v.Library == nil {
			encoded++
		}
	}
	share := 1 / float64(max(1, encoded*t.data.Length))
	t.data.frameEncoded = func() { c.rows.Advance(t.episode, share) }
}

// aheadBytes bounds the memory of episodes that were read ahead.
const aheadBytes = 1 << 30

// estimateBytes returns the bytes that a group occupies in memory according to its declared rows.
// Numbers count twice (as read, and as the encoded column). Images that stay images count as raw
// pixels, and texts do not count.
func (c *conversion) estimateBytes(group []int) (n int64) {
	var row int64 = 8 // the encoded bookkeeping columns
	for i := range c.features {
		f := &c.features[i]
		switch f.Kind {
		case robocache.KindNumeric:
			row += 2 * int64(f.Elements()) * int64(f.DType.Size())
		case robocache.KindImage:
			pixelBytes := int64(max(1, f.Channels)) * int64(f.DType.Size())
			row += int64(f.Width) * int64(f.Height) * pixelBytes
		}
	}
	for _, i := range group {
		n += int64(c.src.Len(c.options.Episodes[i])) * row
	}
	return n
}

// readAhead calls consume for each episode in order, while later episodes are read and encoded. At
// most Threads groups are in progress, and one more waits.
//
// Fewer groups are in progress if they are large. Finished groups count with their size, and
// unfinished ones with their estimate, which is corrected by the finished ones. The sum stays
// within aheadBytes, except that the next group in order is always admitted.
func (c *conversion) readAhead(ctx context.Context, w *Writer, consume func(*turn) error) error {
	ctx, stop := context.WithCancel(ctx)
	var admit sync.WaitGroup
	var work errgroup.Group
	groups := c.groupEpisodes()
	admission := newLimiter(c.options.Threads+1, aheadBytes)
	// Runs before the caller stops the writer.
	defer func() { stop(); admission.close(); admit.Wait(); _ = work.Wait() }()
	results := make([]chan []*turn, len(groups)) // each receives the turns of one group
	for i := range results {
		results[i] = make(chan []*turn, 1)
	}
	work.SetLimit(c.options.Threads)
	admit.Go(func() {
		for i := range groups {
			if !admission.enter(c.estimateBytes(groups[i])) {
				return
			}
			work.Go(func() error {
				turns := c.prepareGroup(ctx, w, groups[i])
				var size int64
				for _, t := range turns {
					size += t.size()
				}
				admission.replaceEstimate(c.estimateBytes(groups[i]), size)
				results[i] <- turns
				return nil
			})
		}
	})
	for i := range groups {
		var turns []*turn
		select {
		case turns = <-results[i]:
		case <-ctx.Done():
			return ctx.Err()
		}
		var size int64
		for k, t := range turns {
			size += t.size()
			if err := consume(t); err != nil {
				return err
			}
			turns[k] = nil
		}
		admission.leave(size)
	}
	return nil
}

// writeEpisodes writes the episodes in order.
func (c *conversion) writeEpisodes(ctx context.Context, w *Writer) error {
	// skip leaves out an episode if SkipBad and its error permit this. Otherwise it returns the
	// error, located by the key place.
	skip := func(t *turn, err error, place string, skippable bool) error {
		if ctx.Err() != nil || !c.options.SkipBad || !skippable || !robocache.Bad(err) {
			return robocache.At(err, robocache.Where{place: c.src.Info().EpisodeIndex(t.episode)})
		}
		c.addFinding(
			robocache.SeverityError,
			"episode-skipped",
			robocache.Where{"episode": t.mapping.Old},
			err.Error(),
		)
		t.mapping.New = -1
		t.mapping.FromIndex = 0
		return nil
	}
	c.rows = robocache.NewRowCounter(c.src, c.options.Episodes, c.options.Progress)
	return c.readAhead(ctx, w, func(t *turn) error {
		c.report.Findings = append(c.report.Findings, t.findings...)
		if t.readError != nil {
			if err := skip(t, t.readError, "episode", true); err != nil {
				return err
			}
		}
		if t.mapping.New >= 0 {
			t.mapping.New, t.mapping.FromIndex = w.written, w.rows
			err := t.encodeError
			if err == nil {
				err = w.AddEpisode(ctx, *t.data)
			}
			if err != nil {
				// Frames that cannot be decoded are found only here. A missing capability of the
				// machine is not an error of the episode.
				if err := skip(t, err, "source episode",
					!errors.Is(err, robocache.ErrUnsupported) && w.failed == nil); err != nil {
					return err
				}
			}
			c.countSegments(t.mapping)
		}
		c.report.Episodes = append(c.report.Episodes, t.mapping)
		c.rows.Finish(t.episode)
		return nil
	})
}

// limiter admits groups while both their number and their bytes are within limits. Each group
// states an estimate of its size. The estimates are multiplied by the largest ratio of size to
// estimate among the finished groups. Until a group is finished, estimates are used unchanged.
type limiter struct {
	mu           sync.Mutex
	changed      *sync.Cond
	maxInside    int
	maxBytes     int64
	inside       int     // groups admitted that did not leave
	heldBytes    int64   // bytes of finished groups
	pendingBytes int64   // estimates of unfinished groups
	ratio        float64 // largest size/estimate of finished groups; 0 if none is finished
	closed       bool
}

// newLimiter returns a limiter that admits at most atOnce groups, with limit bytes in total.
func newLimiter(atOnce int, limit int64) *limiter {
	r := &limiter{maxInside: atOnce, maxBytes: limit}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// enter blocks until a group with the given estimate may start. It returns false if the limiter was
// closed. A group is always admitted if no other is inside.
func (r *limiter) enter(estimate int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && r.isFull(estimate) {
		r.changed.Wait()
	}
	r.inside++
	r.pendingBytes += estimate
	return !r.closed
}

// isFull reports whether a group must wait.
func (r *limiter) isFull(estimate int64) bool {
	if r.inside == 0 {
		return false
	}
	return r.inside >= r.maxInside || r.expectedBytes(r.pendingBytes+estimate) > r.maxBytes
}

// expectedBytes returns the bytes held once unfinished groups with the given total estimate are
// finished.
func (r *limiter) expectedBytes(estimate int64) int64 {
	if r.ratio > 0 {
		estimate = int64(math.Ceil(min(float64(estimate)*r.ratio, 1<<60)))
	}
	return r.heldBytes + estimate
}

// replaceEstimate replaces the estimate of a group by its size.
func (r *limiter) replaceEstimate(estimate, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pendingBytes -= estimate
	r.heldBytes += size
	r.ratio = max(r.ratio, float64(size)/float64(max(estimate, 1)))
	r.changed.Broadcast()
}

// leave removes a finished group.
func (r *limiter) leave(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
	r.heldBytes -= size
	r.changed.Broadcast()
}

// close makes enter return false, also in goroutines that wait.
func (r *limiter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.changed.Broadcast()
}
