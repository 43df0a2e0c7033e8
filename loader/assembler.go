package loader

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/video"
)

// assembler makes batches of given samples. It has no order of its own: Loader and Map share it.
type assembler struct {
	ds      robocache.Dataset
	cfg     Config
	layout  *layout
	table   *table
	buffers *buffers
	reels   reels
	stamps  *stamps // of streams, for timelines and tolerance checks
	starts  videoStarts
	budget  int64 // for batches in flight
	n       counters
	workers sync.Pool
	units   sync.Pool

	mu       sync.Mutex
	warnings []string
}

// counters are what Stats sums up. Times are nanoseconds.
type counters struct {
	plan, gather, decode, convert                        atomic.Int64
	waitData, waitConsumer, first                        atomic.Int64
	frames, unique, stills, samples, batches, wrap, skip atomic.Int64
}

// unit is one batch under construction.
type unit struct {
	seq     int64
	batch   *Batch
	bytes   int64
	rows    [][]robocache.Row // a window each, n × steps
	places  []int32           // with a timeline: which selected episode each sample is in
	left    atomic.Int64      // parts that are still to come
	done    chan struct{}
	onDone  func()
	after   cursor // where the loader stands once the batch is handed out
	wrapped int64
	skipped int64

	mu  sync.Mutex
	err error
	bad map[int]error
}

// horizon is the batches that are planned together: what they want of one file is decoded in one go.
type horizon struct {
	units []*unit
}

// worker is what one goroutine needs to run jobs: scratch that outlives them.
type worker struct {
	a       *assembler
	q       *queue
	scratch []uint64
	rows    []robocache.Row
	refs    []robocache.FrameRef
	index   []int32
	planner video.Planner

	// of the group that is being decoded
	task    *fileTask
	group   video.Group
	got     []bool
	spent   time.Duration // in deliver
	deliver func(ordinal int, pic video.Picture) error
}

func newAssembler(ctx context.Context, ds robocache.Dataset, cfg Config) (*assembler, error) {
	a := &assembler{ds: ds, cfg: cfg}
	a.workers.New = func() any {
		w := &worker{a: a}
		w.deliver = w.take
		return w
	}
	a.units.New = func() any { return &unit{} }
	var err error
	if a.layout, err = newLayout(ctx, ds, &cfg, a.warn); err != nil {
		return nil, err
	}
	a.starts, _ = ds.(videoStarts)
	a.stamps = newStamps(ds, int64(cfg.MemoryBudget)/16)
	if cfg.Align != nil {
		a.stamps.fix = a.onGrid
	}
	if err := a.count(ctx); err != nil {
		return nil, err
	}
	if err := a.openReels(); err != nil {
		return nil, err
	}
	if err := a.normalizers(ctx); err != nil {
		a.close()
		return nil, err
	}
	if cfg.Align != nil {
		if err := a.alignColumns(); err != nil {
			a.close()
			return nil, err
		}
	}
	if err := a.probe(ctx); err != nil {
		a.close()
		return nil, err
	}
	// The rest of the budget is the decoders' and the stamps'.
	a.budget = int64(cfg.MemoryBudget) / 4 * 3
	a.buffers = newBuffers(a.budget)
	return a, nil
}

func (a *assembler) warn(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.warnings, s) {
		a.warnings = append(a.warnings, s)
	}
}

func (a *assembler) close() {
	if a.reels != nil {
		a.reels.close()
	}
	if a.buffers != nil {
		a.buffers.close()
	}
}

// count makes the sample table. In skip mode episodes that opening found bad never enter it.
func (a *assembler) count(ctx context.Context) error {
	info := a.ds.Info()
	exclude := map[int]bool{}
	if a.cfg.OnBadEpisode == "skip" {
		for i := range info.Findings {
			f := &info.Findings[i]
			if f.Severity != robocache.SeverityError {
				continue
			}
			e, ok := a.position(ctx, f.Where["episode"])
			if ok && !exclude[e] && (a.cfg.Episodes == nil || slices.Contains(a.cfg.Episodes, e)) {
				exclude[e] = true
				a.n.skip.Add(int64(a.ds.Len(e)))
				a.warn(robocache.Where{"episode": e}.String() + " is left out: " + f.Message)
			}
		}
	}
	count := func(e int) (int, int64, error) { return a.ds.Len(e), 0, nil }
	if a.cfg.Align != nil {
		count = func(e int) (int, int64, error) {
			n, start, err := a.timeline(ctx, e)
			if err != nil && a.cfg.OnBadEpisode == "skip" && badEpisode(err) {
				// Its stamps are bad: it never enters the order.
				a.n.skip.Add(int64(a.ds.Len(e)))
				a.warn(robocache.Where{"episode": e}.String() + " is left out: " + err.Error())
				return 0, 0, nil
			}
			return n, start, err
		}
	}
	var err error
	if a.table, err = newTable(info.Episodes, &a.cfg, exclude, count, a.cfg.Align != nil); err != nil {
		return err
	}
	a.table.print.Format = info.Format
	if n := len(a.table.emptied); n > 0 {
		a.warn(emptiedText(a.table.emptied))
	}
	if a.table.samples() == 0 {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "no samples: the selected episodes are empty"}
	}
	return nil
}

// position finds the episode that a finding names by its number.
func (a *assembler) position(ctx context.Context, number any) (int, bool) {
	var id int64
	switch v := number.(type) {
	case int:
		id = int64(v)
	case int64:
		id = v
	default:
		return 0, false
	}
	is := func(e int) bool {
		ep, err := a.ds.Episode(ctx, e)
		return err == nil && ep.Index == id
	}
	n := a.ds.Info().Episodes
	if id >= 0 && id < int64(n) && is(int(id)) {
		return int(id), true
	}
	for e := range n {
		if is(e) {
			return e, true
		}
	}
	return 0, false
}

// tooLarge stands for every size that no budget holds; sums of sizes below it do not overflow.
const tooLarge = int64(1) << 60

// batchBytes is what a batch of n samples takes of the budget.
func (a *assembler) batchBytes(n int) int64 {
	var total, small int64
	for i := range a.layout.tensors {
		if over := tooLarge / int64(len(a.layout.tensors)) / 2; int64(a.layout.tensors[i].bytes) > over/int64(max(n, 1)) {
			return tooLarge
		}
		if size := n * a.layout.tensors[i].bytes; size >= ownBuffer {
			total += int64(sizeClass(size))
		} else {
			small += int64(roundUp(size, 64))
		}
	}
	if small > 0 {
		total += int64(sizeClass(int(small)))
	}
	return total
}

// ownBuffer is the size from which on a tensor has a mapping of its own: a small tensor that a user keeps must not keep
// the pictures beside it.
const ownBuffer = 128 << 10

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// allocate makes an empty batch.
func (a *assembler) allocate(n int) (*Batch, error) {
	l := a.layout
	b := &Batch{Rows: n, Fields: l.fields, Indices: make([]int64, n), Tensors: make([]Tensor, len(l.tensors)), Texts: make([]Texts, len(l.texts)), released: make([]atomic.Bool, len(l.tensors))}
	dims, small := 0, 0
	for i := range l.tensors {
		dims += len(l.tensors[i].shape) + 1
		if size := n * l.tensors[i].bytes; size < ownBuffer {
			small += roundUp(size, 64)
		}
	}
	shapes := make([]int, 0, dims)
	var shared *buffer
	at := 0
	for i := range l.tensors {
		p := &l.tensors[i]
		t := &b.Tensors[i]
		from := len(shapes)
		shapes = append(append(shapes, n), p.shape...)
		t.Key, t.DType, t.Shape = p.key, p.dtype, shapes[from:len(shapes):len(shapes)]
		size := n * p.bytes
		switch {
		case size >= ownBuffer:
			own, err := a.buffers.get(size)
			if err != nil {
				b.Release()
				return nil, err
			}
			t.buf, t.Data = own, own.mem[:size:size]
		case size > 0:
			if shared == nil {
				s, err := a.buffers.get(small)
				if err != nil {
					b.Release()
					return nil, err
				}
				shared = s
				t.buf = s
			} else {
				t.buf = shared.ref()
			}
			t.Data = shared.mem[at : at+size : at+size]
			at += roundUp(size, 64)
		}
	}
	for i, c := range l.texts {
		b.Texts[i] = Texts{Key: l.columns[c].key, DType: l.columns[c].out, Values: make([]string, n)}
	}
	return b, nil
}

// begin makes a unit of samples: rows, windows, masks, and how many parts there are. Nothing is read.
func (a *assembler) begin(seq int64, samples []int64) (*unit, error) {
	b, err := a.allocate(len(samples))
	if err != nil {
		return nil, err
	}
	copy(b.Indices, samples)
	u := a.units.Get().(*unit)
	u.seq, u.batch, u.bytes = seq, b, a.batchBytes(len(samples))
	u.done, u.onDone, u.err, u.bad = make(chan struct{}), nil, nil, nil
	u.wrapped, u.skipped = 0, 0
	if u.rows == nil {
		u.rows = make([][]robocache.Row, len(a.layout.windows))
	}
	n := len(samples)
	u.places = slices.Grow(u.places[:0], n)[:n]
	anchors := slices.Grow(u.rows[0][:0], n)[:n]
	for i, s := range samples {
		r, place := a.table.row(s)
		anchors[i], u.places[i] = r, int32(place)
	}
	u.rows[0] = anchors
	if a.cfg.Align == nil {
		a.windows(u)
	}
	parts := int64(0)
	for i := range a.layout.columns {
		c := &a.layout.columns[i]
		if c.source == fromVideo || c.source == fromStills {
			parts += int64(n * c.steps)
		} else {
			parts++
		}
	}
	u.left.Store(parts)
	return u, nil
}

// windows fills in the rows of all windows and their masks.
func (a *assembler) windows(u *unit) {
	l := a.layout
	anchors := u.rows[0]
	for k := 1; k < len(l.windows); k++ {
		offsets := l.windows[k].offsets
		rows := slices.Grow(u.rows[k][:0], len(anchors)*len(offsets))
		for _, r := range anchors {
			length := a.ds.Len(r.Episode)
			for _, o := range offsets {
				row, _ := align.Clamp(r.Index, o, length)
				rows = append(rows, robocache.Row{Episode: r.Episode, Index: row})
			}
		}
		u.rows[k] = rows
	}
	for i := range l.columns {
		c := &l.columns[i]
		if c.mask < 0 {
			continue
		}
		mask := u.batch.Tensors[c.mask].Data
		offsets := l.windows[c.rows].offsets
		at := 0
		for _, r := range anchors {
			length := a.ds.Len(r.Episode)
			for _, o := range offsets {
				mask[at] = 0
				if _, pad := align.Clamp(r.Index, o, length); pad {
					mask[at] = 1
				}
				at++
			}
		}
	}
}

// submit makes the jobs of a horizon.
func (a *assembler) submit(q *queue, h *horizon) {
	first := h.units[0].seq
	for i := range a.layout.columns {
		c := &a.layout.columns[i]
		if c.source == fromVideo {
			q.push(job{prio: first, sub: int64(i), kind: jobLocate, h: h, col: int32(i)})
		}
	}
	for _, u := range h.units {
		for i := range a.layout.columns {
			kind := jobGather
			switch a.layout.columns[i].source {
			case fromVideo:
				continue
			case fromText:
				kind = jobText
			case fromStills:
				kind = jobSort
			}
			q.push(job{prio: u.seq, sub: int64(i), kind: kind, u: u, col: int32(i)})
		}
	}
}

// finish counts parts of a unit that are there, or will never be.
func (u *unit) finish(parts int64) {
	if u.left.Add(-parts) == 0 {
		end := u.onDone
		close(u.done)
		if end != nil {
			end()
		}
	}
}

// fail notes an error of a unit: the first is kept, and an end of the context gives way to any other.
func (u *unit) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

// badEpisode says whether an error is the data's fault, and not the store's, the caller's or the machine's.
func badEpisode(err error) bool {
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrUnsupported)
}

// blame notes that an episode is bad, where bad episodes may be skipped; any other error ends the batch.
func (a *assembler) blame(u *unit, episode int, err error) {
	if a.cfg.OnBadEpisode != "skip" || !badEpisode(err) {
		u.fail(err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bad == nil {
		u.bad = map[int]error{}
	}
	if u.bad[episode] == nil {
		u.bad[episode] = err
	}
}

// episodeError says which episode an error is of, by its position.
type episodeError struct {
	episode int
	err     error
}

func (e *episodeError) Error() string { return e.err.Error() }
func (e *episodeError) Unwrap() error { return e.err }

// failAt fails a unit, and blames the episode where the error knows it.
func (a *assembler) failAt(u *unit, err error) {
	var e *episodeError
	if errors.As(err, &e) {
		a.blame(u, e.episode, e.err)
		return
	}
	u.fail(err)
}

// isolate finds which episodes of some rows fail, by trying each alone. The batch fails either way; with skip we must know whom to skip.
func (a *assembler) isolate(u *unit, rows []robocache.Row, first error, try func(sub []robocache.Row) error) {
	if a.cfg.OnBadEpisode != "skip" {
		u.fail(first)
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
			a.blame(u, e, robocache.At(err, robocache.Where{"episode": e}))
		}
	}
	if !found {
		u.fail(first)
	}
}

// recycle keeps a unit's slices for another. Its batch must have been handed out or released.
func (a *assembler) recycle(u *unit) {
	u.batch, u.err, u.bad, u.onDone = nil, nil, nil, nil
	a.units.Put(u)
}
