package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/kernel"
)

// aloneBytes is the amount of work that one thread finishes in the time that another needs to wake
// up.
const aloneBytes = 64 << 10

// task is work that consists of units. Workers may run the units in any order.
type task interface {
	// beginWorker prepares w, which an earlier task may have used, for this task.
	beginWorker(w *worker)
	// runUnit runs one unit. It returns false if the input is invalid; the other units are then
	// skipped.
	runUnit(w *worker, u int) bool
}

// workerGroup runs a task on the caller's thread, and on other threads if the amount of work
// justifies them.
type workerGroup struct {
	units  int64
	next   atomic.Int64
	failed atomic.Bool
	mu     sync.Mutex
	counts kernel.Counts
}

// runTask runs all units of t on at most the given number of threads. It returns false if a unit
// failed.
func (c *workerGroup) runTask(t task, units, threads int) bool {
	c.units = int64(units)
	c.next.Store(0)
	c.failed.Store(false)
	c.counts = kernel.Counts{}
	if threads = min(threads, units); threads > 1 {
		runThreads(threads, func(int) { c.runUnits(t) })
	} else {
		c.runUnits(t) // this branch does not allocate
	}
	return !c.failed.Load()
}

// worthThreads returns the number of threads that an amount of work in bytes justifies, at most
// threads.
func worthThreads(threads, bytes int) int { return max(1, min(threads, bytes/aloneBytes)) }

// runUnits runs units on this thread until none is left or one fails.
func (c *workerGroup) runUnits(t task) {
	w := workerPool.Get().(*worker)
	w.counts = kernel.Counts{}
	t.beginWorker(w)
	for !c.failed.Load() {
		u := c.next.Add(1) - 1
		if u >= c.units {
			break
		}
		if !t.runUnit(w, int(u)) {
			c.failed.Store(true)
		}
	}
	if w.counts != (kernel.Counts{}) {
		c.mu.Lock()
		c.counts.Overflow += w.counts.Overflow
		c.counts.NaN += w.counts.NaN
		c.mu.Unlock()
	}
	w.release()
}

// addCounts adds the counts of all workers to t, an operation's counts.
func (c *workerGroup) addCounts(t *kernel.Tensor) {
	if t == nil {
		return
	}
	for i, n := range [2]int64{c.counts.Overflow, c.counts.NaN} {
		p := t.Data[(t.Base+i*t.Step(0))*8:]
		le.PutUint64(p, le.Uint64(p)+uint64(n))
	}
}

// runThreads calls f once per thread, with the thread's number, and waits for all of them. A panic
// in any thread is raised again in the caller, so that the caller can recover from it. Otherwise it
// would end the process.
func runThreads(threads int, f func(t int)) {
	var wg sync.WaitGroup
	var panicked atomic.Pointer[any]
	one := func(t int) {
		defer func() {
			if r := recover(); r != nil {
				panicked.Store(&r)
			}
		}()
		f(t)
	}
	for t := 1; t < threads; t++ {
		wg.Go(func() { one(t) })
	}
	one(0)
	wg.Wait()
	if r := panicked.Load(); r != nil {
		panic(*r)
	}
}

// spreadIndices calls functions for 0 … n-1 on several threads. Each thread takes the next few
// neighboring numbers when it is free. begin is called once per thread and returns the thread's
// function.
func spreadIndices(threads, n int, begin func() func(i int)) {
	step := max(1, n/(8*threads))
	var next atomic.Int64
	runThreads(threads, func(int) {
		f := begin()
		for {
			from := int(next.Add(int64(step))) - step
			if from >= n {
				return
			}
			for i := from; i < min(from+step, n); i++ {
				f(i)
			}
		}
	})
}
