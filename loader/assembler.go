package loader

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/planning"
)

// assembler makes batches of given samples. It has no order of its own: Loader and Map share it.
type assembler struct {
	cfg     Config
	sources []*source
	form    *form
	buffers *buffers.Pool
	store   *frames.Store
	readers int        // workers beyond those of cfg.Threads, for reading
	dir     *cache.Dir // nil: no cache directory
	budget  int64      // for batches in flight
	crowd   crowd
	// inFlight is how many batches are in flight, at most.
	inFlight atomic.Int64
	n        counters
	workers  sync.Pool
	units    sync.Pool

	notes []string // what was chosen without being asked for

	mu       sync.Mutex
	warnings []string
}

// counters are what Stats sums up. Times are nanoseconds.
type counters struct {
	gather, waitData, waitConsumer, first atomic.Int64
	stills, samples, batches, wrap, skip  atomic.Int64
}

// unit is one batch under construction.
type unit struct {
	seq     int64
	batch   *Batch
	bytes   int64
	parts   []part       // what each source gives, those without samples left out
	left    atomic.Int64 // frames and columns that are still to come
	done    chan struct{}
	onDone  func()
	after   order.Cursor // where the loader stands once the batch is handed out
	wrapped int64
	skipped int64
	ragged  int64   // bytes of its ragged tensors; crowd.mu
	entered int64   // of them, counted in crowd.now
	epochs  []int64 // of each sample, its source's own; none of a Map

	mu  sync.Mutex
	err error
	bad map[badKey]error
}

// badKey names an episode that failed.
type badKey struct{ source, episode int }

// horizon is the batches that are planned together: what they want of one file is decoded in one go.
type horizon struct {
	units []*unit
}

// worker is what one goroutine needs to run jobs: scratch that outlives them.
type worker struct {
	*frames.Worker
	a     *assembler
	rows  []robocache.Row
	refs  []robocache.FrameRef
	index []int32
	plan  planning.Room
}

func newAssembler(ctx context.Context, mix []Mix, cfg Config) (*assembler, error) {
	a := &assembler{cfg: cfg}
	a.workers.New = func() any {
		w := &worker{a: a}
		w.Worker = frames.NewWorker(a.store, w)
		return w.Worker
	}
	a.units.New = func() any { return &unit{} }
	var offset int64
	for i := range mix {
		name := mix[i].Name
		if len(mix) == 1 {
			name = "" // nothing to tell it from
		}
		own, err := mix[i].config(cfg, len(mix) > 1)
		if err != nil {
			a.close()
			return nil, named(err, name)
		}
		note, err := own.chooseSplit(mix[i].Dataset.Info())
		if err != nil {
			a.close()
			return nil, named(err, name)
		}
		if note != "" {
			a.notes = append(a.notes, note)
		}
		src, err := newSource(ctx, a, i, len(mix), name, mix[i].Dataset, own)
		if err != nil {
			a.close()
			return nil, named(err, name)
		}
		a.sources = append(a.sources, src)
		src.offset = offset
		offset += src.table.Samples()
	}
	err := widths(a.sources, mix, cfg.Missing == "pad")
	if err != nil {
		a.close()
		return nil, err
	}
	wire(a.sources)
	if err := a.openCaches(ctx); err != nil {
		a.close()
		return nil, err
	}
	if a.form, err = newForm(a.sources, cfg.Missing == "pad"); err != nil {
		a.close()
		return nil, err
	}
	limit := a.budget
	if _, inFlight, err := a.horizonOf(); err == nil {
		// And the one that the taker holds: what comes back from it is the next one's, and is not mapped anew.
		limit = max(limit, int64(inFlight+1)*a.batchBytes(cfg.BatchSize))
	}
	a.buffers = buffers.New(limit, cfg.Memory)
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
	for _, src := range a.sources {
		src.close()
	}
	if a.buffers != nil {
		a.buffers.Close()
	}
	if a.store != nil {
		a.store.Close()
	}
	if a.dir != nil {
		_ = a.dir.Close()
	}
}

// samples is the number of samples of all sources.
func (a *assembler) samples() int64 {
	last := a.sources[len(a.sources)-1]
	return last.offset + last.table.Samples()
}

// sourceOf finds the source of a sample, and its number there.
func (a *assembler) sourceOf(sample int64) (*source, int64) {
	i := len(a.sources) - 1
	for a.sources[i].offset > sample {
		i--
	}
	return a.sources[i], sample - a.sources[i].offset
}

// tooLarge stands for every size that no budget holds; sums of sizes below it do not overflow.
const tooLarge = int64(1) << 60

// batchBytes is what a batch of n samples takes of the budget.
func (a *assembler) batchBytes(n int) int64 {
	var total, small int64
	for i := range a.form.tensors {
		if over := tooLarge / int64(len(a.form.tensors)) / 2; int64(a.form.tensors[i].bytes) > over/int64(max(n, 1)) {
			return tooLarge
		}
		if size := n * a.form.tensors[i].bytes; size >= ownBuffer {
			total += int64(buffers.SizeClass(size))
		} else {
			small += int64(roundUp(size, 64))
		}
	}
	if small > 0 {
		total += int64(buffers.SizeClass(int(small)))
	}
	return total
}

// ownBuffer is the size from which on a tensor has a mapping of its own: a small tensor that a user keeps must not keep
// the frames beside it.
const ownBuffer = 128 << 10

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// allocate makes an empty batch.
func (a *assembler) allocate(n int) (*Batch, error) {
	l := a.form
	b := &Batch{Rows: n, Fields: l.fields, Indices: make([]int64, n), Tensors: make([]Tensor, len(l.tensors)), Texts: make([]Texts, len(l.texts)), released: make([]atomic.Bool, len(l.tensors))}
	dims := 0
	for i := range l.tensors {
		dims += len(l.tensors[i].shape) + 1
	}
	at, small := l.places(n)
	shapes := make([]int, 0, dims)
	var shared *buffers.Buffer
	for i := range l.tensors {
		p := &l.tensors[i]
		t := &b.Tensors[i]
		from := len(shapes)
		if p.ragged {
			shapes = append(append(shapes, 0), p.shape[1:]...)
		} else {
			shapes = append(append(shapes, n), p.shape...)
		}
		t.Key, t.DType, t.Shape = p.key, p.dtype, shapes[from:len(shapes):len(shapes)]
		size := n * p.bytes
		switch {
		case at[i].own:
			own, err := a.buffers.Get(size)
			if err != nil {
				b.Release()
				return nil, err
			}
			t.buf, t.Data = own, own.Mem[:size:size]
		case size > 0:
			if shared == nil {
				s, err := a.buffers.Get(small)
				if err != nil {
					b.Release()
					return nil, err
				}
				shared, b.shared = s, s.Mem[:small:small]
				t.buf = s
			} else {
				t.buf = shared.Ref()
			}
			t.Data = b.shared[at[i].offset : at[i].offset+size : at[i].offset+size]
		}
	}
	for i, c := range l.texts {
		b.Texts[i] = Texts{Key: c.key, DType: c.dtype, Values: make([]string, n)}
	}
	return b, nil
}

// begin makes a unit of samples: rows, windows, masks, and how many parts there are. Nothing is read.
func (a *assembler) begin(seq int64, samples, epochs []int64) (*unit, error) {
	b, err := a.allocate(len(samples))
	if err != nil {
		return nil, err
	}
	copy(b.Indices, samples)
	u := a.units.Get().(*unit)
	u.seq, u.batch, u.bytes = seq, b, a.batchBytes(len(samples))
	u.done, u.onDone, u.err, u.bad = make(chan struct{}), nil, nil, nil
	u.wrapped, u.skipped, u.ragged, u.entered = 0, 0, 0, 0
	u.epochs = append(u.epochs[:0], epochs...)
	if len(a.sources) == 1 {
		u.parts = slices.Grow(u.parts[:0], 1)[:1]
		p := &u.parts[0]
		p.u, p.src, p.slots = u, a.sources[0], nil
		u.left.Store(p.begin(samples) + int64(len(a.form.ragged)))
		return u, nil
	}
	u.left.Store(a.mixed(u, samples) + int64(len(a.form.ragged)))
	return u, nil
}

// job is a job of the loader's own for a worker. spent, if any, is where its time is counted.
func job(prio, sub int64, kind frames.Kind, spent *atomic.Int64, run func(w *worker)) frames.Job {
	return frames.Job{Prio: prio, Sub: sub, Kind: kind, Run: func(fw *frames.Worker) {
		begin := time.Now()
		run(fw.Own.(*worker))
		spent.Add(int64(time.Since(begin)))
	}}
}

// submit makes the jobs of a horizon. Every path through a job counts the batch's parts that it is for, or the batch would never be done.
func (a *assembler) submit(q *frames.Queue, h *horizon) {
	first := h.units[0].seq
	for _, u := range h.units {
		for _, t := range a.form.ragged {
			q.Push(job(u.seq, int64(t), frames.Ragged, &a.n.gather, func(w *worker) { w.ragged(u, t) }))
		}
	}
	for _, src := range a.sources {
		var parts []*part
		for _, u := range h.units {
			for k := range u.parts {
				if u.parts[k].src == src {
					parts = append(parts, &u.parts[k])
				}
			}
		}
		if len(parts) == 0 {
			continue
		}
		for i := range src.layout.columns {
			c := &src.layout.columns[i]
			if c.source == fromVideo {
				q.Push(job(first, int64(i), frames.Locate, &a.store.N.Plan, func(w *worker) { w.locate(parts, i) }))
			}
			if c.source == fromVideo || c.ragged || c.leader != i {
				continue
			}
			for _, p := range parts {
				switch c.source {
				case fromText, fromSample:
					q.Push(job(p.u.seq, int64(i), frames.Text, &a.n.gather, func(w *worker) {
						w.text(p, i)
						p.u.finish(1)
					}))
				case fromStills:
					q.Push(job(p.u.seq, int64(i), frames.Sort, &a.store.N.Plan, func(w *worker) { w.sortStills(p, i) }))
				default:
					q.Push(job(p.u.seq, int64(i), frames.Gather, &a.n.gather, func(w *worker) {
						w.gather(p, i)
						p.u.finish(int64(1 + len(c.shared)))
					}))
				}
			}
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
func (p *part) blame(episode int, err error) {
	u := p.u
	err = named(err, p.src.name)
	if p.src.cfg.OnBadEpisode != "skip" || !badEpisode(err) {
		u.fail(err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.bad == nil {
		u.bad = map[badKey]error{}
	}
	if k := (badKey{p.src.index, episode}); u.bad[k] == nil {
		u.bad[k] = err
	}
}

// episodeError says which episode an error is of, by its position.
type episodeError struct {
	episode int
	err     error
}

func (e *episodeError) Error() string { return e.err.Error() }
func (e *episodeError) Unwrap() error { return e.err }

// failAt fails the batch, and blames the episode where the error knows it.
func (p *part) failAt(err error) {
	var e *episodeError
	if errors.As(err, &e) {
		p.blame(e.episode, e.err)
		return
	}
	p.u.fail(named(err, p.src.name))
}

// isolate finds which episodes of some rows fail, by trying each alone. The batch fails either way; with skip we must know whom to skip.
func (p *part) isolate(rows []robocache.Row, first error, try func(sub []robocache.Row) error) {
	if p.src.cfg.OnBadEpisode != "skip" {
		p.u.fail(named(first, p.src.name))
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
			p.blame(e, robocache.At(err, robocache.Where{"episode": e}))
		}
	}
	if !found {
		p.u.fail(named(first, p.src.name))
	}
}

// named adds the source of a mixture to an error.
func named(err error, source string) error {
	if source == "" {
		return err
	}
	return robocache.At(err, robocache.Where{"dataset": source})
}

// recycle keeps a unit's slices for another. Its batch must have been handed out or released.
func (a *assembler) recycle(u *unit) {
	u.batch, u.err, u.bad, u.onDone = nil, nil, nil, nil
	a.units.Put(u)
}
