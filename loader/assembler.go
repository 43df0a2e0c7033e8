package loader

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
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
	batchMemory
	store   *frames.Store
	readers int // workers beyond those of cfg.Threads, for reading
	engines int // likewise, for what a device decodes
	folder  *cacheFolder
	n       counters
	workers sync.Pool
	units   sync.Pool
	report  report
}

// batchMemory is where batches lie, and how much of it those in flight may take.
type batchMemory struct {
	buffers  *buffers.Pool
	device   video.DeviceMemory // memory for the frames of batches; nil: they lie on the host
	there    *buffers.Pool      // of its memory
	budget   int64              // for batches in flight
	ragged   raggedBudget
	inFlight atomic.Int64 // how many batches are in flight, at most
}

// counters are what Stats sums up. Times are nanoseconds.
type counters struct {
	gather, waitData, waitConsumer, first atomic.Int64
	stills, samples, batches, wrap        atomic.Int64
}

// unit is one batch under construction, and where it stands in its run.
type unit struct {
	assembly
	behind  int64        // samples of bad episodes behind the last batch of the epoch before
	after   order.Cursor // where the loader stands once the batch is handed out
	wrapped int64
	skipped int64
	ragged  int64 // bytes of its ragged tensors; raggedBudget.mu
	entered int64 // of them, counted in raggedBudget.now
}

// worker is what one goroutine needs to run jobs: scratch that outlives them.
type worker struct {
	reader
	a *assembler
}

func newAssembler(ctx context.Context, mix []Mix, cfg Config) (_ *assembler, err error) {
	a := &assembler{cfg: cfg}
	a.folder = &cacheFolder{cfg: &a.cfg}
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
		src := &source{report: &a.report, folder: a.folder, core: func() func() { return a.store.Core() }}
		src.ds, src.index, src.offset, src.pads = mix[i].Dataset, i, offset, map[string]*padded{}
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
			WithHint(`%s with %s or "auto", and video; without normalize, image_dtype or augment of frames that the device cannot finish; a folder of that name is "./device"`,
				robocache.Option("device", "cuda"), robocache.Option("decode", "gpu"))
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
	for _, src := range a.sources {
		src.room = room{budget: a.budget, blanks: &a.store.N.Frames, stills: &a.n.stills}
	}
	limit := a.budget
	if _, inFlight, err := a.horizonOf(); err == nil {
		// And the one that the taker holds: what comes back from it is the next one's, and is not mapped anew.
		limit = max(limit, int64(inFlight+1)*a.batchBytes(cfg.BatchSize))
	}
	a.buffers = buffers.New(limit, cfg.Allocator)
	if a.device != nil {
		a.there = buffers.New(limit, a.device)
		for _, src := range a.sources {
			src.there = a.there
		}
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
		a.report.notes = append(a.report.notes, note)
	}
	a.sources = append(a.sources, src)
	a.folder.keep(src.ds)
	if err := src.open(ctx, sources); err != nil {
		return err
	}
	if src.engines > 0 {
		a.engines = src.engines
	}
	notes, err := src.alignNotes(ctx)
	for _, note := range notes {
		a.report.note(note)
	}
	return err
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
	a.folder.close()
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
		p.u, p.src, p.slots = &u.assembly, &a.sources[0].dataSource, nil
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
				if u.parts[k].src == &src.dataSource {
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
	return c.kind.(filler).fill(&w.reader, p)
}

// recycle keeps a unit's slices for another. Its batch must have been handed out or released.
func (a *assembler) recycle(u *unit) {
	u.batch, u.err, u.bad, u.onDone = nil, nil, nil, nil
	a.units.Put(u)
}
