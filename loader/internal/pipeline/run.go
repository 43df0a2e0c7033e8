package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// EpochRun plans and builds batches from a cursor to the end of the epoch, or without end. A
// planner goroutine stays ahead of the consumer, and a fixed number of workers fill the batches.
type EpochRun struct {
	assembler *Assembler
	Ctx       context.Context
	cancel    context.CancelFunc
	Queue     *frames.Queue
	Batches   chan *PlannedBatch
	// NextBatch was received from Batches and is not delivered yet. Only Loader.Next uses it.
	NextBatch *PlannedBatch
	wg        sync.WaitGroup

	IsEndless bool  // the planner continues with the next epoch
	Skipped   int64 // samples of bad episodes after the last batch; valid when Batches is closed

	mu             sync.Mutex
	spaceAvailable sync.Cond
	plannedBatches []*PlannedBatch // planned and not delivered
}

// largeBatchBytes is the size from which one batch keeps all workers busy while the next horizon is
// planned.
const largeBatchBytes = 64 << 20

// minSmallBatches is the minimum number of small batches without frames that are planned together.
// Waking a worker costs more than filling one.
const minSmallBatches = 16

// DecodeHorizon returns how many batches form a horizon, that is, are planned together (ahead), and
// how many may be in flight.
//
// If the budget allows it, one and a half horizons are in flight. The next horizon is then planned
// and begun while the consumer receives the rest of the previous one. Two horizons are in flight if
// reads wait for a network and there is no video. Packets of videos are read ahead in any case.
//
// Of large batches on the host, as many are in flight as fit into a sixteenth of memory_budget, but
// at least one.
func (a *Assembler) DecodeHorizon() (ahead, inFlight int, err error) {
	ragged, _ := a.expectedRaggedBytes()
	bytes := max(a.BatchBytes(a.Config.BatchSize)+ragged, 1)
	fit := a.Budget / bytes
	if fit < 1 && ragged > 0 {
		fit = 1 // the batch may fit without the margin of expectedRaggedBytes
	}
	if fit < 1 {
		return 0, 0, BudgetError(bytes, a.Budget, int64(a.Config.MemoryBudget))
	}
	ahead = a.Config.Prefetch
	if bytes <= smallBatchBytes && !a.HasFrames() {
		ahead = max(ahead, minSmallBatches)
	}
	ahead = int(min(int64(ahead), max(fit*2/3, 1)))
	if bytes > largeBatchBytes && a.FrameDevice == nil {
		inFlight = int(min(max(int64(a.Config.MemoryBudget)/16/bytes, 1), fit))
		return min(ahead, max(inFlight-1, 1)), inFlight, nil
	}
	inFlight = ahead + (ahead+1)/2
	if a.readWorkers > 0 && !a.HasVideo() {
		inFlight = 2 * ahead
	}
	return ahead, int(min(int64(inFlight), fit)), nil
}

// StartRun starts a run at a position. If endless is true, the run continues with the next epochs.
// The caller must call Stop.
func StartRun(a *Assembler, at order.Progress, endless bool) *EpochRun {
	ctx, cancel := context.WithCancel(context.Background())
	ahead, inFlight, _ := a.DecodeHorizon()
	r := &EpochRun{
		assembler: a,
		Ctx:       ctx,
		cancel:    cancel,
		Queue:     frames.NewQueue(ctx, &a.Workers),
		Batches:   make(chan *PlannedBatch, inFlight+1),
		IsEndless: endless,
	}
	r.spaceAvailable.L = &r.mu
	r.Queue.Start(a.Config.Threads + a.readWorkers + a.DeviceWorkers)
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		r.planBatches(at, ahead, inFlight)
	}()
	return r
}

// planBatches plans horizons until the epoch ends or the run is stopped. The first horizon is one
// batch, so that it is delivered soon.
func (r *EpochRun) planBatches(from order.Progress, ahead, inFlight int) {
	defer close(r.Batches)
	fw := r.Queue.Borrow()
	defer r.Queue.Return(fw)
	p := batchPlanner{run: r, worker: fw.Owner.(*worker), epoch: planEpoch(from)}
	for size, more := 1, true; more; size = ahead {
		if len(r.assembler.Schema.Ragged) > 0 && p.seq > 0 {
			// Use the ragged sizes measured so far. None is known before the first batch is built.
			if !r.awaitFirstBatch() {
				return
			}
			ahead, inFlight, _ = r.assembler.DecodeHorizon()
			size = min(ahead, inFlight)
		}
		r.assembler.maxInFlight.Store(int64(inFlight))
		if !r.waitSpace(inFlight - size) {
			return
		}
		begin := time.Now()
		more = p.planHorizon(size, inFlight)
		r.assembler.Frames.Counters.Plan.Add(int64(time.Since(begin)))
		r.assembler.SubmitJobs(r.Queue, p.horizon)
	}
}

// batchPlanner plans the batches of a run, epoch after epoch.
type batchPlanner struct {
	run        *EpochRun
	worker     *worker
	epoch      *epochPlan
	step       order.Step      // scratch
	seq        int64           // number of the next batch in the run
	epochStart int64           // number of the epoch's first batch
	skipped    int64           // samples of bad episodes after the last batch of the previous epoch
	horizon    []*PlannedBatch // planned batches whose jobs are not submitted
}

// planHorizon plans size batches. It returns false if the run has no batch after them.
func (p *batchPlanner) planHorizon(size, inFlight int) (more bool) {
	p.horizon = nil
	for n := 0; n < size; {
		if !p.epoch.nextStep(&p.step) {
			if !p.enterNextEpoch() {
				return false
			}
			continue
		}
		if !p.planBatch(inFlight) {
			return false
		}
		n++
	}
	return true
}

// enterNextEpoch continues with the next epoch. It returns false if the run ends with this one.
func (p *batchPlanner) enterNextEpoch() bool {
	r, isEmpty := p.run, p.seq == p.epochStart
	isStarved := p.epoch.sampler.Starved(p.epoch.cursor)
	// Stop after an epoch without a batch: the epochs after it may have none either.
	if r.IsEndless && !isEmpty && !isStarved {
		// Submit first, because followingPlan may compute an order for a while.
		r.assembler.SubmitJobs(r.Queue, p.horizon)
		p.horizon, p.epochStart, p.skipped = nil, p.seq, p.step.Skipped
		p.epoch = p.epoch.followingPlan()
		return true
	}
	r.Skipped = p.step.Skipped
	if isEmpty && p.seq > 0 {
		r.Skipped = p.skipped // the next run counts the samples of this empty epoch
	}
	if isStarved {
		r.enqueueBatch(starvedBatch(p.seq, p.epoch.Epoch, p.skipped))
	}
	return false
}

// planBatch plans the batch of p.step. If it fails, the batch holds the error and planBatch returns
// false.
func (p *batchPlanner) planBatch(inFlight int) bool {
	r, s := p.run, &p.step
	p.worker.followPool(s, p.epoch.Epoch, p.seq, p.seq == p.epochStart)
	// A batch of this epoch was delivered, so the store has released the previous epoch.
	if p.seq-p.epochStart > int64(inFlight) {
		r.admitNextEpoch(p.worker, p.epoch, p.seq)
	}
	u, err := r.assembler.BeginBatch(p.seq, s.Samples, s.Epochs)
	if err != nil {
		u = &PlannedBatch{}
		u.Seq, u.Err, u.Done = p.seq, err, closedChannel()
	} else {
		u.Batch.Epoch, u.Batch.Position = p.epoch.Epoch, s.First
		u.CursorAfter, u.Wrapped, u.Skipped = s.After, s.Wrapped, s.Skipped
		p.horizon = append(p.horizon, u)
	}
	u.Epoch, u.SkippedBehind = p.epoch.Epoch, p.skipped
	r.enqueueBatch(u)
	p.seq, p.skipped = p.seq+1, 0
	return err == nil
}

// starvedBatch returns a failed batch for a rank whose samples are all of bad episodes.
func starvedBatch(seq, epoch, skippedBehind int64) *PlannedBatch {
	u := &PlannedBatch{SkippedBehind: skippedBehind}
	u.Seq, u.Epoch, u.Done = seq, epoch, closedChannel()
	u.Err = robocache.Malformed("loader", nil, "every sample of this rank is of a bad episode")
	return u
}

// awaitFirstBatch blocks until the size of a ragged tensor is known, that is, until the first batch
// is built. It returns false if the run was stopped.
func (r *EpochRun) awaitFirstBatch() bool {
	if _, known := r.assembler.expectedRaggedBytes(); known {
		return true
	}
	r.mu.Lock()
	var first *PlannedBatch
	if len(r.plannedBatches) > 0 {
		first = r.plannedBatches[0]
	}
	r.mu.Unlock()
	if first == nil {
		return r.Ctx.Err() == nil
	}
	select {
	case <-first.Done:
		return true
	case <-r.Ctx.Done():
		return false
	}
}

// enqueueBatch sends a batch to Batches. It does not block: the channel has capacity for all
// batches in flight and an error after them.
func (r *EpochRun) enqueueBatch(u *PlannedBatch) {
	r.mu.Lock()
	r.plannedBatches = append(r.plannedBatches, u)
	r.mu.Unlock()
	r.Batches <- u
}

// closedChannel returns the Done channel of a batch that is complete from the start.
func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// waitSpace blocks until at most n batches are in flight. It returns false if the run was stopped.
func (r *EpochRun) waitSpace(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.plannedBatches) <= n {
		return r.Ctx.Err() == nil
	}
	begin := time.Now()
	for len(r.plannedBatches) > n && r.Ctx.Err() == nil {
		r.spaceAvailable.Wait()
	}
	r.assembler.Counters.WaitConsumer.Add(int64(time.Since(begin)))
	return r.Ctx.Err() == nil
}

// Release removes a finished batch from the run and returns it for delivery.
func (r *EpochRun) Release(u *PlannedBatch) *layout.Batch {
	r.mu.Lock()
	r.plannedBatches = slices.DeleteFunc(
		r.plannedBatches,
		func(o *PlannedBatch) bool { return o == u },
	)
	r.mu.Unlock()
	r.spaceAvailable.Signal()
	b := u.Batch
	r.assembler.ReleaseRagged(u)
	r.assembler.RecycleBatch(u)
	return b
}

// InFlight returns the number of batches that are planned and not delivered.
func (r *EpochRun) InFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.plannedBatches)
}

// Stop ends all goroutines of the run, waits for them and releases the batches in flight.
func (r *EpochRun) Stop() {
	r.cancel()
	r.mu.Lock()
	r.spaceAvailable.Broadcast()
	r.mu.Unlock()
	r.Queue.Close()
	r.wg.Wait() // before Queue.Wait, which drops the jobs that the planner pushed
	r.Queue.Wait()
	for _, u := range r.plannedBatches {
		if u.Batch != nil {
			r.assembler.ReleaseRagged(u)
			u.Batch.Release()
		}
	}
	r.plannedBatches = nil
	r.assembler.Frames.Reset()
}

// BudgetError returns the error of a batch of need bytes that exceeds have, its share of budget.
func BudgetError(need, have, budget int64) error {
	return robocache.ResourceLimit("loader", nil, "memory_budget: one batch does not fit").
		Expected(layout.FormatMiB(need)+" for a batch", layout.FormatMiB(have)+" of "+
			layout.FormatMiB(budget)).
		WithHint("raise memory_budget, or lower batch_size, image_size or the windows")
}
