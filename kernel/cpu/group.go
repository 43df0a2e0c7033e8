package cpu

import (
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/kernel"
)

// aloneBytes is the work that one thread has done before another has woken up.
const aloneBytes = 64 << 10

// task is work that falls into units, which any worker may do in any order.
type task interface {
	begin(w *worker)
	// false: something is wrong with what the caller gave, and the rest need not be done
	unit(w *worker, u int) bool
}

// workerGroup does a task on the caller's thread, and on as many others as are worth waking.
type workerGroup struct {
	units  int64
	next   atomic.Int64
	failed atomic.Bool
	mu     sync.Mutex
	counts kernel.Counts
}

func (c *workerGroup) run(t task, units, threads int) bool {
	c.units = int64(units)
	c.next.Store(0)
	c.failed.Store(false)
	c.counts = kernel.Counts{}
	if threads = min(threads, units); threads > 1 {
		each(threads, func(int) { c.work(t) })
	} else {
		c.work(t) // without an allocation
	}
	return !c.failed.Load()
}

// worth is how many threads so many bytes are worth.
func worth(threads, bytes int) int { return max(1, min(threads, bytes/aloneBytes)) }

func (c *workerGroup) work(t task) {
	w := workers.Get().(*worker)
	w.counts = kernel.Counts{}
	t.begin(w)
	for !c.failed.Load() {
		u := c.next.Add(1) - 1
		if u >= c.units {
			break
		}
		if !t.unit(w, int(u)) {
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

// tell adds what was counted to an op's counts.
func (c *workerGroup) tell(t *kernel.Tensor) {
	if t == nil {
		return
	}
	for i, n := range [2]int64{c.counts.Overflow, c.counts.NaN} {
		p := t.Data[(t.Base+i*t.Step(0))*8:]
		le.PutUint64(p, le.Uint64(p)+uint64(n))
	}
}

// each runs f for every thread and waits; f has the thread's number. A panic on any of them is the
// caller's, which can recover from it: elsewhere it would end the process.
func each(threads int, f func(t int)) {
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

// spread gives 0 … n-1 to threads, some neighbours at a time; who is done takes the next. begin is
// called once a thread.
func spread(threads, n int, begin func() func(i int)) {
	step := max(1, n/(8*threads))
	var next atomic.Int64
	each(threads, func(int) {
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
