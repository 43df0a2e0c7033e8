package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// EpochRun is one pass from a cursor on, to the end of the epoch or from epoch to epoch: a planner that stays ahead of the consumer, and a fixed set of workers.
type EpochRun struct {
	a       *Assembler
	Ctx     context.Context
	cancel  context.CancelFunc
	Queue   *frames.Queue
	Batches chan *PlannedBatch
	Head    *PlannedBatch // taken from units, not yet handed out; Next's own
	wg      sync.WaitGroup

	IsEndless bool  // the planner goes on into the next epoch
	Skipped   int64 // samples of bad episodes behind the last batch; settled when units is closed

	mu    sync.Mutex
	space sync.Cond
	live  []*PlannedBatch // planned, not handed out
}

// largeBatch is the size from which on one batch is work enough for all workers while the next horizon is planned.
const largeBatch = 64 << 20

// smallAhead is how many small batches without frames are planned together, at least: waking costs more than making one.
const smallAhead = 16

// DecodeHorizon says how many batches are planned together, and how many may be in flight: a horizon and a half where the budget
// holds them, so that the next is planned and begun while the rest of the last is consumed; two where reads wait for a network, but of
// videos, whose packets are read ahead on their own.
// Large batches are their own horizon: as many as fit a sixteenth of memory_budget, one at least. Those whose frames are made on a device lie there.
func (a *Assembler) DecodeHorizon() (ahead, inFlight int, err error) {
	ragged, _ := a.largest()
	bytes := max(a.BatchBytes(a.Config.BatchSize)+ragged, 1)
	fit := a.Budget / bytes
	if fit < 1 && ragged > 0 {
		fit = 1 // the quarter more than the largest may be what does not fit
	}
	if fit < 1 {
		return 0, 0, BudgetError(bytes, a.Budget, int64(a.Config.MemoryBudget))
	}
	ahead = a.Config.Prefetch
	if bytes <= smallBatch && !a.HasFrames() {
		ahead = max(ahead, smallAhead)
	}
	ahead = int(min(int64(ahead), max(fit*2/3, 1)))
	if bytes > largeBatch && a.FrameDevice == nil {
		n := int(min(max(int64(a.Config.MemoryBudget)/16/bytes, 1), fit))
		return min(ahead, max(n-1, 1)), n, nil
	}
	inFlight = ahead + (ahead+1)/2
	if a.readWorkers > 0 && !a.HasVideo() {
		inFlight = 2 * ahead
	}
	return ahead, int(min(int64(inFlight), fit)), nil
}

func StartRun(a *Assembler, at order.Progress, onward bool) *EpochRun {
	ctx, cancel := context.WithCancel(context.Background())
	ahead, inFlight, _ := a.DecodeHorizon()
	r := &EpochRun{a: a, Ctx: ctx, cancel: cancel, Queue: frames.NewQueue(ctx, &a.Workers), Batches: make(chan *PlannedBatch, inFlight+1), IsEndless: onward}
	r.space.L = &r.mu
	r.Queue.Start(a.Config.Threads + a.readWorkers + a.DeviceWorkers)
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		r.plan(at, ahead, inFlight)
	}()
	return r
}

// plan makes horizons until the epoch ends, or onward. The first is one batch, so that it comes soon.
func (r *EpochRun) plan(from order.Progress, ahead, inFlight int) {
	defer close(r.Batches)
	var s order.Step
	fw := r.Queue.Borrow()
	defer r.Queue.Return(fw)
	w := fw.Owner.(*worker)
	e := planEpoch(from)
	begun, skipped := int64(0), int64(0) // the epoch's first batch; behind the last epoch's last
	for size, seq := 1, int64(0); ; size = ahead {
		if len(r.a.Schema.Ragged) > 0 && seq > 0 {
			// What comes to be known of their sizes counts at once; before the first is made, nothing is.
			if !r.firstMade() {
				return
			}
			ahead, inFlight, _ = r.a.DecodeHorizon()
			size = min(ahead, inFlight)
		}
		r.a.inFlight.Store(int64(inFlight))
		if !r.waitSpace(inFlight - size) {
			return
		}
		begin := time.Now()
		var units []*PlannedBatch
		more := true
		for n := 0; n < size && more; {
			if !e.step(&s) {
				if more = r.IsEndless && seq > begun && !e.sampler.Starved(e.at); more { // epochs without a batch would be gone through without end
					r.a.SubmitJobs(r.Queue, units) // the next epoch's order may take a while
					units, begun, skipped = nil, seq, s.Skipped
					e = e.following()
					continue
				}
				if r.Skipped = s.Skipped; seq == begun && seq > 0 {
					r.Skipped = skipped // the next run finds out again that this epoch has no batch
				}
				if e.sampler.Starved(e.at) {
					r.give(&PlannedBatch{SkippedBehind: skipped, BatchBuild: column.BatchBuild{
						Seq: seq, Epoch: e.Epoch, Done: closed(),
						Err: robocache.Malformed("loader", nil, "every sample of this rank is of a bad episode"),
					}})
				}
				break
			}
			w.follow(&s, e.Epoch, seq, seq == begun)
			if seq-begun > int64(inFlight) { // a batch of this epoch was given: the store has left the one before
				r.refill(w, e, seq)
			}
			u, err := r.a.BeginBatch(seq, s.Samples, s.Epochs)
			if err != nil {
				u, more = &PlannedBatch{BatchBuild: column.BatchBuild{Seq: seq, Err: err, Done: closed()}}, false
			} else {
				u.Batch.Epoch, u.Batch.Position = e.Epoch, s.First
				u.CursorAfter, u.Wrapped, u.Skipped = s.After, s.Wrapped, s.Skipped
				units = append(units, u)
			}
			u.Epoch, u.SkippedBehind = e.Epoch, skipped
			r.give(u)
			n, seq, skipped = n+1, seq+1, 0
		}
		r.a.Frames.Counters.Plan.Add(int64(time.Since(begin)))
		r.a.SubmitJobs(r.Queue, units)
		if !more {
			return
		}
	}
}

// firstMade waits for the first batch where no size of a ragged tensor is known.
func (r *EpochRun) firstMade() bool {
	if _, known := r.a.largest(); known {
		return true
	}
	r.mu.Lock()
	var first *PlannedBatch
	if len(r.live) > 0 {
		first = r.live[0]
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

// give puts a batch in the channel, which has room for all that may be in flight, and for an error behind them.
func (r *EpochRun) give(u *PlannedBatch) {
	r.mu.Lock()
	r.live = append(r.live, u)
	r.mu.Unlock()
	r.Batches <- u
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// waitSpace waits until at most n batches are in flight; false when the run is over.
func (r *EpochRun) waitSpace(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) <= n {
		return r.Ctx.Err() == nil
	}
	begin := time.Now()
	for len(r.live) > n && r.Ctx.Err() == nil {
		r.space.Wait()
	}
	r.a.Counters.WaitConsumer.Add(int64(time.Since(begin)))
	return r.Ctx.Err() == nil
}

// Release takes a finished batch out of the run.
func (r *EpochRun) Release(u *PlannedBatch) *layout.Batch {
	r.mu.Lock()
	r.live = slices.DeleteFunc(r.live, func(o *PlannedBatch) bool { return o == u })
	r.mu.Unlock()
	r.space.Signal()
	b := u.Batch
	r.a.ReleaseRagged(u)
	r.a.RecycleBatch(u)
	return b
}

// InFlight is the number of batches that are planned and not handed out.
func (r *EpochRun) InFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// Stop ends all goroutines of the run and gives its batches back.
func (r *EpochRun) Stop() {
	r.cancel()
	r.mu.Lock()
	r.space.Broadcast()
	r.mu.Unlock()
	r.Queue.Close()
	r.wg.Wait() // the planner first: what it pushed is dropped by wait
	r.Queue.Wait()
	for _, u := range r.live {
		if u.Batch != nil {
			r.a.ReleaseRagged(u)
			u.Batch.Release()
		}
	}
	r.live = nil
	r.a.Frames.Reset()
}

func BudgetError(need, have, budget int64) error {
	return robocache.ResourceLimit("loader", nil, "memory_budget: one batch does not fit").
		Expected(layout.FormatMiB(need)+" for a batch", layout.FormatMiB(have)+" of "+layout.FormatMiB(budget)).
		WithHint("raise memory_budget, or lower batch_size, image_size or the windows")
}
