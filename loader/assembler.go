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
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/video"
)

// assembler makes batches of given samples. It has no order of its own: Loader and Map share it.
type assembler struct {
	cfg     Config
	sources []*source
	schema  *schema
	buffers *buffers.Pool
	device  video.DeviceMemory // that frames of batches lie on; nil: none
	there   *buffers.Pool      // of its memory
	store   *frames.Store
	readers int        // workers beyond those of cfg.Threads, for reading
	engines int        // likewise, for what a device decodes
	dir     *cache.Dir // nil: no cache directory
	kept    []func()   // end the use of dir by stores
	budget  int64      // for batches in flight
	ragged  raggedBudget
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
	epoch   int64
	behind  int64 // samples of bad episodes behind the last batch of the epoch before
	batch   *Batch
	device  video.DeviceMemory // what it has to do for the batch is over when the batch is done; nil: none
	bytes   int64
	parts   []part       // what each source gives, those without samples left out
	left    atomic.Int64 // frames and columns that are still to come
	done    chan struct{}
	onDone  func()
	after   order.Cursor // where the loader stands once the batch is handed out
	wrapped int64
	skipped int64
	ragged  int64   // bytes of its ragged tensors; raggedBudget.mu
	entered int64   // of them, counted in raggedBudget.now
	epochs  []int64 // of each sample, its source's own; none of a Map

	mu  sync.Mutex
	err error
	bad map[badKey]error
}

// badKey names an episode that failed.
type badKey struct{ source, episode int }

// worker is what one goroutine needs to run jobs: scratch that outlives them.
type worker struct {
	*frames.Worker
	a     *assembler
	rows  []robocache.Row
	refs  []robocache.FrameRef
	index []int32
	plan  planRoom
}

func newAssembler(ctx context.Context, mix []Mix, cfg Config) (_ *assembler, err error) {
	a := &assembler{cfg: cfg}
	a.workers.New = func() any {
		w := &worker{a: a}
		w.Worker = frames.NewWorker(a.store, w)
		return w.Worker
	}
	a.units.New = func() any { return &unit{} }
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	var offset int64
	for i := range mix {
		src := &source{a: a, index: i, ds: mix[i].Dataset, pads: map[string]*padded{}, offset: offset}
		if len(mix) > 1 { // else there is nothing to tell it from
			src.name, src.place = mix[i].Name, placeOfSource(i, &mix[i])
		}
		if err := a.addSource(ctx, src, &mix[i], len(mix)); err != nil {
			return nil, src.withPlace(err)
		}
		offset += src.table.Samples()
	}
	if err := widths(a.sources, mix, cfg.Missing == MissingPad); err != nil {
		return nil, err
	}
	deferOps(a.sources)
	a.onDevice()
	if a.cfg.Cache == onDevice && a.device == nil {
		return nil, robocache.Unsupported("loader", nil, `cache="device": no frames of these batches are made on a device`).
			WithHint(`device="cuda" with decode="gpu" or "auto", and video; without normalize, image_dtype or augment of frames that the device cannot finish; a folder of that name is "./device"`)
	}
	if err := a.openCaches(ctx); err != nil {
		return nil, err
	}
	for _, src := range a.sources {
		src.describe()
	}
	if a.schema, err = newSchema(a.sources, cfg.Missing == MissingPad); err != nil {
		return nil, err
	}
	limit := a.budget
	if _, inFlight, err := a.horizonOf(); err == nil {
		// And the one that the taker holds: what comes back from it is the next one's, and is not mapped anew.
		limit = max(limit, int64(inFlight+1)*a.batchBytes(cfg.BatchSize))
	}
	a.buffers = buffers.New(limit, cfg.Allocator)
	if a.device != nil {
		a.there = buffers.New(limit, a.device)
	}
	return a, nil
}

func (a *assembler) addSource(ctx context.Context, src *source, m *Mix, sources int) (err error) {
	if src.cfg, err = m.config(a.cfg, sources > 1); err != nil {
		return err
	}
	note, err := src.chooseEpisodes()
	if err != nil {
		return err
	}
	if note != "" {
		a.notes = append(a.notes, note)
	}
	a.sources = append(a.sources, src)
	a.keep(src)
	if err := src.open(ctx, sources); err != nil {
		return err
	}
	notes, err := src.alignNotes(ctx)
	for _, note := range notes {
		if !slices.Contains(a.notes, note) { // of another source of a mixture
			a.notes = append(a.notes, note)
		}
	}
	return err
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
	if a.there != nil {
		a.there.Close()
	}
	if a.store != nil {
		a.store.Close()
	}
	for _, end := range a.kept {
		end()
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

func (a *assembler) hasVideo() bool {
	return slices.ContainsFunc(a.sources, func(src *source) bool { return src.files != nil })
}

// numbers says that no source gives frames.
func (a *assembler) numbers() bool {
	return !slices.ContainsFunc(a.sources, func(src *source) bool { return slices.ContainsFunc(src.columns, is[*imageColumn]) })
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

// slot is where an entry of a batch lies: in the buffer that small ones share (own false), or in one of its own.
type slot struct {
	own    bool
	offset int
}

// layOut lays the tensors of a batch of n samples out: small ones share a buffer.
func (s *schema) layOut(n int) (at []slot, shared int) {
	at = make([]slot, len(s.tensors))
	for i := range s.tensors {
		if size := n * s.tensors[i].bytes; size >= ownBuffer || size > 0 && s.tensors[i].there {
			at[i].own = true
		} else {
			at[i].offset = shared
			shared += roundUp(size, 64)
		}
	}
	return at, shared
}

// batchBytes is what a batch of n samples takes of the budget.
func (a *assembler) batchBytes(n int) int64 {
	var total, small int64
	for i := range a.schema.tensors {
		if over := tooLarge / int64(len(a.schema.tensors)) / 2; int64(a.schema.tensors[i].bytes) > over/int64(max(n, 1)) {
			return tooLarge
		}
		if size := n * a.schema.tensors[i].bytes; size >= ownBuffer {
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
	l := a.schema
	b := &Batch{Rows: n, Fields: l.fields, Indices: make([]int64, n), Tensors: make([]Tensor, len(l.tensors)), Texts: make([]Texts, len(l.texts)), released: make([]atomic.Bool, len(l.tensors))}
	at, small := l.layOut(n)
	var shared *buffers.Buffer
	for i := range l.tensors {
		p, t := &l.tensors[i], &b.Tensors[i]
		t.Key, t.DType, t.Shape = p.key, p.dtype, append(append(make([]int, 0, len(p.shape)+1), n), p.shape...)
		if p.ragged {
			t.Shape = append([]int{0}, p.shape[1:]...)
		}
		size, need := n*p.bytes, small
		switch {
		case at[i].own:
			need = size
		case size == 0:
			continue
		case shared != nil:
			t.buf, t.Data = shared.Ref(), b.shared[at[i].offset:at[i].offset+size:at[i].offset+size]
			continue
		}
		from := a.buffers
		if p.there {
			from, t.Device = a.there, 1+a.device.Number()
		}
		buf, err := from.Get(need)
		if err != nil {
			b.Release()
			return nil, err
		}
		t.buf, t.Data = buf, buf.Mem[:size:size]
		if !at[i].own {
			shared, b.shared = buf, buf.Mem[:small:small]
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
	u.seq, u.batch, u.bytes, u.device = seq, b, a.batchBytes(len(samples)), a.device
	u.done, u.onDone, u.err, u.bad = make(chan struct{}), nil, nil, nil
	u.wrapped, u.skipped, u.ragged, u.entered = 0, 0, 0, 0
	u.epochs = append(u.epochs[:0], epochs...)
	if len(a.sources) == 1 {
		u.parts = slices.Grow(u.parts[:0], 1)[:1]
		p := &u.parts[0]
		p.u, p.src, p.slots = u, a.sources[0], nil
		u.left.Store(p.begin(samples) + int64(len(a.schema.ragged)))
		return u, nil
	}
	u.left.Store(a.mixed(u, samples) + int64(len(a.schema.ragged)))
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

// submit makes the jobs of a horizon: of batches that are planned together, so that what they want of one file is decoded in one go. Every path through
// a job counts the batch's parts that it is for, or the batch would never be done.
func (a *assembler) submit(q *frames.Queue, units []*unit) {
	for _, u := range units {
		for _, t := range a.schema.ragged {
			q.Push(job(u.seq, int64(t), frames.Ragged, &a.n.gather, func(w *worker) { w.ragged(u, t) }))
		}
	}
	for _, src := range a.sources {
		var parts []*part
		for _, u := range units {
			for k := range u.parts {
				if u.parts[k].src == src {
					parts = append(parts, &u.parts[k])
				}
			}
		}
		if len(parts) == 0 {
			continue
		}
		var filled []*column
		for _, c := range src.columns {
			if _, ok := c.kind.(filler); ok && c.kind.waits(1) > 0 {
				filled = append(filled, c)
			} else if i := c.image(); i != nil {
				q.Push(job(parts[0].u.seq, int64(c.number), frames.Locate, &a.store.N.Plan, func(w *worker) { w.locate(parts, i) }))
			}
		}
		for _, p := range parts {
			each := 1
			if p.u.bytes <= smallBatch {
				each = max(len(filled), 1)
			}
			for some := range slices.Chunk(filled, each) {
				q.Push(job(p.u.seq, int64(some[0].number), frames.Gather, &a.n.gather, func(w *worker) { w.fill(p, some) }))
			}
		}
	}
}

// smallBatch is the size up to which the columns of a batch are filled by one job: waking a worker for each costs more than filling it.
const smallBatch = 256 << 10

// fill brings columns of a part.
func (w *worker) fill(p *part, columns []*column) {
	for _, c := range columns {
		if err := w.fillColumn(p, c); err != nil {
			p.failAt(err)
		}
		p.u.finish(1)
	}
}

// fillColumn fills one column of a part. A panic is an internal error of the batch.
func (w *worker) fillColumn(p *part, c *column) (err error) {
	defer crash.Recover("loader", &err)
	return c.kind.(filler).fill(w, p)
}

// finish counts parts of a unit that are there, or will never be.
func (u *unit) finish(parts int64) {
	if u.left.Add(-parts) == 0 {
		if u.device != nil {
			if err := u.device.Wait(); err != nil {
				u.fail(err)
			}
		}
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

// blame notes that an episode is bad, where bad episodes may be skipped; any other error ends the batch.
func (p *part) blame(episode int, err error) {
	u := p.u
	err = p.src.withPlace(err)
	if p.src.cfg.OnBadEpisode != Skip || !robocache.Bad(err) {
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
	p.u.fail(p.src.withPlace(err))
}

// isolate finds which episodes of some rows fail, by trying each alone. The batch fails either way; with skip we must know whom to skip.
func (p *part) isolate(rows []robocache.Row, first error, try func(sub []robocache.Row) error) {
	if p.src.cfg.OnBadEpisode != Skip {
		p.u.fail(p.src.withPlace(first))
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
			p.blame(e, robocache.At(err, robocache.Where{"episode": p.src.ds.Info().EpisodeIndex(e)}))
		}
	}
	if !found {
		p.u.fail(p.src.withPlace(first))
	}
}

// withPlace adds the place of the source to an error.
func (src *source) withPlace(err error) error {
	if src.place == nil {
		return err
	}
	return robocache.At(err, src.place)
}

// recycle keeps a unit's slices for another. Its batch must have been handed out or released.
func (a *assembler) recycle(u *unit) {
	u.batch, u.err, u.bad, u.onDone = nil, nil, nil, nil
	a.units.Put(u)
}
