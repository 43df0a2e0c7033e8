package pipeline

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// Assembler builds batches of given samples by a plan. It has no order of its own: Loader and Map share it.
type Assembler struct {
	*plan.Plan
	batchMemory
	Frames      *frames.Store
	readWorkers int // workers beyond those of Config.Threads that wait for reads
	Counters    counters
	Workers     sync.Pool
	batchPool   sync.Pool
}

// batchMemory is where batches lie, and how much of it those in flight may take.
type batchMemory struct {
	Buffers       *buffers.Pool
	deviceBuffers *buffers.Pool // of the memory of Plan.FrameDevice; nil: frames lie on the host
	Budget        int64         // for batches in flight
	Ragged        raggedBudget
	inFlight      atomic.Int64 // how many batches are in flight, at most
}

// counters are what Stats sums up. Times are nanoseconds.
type counters struct {
	Gather, WaitData, WaitConsumer, First atomic.Int64
	Samples, Batches, Wrapped             atomic.Int64
}

// PlannedBatch is one batch under construction, and where it stands in its run.
type PlannedBatch struct {
	column.BatchBuild
	SkippedBehind int64        // samples of bad episodes behind the last batch of the epoch before
	CursorAfter   order.Cursor // where the loader stands once the batch is handed out
	Wrapped       int64
	Skipped       int64
	ragged        int64 // bytes of its ragged tensors; raggedBudget.mu
	entered       int64 // of them, counted in raggedBudget.now
}

// worker is what one goroutine needs to run jobs: scratch that outlives them.
type worker struct {
	column.Reader
	a *Assembler
}

// New returns an Assembler that executes p and owns it from then on, also on error. The caller must call
// Close.
func New(ctx context.Context, p *plan.Plan) (_ *Assembler, err error) {
	a := &Assembler{Plan: p}
	a.Workers.New = func() any {
		w := &worker{a: a}
		w.Worker = frames.NewWorker(a.Frames, w)
		return w.Worker
	}
	a.batchPool.New = func() any { return &PlannedBatch{} }
	defer func() {
		if err != nil {
			a.Close()
		}
	}()
	if err := a.openCaches(ctx); err != nil {
		return nil, err
	}
	limit := a.Budget
	if _, inFlight, err := a.DecodeHorizon(); err == nil {
		// One more for the batch that the consumer holds: its memory is reused by the next batch.
		limit = max(limit, int64(inFlight+1)*a.BatchBytes(a.Config.BatchSize))
	}
	a.Buffers = buffers.New(limit, a.Config.Allocator)
	if a.FrameDevice != nil {
		a.deviceBuffers = buffers.New(limit, a.FrameDevice)
	}
	a.Resources.Budget, a.Resources.DeviceBuffers = a.Budget, a.deviceBuffers
	a.Resources.TakeCore = a.Frames.TakeCore
	return a, nil
}

// Close releases the plan, the caches and the memory of batches that are not with the consumer.
func (a *Assembler) Close() {
	for _, pool := range []*buffers.Pool{a.Buffers, a.deviceBuffers} {
		if pool != nil {
			pool.Close()
		}
	}
	if a.Frames != nil {
		a.Frames.Close()
	}
	a.Plan.Close()
}

// BatchBytes is what a batch of n samples takes of the budget.
func (a *Assembler) BatchBytes(n int) int64 {
	var total, small int64
	for i := range a.Schema.Tensors {
		if over := layout.TooLarge / int64(len(a.Schema.Tensors)) / 2; int64(a.Schema.Tensors[i].Bytes) > over/int64(max(n, 1)) {
			return layout.TooLarge
		}
		if size := n * a.Schema.Tensors[i].Bytes; size >= layout.OwnBuffer {
			total += int64(buffers.SizeClass(size))
		} else {
			small += int64(layout.RoundUp(size, 64))
		}
	}
	if small > 0 {
		total += int64(buffers.SizeClass(int(small)))
	}
	return total
}

// Allocate makes an empty batch.
func (a *Assembler) Allocate(n int) (*layout.Batch, error) {
	l := a.Schema
	b := &layout.Batch{Rows: n, Fields: l.Fields, Indices: make([]int64, n), Tensors: make([]layout.Tensor, len(l.Tensors)), Texts: make([]layout.Texts, len(l.Texts)), Released: make([]atomic.Bool, len(l.Tensors))}
	at, small := l.SlotsFor(n)
	var shared *buffers.Buffer
	for i := range l.Tensors {
		p, t := &l.Tensors[i], &b.Tensors[i]
		t.Key, t.DType, t.Shape = p.Key, p.DType, append(append(make([]int, 0, len(p.Shape)+1), n), p.Shape...)
		if p.IsRagged {
			t.Shape = append([]int{0}, p.Shape[1:]...)
		}
		size, need := n*p.Bytes, small
		switch {
		case at[i].HasBuffer:
			need = size
		case size == 0:
			continue
		case shared != nil:
			t.Buffer, t.Data = shared.Ref(), b.Shared[at[i].Offset:at[i].Offset+size:at[i].Offset+size]
			continue
		}
		from := a.Buffers
		if p.IsOnDevice {
			from, t.Device = a.deviceBuffers, 1+a.FrameDevice.Number()
		}
		buf, err := from.Get(need)
		if err != nil {
			b.Release()
			return nil, err
		}
		t.Buffer, t.Data = buf, buf.Mem[:size:size]
		if !at[i].HasBuffer {
			shared, b.Shared = buf, buf.Mem[:small:small]
		}
	}
	for i, c := range l.Texts {
		b.Texts[i] = layout.Texts{Key: c.Key, DType: c.DType, Values: make([]string, n)}
	}
	return b, nil
}

// BeginBatch makes a unit of samples: rows, windows, masks, and how many parts there are. Nothing is read.
func (a *Assembler) BeginBatch(seq int64, samples, epochs []int64) (*PlannedBatch, error) {
	b, err := a.Allocate(len(samples))
	if err != nil {
		return nil, err
	}
	copy(b.Indices, samples)
	u := a.batchPool.Get().(*PlannedBatch)
	u.Seq, u.Batch, u.TensorBytes, u.Device = seq, b, a.BatchBytes(len(samples)), a.FrameDevice
	u.Done, u.OnDone, u.Err, u.BadEpisodes = make(chan struct{}), nil, nil, nil
	u.Wrapped, u.Skipped, u.ragged, u.entered = 0, 0, 0, 0
	u.Epochs = append(u.Epochs[:0], epochs...)
	if len(a.Sources) == 1 {
		u.Parts = slices.Grow(u.Parts[:0], 1)[:1]
		p := &u.Parts[0]
		p.Build, p.Source, p.Slots = &u.BatchBuild, &a.Sources[0].DataSource, nil
		u.Pending.Store(p.Begin(samples) + int64(len(a.Schema.Ragged)))
		return u, nil
	}
	u.Pending.Store(a.mixed(u, samples) + int64(len(a.Schema.Ragged)))
	return u, nil
}

// job is a job of the loader's own for a worker. spent, if any, is where its time is counted.
func job(priority, order int64, kind frames.Kind, spent *atomic.Int64, run func(w *worker)) frames.Job {
	return frames.Job{Priority: priority, Order: order, Kind: kind, Run: func(fw *frames.Worker) {
		begin := time.Now()
		run(fw.Owner.(*worker))
		spent.Add(int64(time.Since(begin)))
	}}
}

// SubmitJobs makes the jobs of a horizon: of batches that are planned together, so that what they want of one file is decoded in one go. Every path through
// a job counts the batch's parts that it is for, or the batch would never be done.
func (a *Assembler) SubmitJobs(q *frames.Queue, units []*PlannedBatch) {
	for _, u := range units {
		for _, t := range a.Schema.Ragged {
			q.Push(job(u.Seq, int64(t), frames.RaggedKind, &a.Counters.Gather, func(w *worker) { w.ragged(u, t) }))
		}
	}
	for _, src := range a.Sources {
		var parts []*column.Part
		for _, u := range units {
			for k := range u.Parts {
				if u.Parts[k].Source == &src.DataSource {
					parts = append(parts, &u.Parts[k])
				}
			}
		}
		if len(parts) == 0 {
			continue
		}
		var filled []*column.Column
		for _, c := range src.Columns {
			if _, ok := c.Kind.(column.Filler); ok && c.Kind.Waits(1) > 0 {
				filled = append(filled, c)
			} else if i := c.Image(); i != nil {
				q.Push(job(parts[0].Build.Seq, int64(c.Number), frames.LocateKind, &a.Frames.Counters.Plan, func(w *worker) { w.LocateFrames(parts, i) }))
			}
		}
		for _, p := range parts {
			each := 1
			if p.Build.TensorBytes <= smallBatch {
				each = max(len(filled), 1)
			}
			for some := range slices.Chunk(filled, each) {
				q.Push(job(p.Build.Seq, int64(some[0].Number), frames.GatherKind, &a.Counters.Gather, func(w *worker) { w.fill(p, some) }))
			}
		}
	}
}

// smallBatch is the size up to which the columns of a batch are filled by one job: waking a worker for each costs more than filling it.
const smallBatch = 256 << 10

// fill brings columns of a part.
func (w *worker) fill(p *column.Part, columns []*column.Column) {
	for _, c := range columns {
		if err := w.fillColumn(p, c); err != nil {
			p.FailAt(err)
		}
		p.Build.Complete(1)
	}
}

// fillColumn fills one column of a part. A panic is an internal error of the batch.
func (w *worker) fillColumn(p *column.Part, c *column.Column) (err error) {
	defer crash.Recover("loader", &err)
	return c.Kind.(column.Filler).Fill(&w.Reader, p)
}

// RecycleBatch keeps a unit's slices for another. Its batch must have been handed out or released.
func (a *Assembler) RecycleBatch(u *PlannedBatch) {
	u.Batch, u.Err, u.BadEpisodes, u.OnDone = nil, nil, nil, nil
	a.batchPool.Put(u)
}
