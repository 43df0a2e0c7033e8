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

// Assembler builds batches of given samples by a plan. It has no sample order. Loader and Map share
// it.
type Assembler struct {
	*plan.Plan
	batchMemory
	Frames      *frames.Store
	readWorkers int // workers in addition to Config.Threads that wait for reads
	Counters    counters
	Workers     sync.Pool
	batchPool   sync.Pool
}

// batchMemory holds the memory of batches and the limits on it.
type batchMemory struct {
	Buffers       *buffers.Pool
	deviceBuffers *buffers.Pool // memory of Plan.FrameDevice; nil: all tensors are on the host
	Budget        int64         // bytes of batches in flight
	Ragged        raggedBudget
	maxInFlight   atomic.Int64 // maximum number of batches in flight
}

// counters are totals for Stats. Times are in nanoseconds.
type counters struct {
	Gather, WaitData, WaitConsumer, First atomic.Int64
	Samples, Batches, Wrapped             atomic.Int64
}

// PlannedBatch is a batch under construction and its position in the run.
type PlannedBatch struct {
	column.BatchBuild
	SkippedBehind int64        // samples of bad episodes after the last batch of the previous epoch
	CursorAfter   order.Cursor // position of the loader after the batch is delivered
	Wrapped       int64        // samples that fill the last step of an epoch a second time
	Skipped       int64        // samples of bad episodes before the batch
	raggedBytes   int64        // bytes of its ragged tensors; guarded by raggedBudget.Mu
	reservedBytes int64        // part of raggedBytes that counts in raggedBudget.InFlight
}

// worker holds the scratch memory that one goroutine needs to run jobs. It is not safe for
// concurrent use.
type worker struct {
	column.Reader
	assembler *Assembler
}

// New returns an Assembler that executes p. The Assembler owns p, also on error. The caller must
// call Close.
func New(ctx context.Context, p *plan.Plan) (_ *Assembler, err error) {
	a := &Assembler{Plan: p}
	a.Workers.New = func() any {
		w := &worker{assembler: a}
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
		// One more for the batch that the consumer holds, whose memory the next batch reuses.
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

// Close releases the plan, the caches and the memory of batches. Batches that the consumer holds
// stay valid until they are released.
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

// BatchBytes returns the bytes of the budget that a batch of n samples uses, without ragged
// tensors. It returns at most 1<<60.
func (a *Assembler) BatchBytes(n int) int64 { return a.Schema.BatchBytes(n) }

// Allocate returns a batch of n samples without content. Ragged tensors have no memory yet. The
// caller must call Release.
func (a *Assembler) Allocate(n int) (*layout.Batch, error) {
	memory := layout.Memory{Host: a.Buffers}
	if a.FrameDevice != nil {
		memory.Device, memory.DeviceNumber = a.deviceBuffers, a.FrameDevice.Number()
	}
	return a.Schema.NewBatch(n, memory)
}

// BeginBatch returns a batch of samples. It resolves the rows of windows and their masks, and counts
// the parts that the batch waits for. It reads no data. epochs holds the epoch of each sample.
func (a *Assembler) BeginBatch(seq int64, samples, epochs []int64) (*PlannedBatch, error) {
	b, err := a.Allocate(len(samples))
	if err != nil {
		return nil, err
	}
	copy(b.Indices, samples)
	u := a.batchPool.Get().(*PlannedBatch)
	u.Seq, u.Batch, u.TensorBytes, u.Device = seq, b, a.BatchBytes(len(samples)), a.FrameDevice
	u.Done, u.OnDone, u.Err, u.BadEpisodes = make(chan struct{}), nil, nil, nil
	u.Wrapped, u.Skipped, u.raggedBytes, u.reservedBytes = 0, 0, 0, 0
	u.Epochs = append(u.Epochs[:0], epochs...)
	if len(a.Sources) == 1 {
		u.Parts = slices.Grow(u.Parts[:0], 1)[:1]
		p := &u.Parts[0]
		p.Build, p.Source, p.Slots = &u.BatchBuild, &a.Sources[0].DataSource, nil
		u.Pending.Store(p.Begin(samples) + int64(len(a.Schema.Ragged)))
		return u, nil
	}
	u.Pending.Store(a.dealToSources(u, samples) + int64(len(a.Schema.Ragged)))
	return u, nil
}

// newJob returns a job that adds its run time to spent.
func newJob(
	priority, order int64,
	kind frames.Kind,
	spent *atomic.Int64,
	run func(w *worker),
) frames.Job {
	return frames.Job{Priority: priority, Order: order, Kind: kind, Run: func(fw *frames.Worker) {
		begin := time.Now()
		run(fw.Owner.(*worker))
		spent.Add(int64(time.Since(begin)))
	}}
}

// SubmitJobs queues the jobs of several batches. Frames that these batches need of one file are
// decoded together. Every path through a job must complete the job's parts of the batch. Otherwise
// the batch never finishes.
func (a *Assembler) SubmitJobs(q *frames.Queue, batches []*PlannedBatch) {
	for _, u := range batches {
		for _, t := range a.Schema.Ragged {
			q.Push(newJob(u.Seq, int64(t), frames.RaggedKind, &a.Counters.Gather, func(w *worker) {
				w.buildRagged(u, t)
			}))
		}
	}
	for _, src := range a.Sources {
		var parts []*column.Part
		for _, u := range batches {
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
				seq, spent := parts[0].Build.Seq, &a.Frames.Counters.Plan
				q.Push(newJob(seq, int64(c.Number), frames.LocateKind, spent, func(w *worker) {
					w.LocateFrames(parts, i)
				}))
			}
		}
		for _, p := range parts {
			columnsPerJob := 1
			if p.Build.TensorBytes <= smallBatchBytes {
				columnsPerJob = max(len(filled), 1)
			}
			for columns := range slices.Chunk(filled, columnsPerJob) {
				seq, first := p.Build.Seq, int64(columns[0].Number)
				q.Push(newJob(seq, first, frames.GatherKind, &a.Counters.Gather, func(w *worker) {
					w.fillColumns(p, columns)
				}))
			}
		}
	}
}

// smallBatchBytes is the size up to which one job fills all columns of a batch. Waking a worker per
// column costs more than filling so small a column.
const smallBatchBytes = 256 << 10

// fillColumns fills columns of a part and completes one part of the batch for each.
func (w *worker) fillColumns(p *column.Part, columns []*column.Column) {
	for _, c := range columns {
		if err := w.fillColumn(p, c); err != nil {
			p.FailAt(err)
		}
		p.Build.Complete(1)
	}
}

// fillColumn fills one column of a part. A panic becomes an internal error of the batch.
func (w *worker) fillColumn(p *column.Part, c *column.Column) (err error) {
	defer crash.Recover("loader", &err)
	return p.EachDrawn(c, func(c *column.Column, p *column.Part) error {
		return c.Kind.(column.Filler).Fill(&w.Reader, p)
	})
}

// RecycleBatch makes the slices of u available to another batch. u's batch must have been delivered
// or released.
func (a *Assembler) RecycleBatch(u *PlannedBatch) {
	u.Batch, u.Err, u.BadEpisodes, u.OnDone = nil, nil, nil, nil
	a.batchPool.Put(u)
}
