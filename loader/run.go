package loader

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
)

// run is one pass from a cursor on, to the end of the epoch or from epoch to epoch: a planner that stays ahead of the consumer, and a fixed set of workers.
type run struct {
	a      *assembler
	ctx    context.Context
	cancel context.CancelFunc
	q      *frames.Queue
	units  chan *unit
	head   *unit // taken from units, not yet handed out; Next's own
	wg     sync.WaitGroup

	onward  bool  // the planner goes on into the next epoch
	skipped int64 // samples of bad episodes behind the last batch; settled when units is closed

	mu    sync.Mutex
	space sync.Cond
	live  []*unit // planned, not handed out
}

// largeBatch is the size from which on one batch is work enough for all workers while the next horizon is planned.
const largeBatch = 64 << 20

// smallAhead is how many small batches without frames are planned together, at least: waking costs more than making one.
const smallAhead = 16

// horizonOf says how many batches are planned together, and how many may be in flight: a horizon and a half where the budget
// holds them, so that the next is planned and begun while the rest of the last is consumed; two where reads wait for a network, but of
// videos, whose packets are read ahead on their own.
// Large batches are their own horizon: as many as fit a sixteenth of memory_budget, one at least. Those whose frames are made on a device lie there.
func (a *assembler) horizonOf() (ahead, inFlight int, err error) {
	ragged, _ := a.largest()
	bytes := max(a.batchBytes(a.cfg.BatchSize)+ragged, 1)
	fit := a.budget / bytes
	if fit < 1 && ragged > 0 {
		fit = 1 // the quarter more than the largest may be what does not fit
	}
	if fit < 1 {
		return 0, 0, budgetError(bytes, a.budget, int64(a.cfg.MemoryBudget))
	}
	ahead = a.cfg.Prefetch
	if bytes <= smallBatch && a.numbers() {
		ahead = max(ahead, smallAhead)
	}
	ahead = int(min(int64(ahead), max(fit*2/3, 1)))
	if bytes > largeBatch && a.device == nil {
		n := int(min(max(int64(a.cfg.MemoryBudget)/16/bytes, 1), fit))
		return min(ahead, max(n-1, 1)), n, nil
	}
	inFlight = ahead + (ahead+1)/2
	if a.readers > 0 && !a.hasVideo() {
		inFlight = 2 * ahead
	}
	return ahead, int(min(int64(inFlight), fit)), nil
}

func startRun(a *assembler, at order.Progress, onward bool) *run {
	ctx, cancel := context.WithCancel(context.Background())
	ahead, inFlight, _ := a.horizonOf()
	r := &run{a: a, ctx: ctx, cancel: cancel, q: frames.NewQueue(ctx, &a.workers), units: make(chan *unit, inFlight+1), onward: onward}
	r.space.L = &r.mu
	r.q.Start(a.cfg.Threads + a.readers + a.engines)
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		r.plan(at, ahead, inFlight)
	}()
	return r
}

// plan makes horizons until the epoch ends, or onward. The first is one batch, so that it comes soon.
func (r *run) plan(from order.Progress, ahead, inFlight int) {
	defer close(r.units)
	var s order.Step
	fw := r.q.Borrow()
	defer r.q.Return(fw)
	w := fw.Own.(*worker)
	e := planEpoch(from)
	begun, skipped := int64(0), int64(0) // the epoch's first batch; behind the last epoch's last
	for size, seq := 1, int64(0); ; size = ahead {
		if len(r.a.schema.ragged) > 0 && seq > 0 {
			// What comes to be known of their sizes counts at once; before the first is made, nothing is.
			if !r.firstMade() {
				return
			}
			ahead, inFlight, _ = r.a.horizonOf()
			size = min(ahead, inFlight)
		}
		r.a.inFlight.Store(int64(inFlight))
		if !r.waitSpace(inFlight - size) {
			return
		}
		begin := time.Now()
		var units []*unit
		more := true
		for n := 0; n < size && more; {
			if !e.step(&s) {
				if more = r.onward && seq > begun && !e.sampler.Starved(e.at); more { // epochs without a batch would be gone through without end
					r.a.submit(r.q, units) // the next epoch's order may take a while
					units, begun, skipped = nil, seq, s.Skipped
					e = e.following()
					continue
				}
				if r.skipped = s.Skipped; seq == begun && seq > 0 {
					r.skipped = skipped // the next run finds out again that this epoch has no batch
				}
				if e.sampler.Starved(e.at) {
					r.give(&unit{behind: skipped, assembly: assembly{
						seq: seq, epoch: e.Epoch, done: closed(),
						err: robocache.Malformed("loader", nil, "every sample of this rank is of a bad episode"),
					}})
				}
				break
			}
			w.follow(&s, e.Epoch, seq, seq == begun)
			if seq-begun > int64(inFlight) { // a batch of this epoch was given: the store has left the one before
				r.refill(w, e, seq)
			}
			u, err := r.a.begin(seq, s.Samples, s.Epochs)
			if err != nil {
				u, more = &unit{assembly: assembly{seq: seq, err: err, done: closed()}}, false
			} else {
				u.batch.Epoch, u.batch.Position = e.Epoch, s.First
				u.after, u.wrapped, u.skipped = s.After, s.Wrapped, s.Skipped
				units = append(units, u)
			}
			u.epoch, u.behind = e.Epoch, skipped
			r.give(u)
			n, seq, skipped = n+1, seq+1, 0
		}
		r.a.store.N.Plan.Add(int64(time.Since(begin)))
		r.a.submit(r.q, units)
		if !more {
			return
		}
	}
}

// firstMade waits for the first batch where no size of a ragged tensor is known.
func (r *run) firstMade() bool {
	if _, known := r.a.largest(); known {
		return true
	}
	r.mu.Lock()
	var first *unit
	if len(r.live) > 0 {
		first = r.live[0]
	}
	r.mu.Unlock()
	if first == nil {
		return r.ctx.Err() == nil
	}
	select {
	case <-first.done:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// give puts a batch in the channel, which has room for all that may be in flight, and for an error behind them.
func (r *run) give(u *unit) {
	r.mu.Lock()
	r.live = append(r.live, u)
	r.mu.Unlock()
	r.units <- u
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// waitSpace waits until at most n batches are in flight; false when the run is over.
func (r *run) waitSpace(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) <= n {
		return r.ctx.Err() == nil
	}
	begin := time.Now()
	for len(r.live) > n && r.ctx.Err() == nil {
		r.space.Wait()
	}
	r.a.n.waitConsumer.Add(int64(time.Since(begin)))
	return r.ctx.Err() == nil
}

// release takes a finished batch out of the run.
func (r *run) release(u *unit) *Batch {
	r.mu.Lock()
	r.live = slices.DeleteFunc(r.live, func(o *unit) bool { return o == u })
	r.mu.Unlock()
	r.space.Signal()
	b := u.batch
	r.a.leave(u)
	r.a.recycle(u)
	return b
}

// inFlight is the number of batches that are planned and not handed out.
func (r *run) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// stop ends all goroutines of the run and gives its batches back.
func (r *run) stop() {
	r.cancel()
	r.mu.Lock()
	r.space.Broadcast()
	r.mu.Unlock()
	r.q.Close()
	r.wg.Wait() // the planner first: what it pushed is dropped by wait
	r.q.Wait()
	for _, u := range r.live {
		if u.batch != nil {
			r.a.leave(u)
			u.batch.Release()
		}
	}
	r.live = nil
	r.a.store.Reset()
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func budgetError(need, have, budget int64) error {
	return robocache.ResourceLimit("loader", nil, "memory_budget: one batch does not fit").
		Expected(mib(need)+" for a batch", mib(have)+" of "+mib(budget)).
		WithHint("raise memory_budget, or lower batch_size, image_size or the windows")
}
