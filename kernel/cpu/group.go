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
	unit(w *worker, u int) bool // false: something is wrong with what the caller gave, and the rest need not be done
}

// workerGroup does a task on the caller's thread, and on as many others as are worth waking.
type workerGroup struct {
	units  int64
	next   atomic.Int64
	failed atomic.Bool
	done   sync.WaitGroup
	mu     sync.Mutex
	counts kernel.Counts
	panics panics
}

func (c *workerGroup) run(t task, units, threads int) bool {
	c.units = int64(units)
	c.next.Store(0)
	c.failed.Store(false)
	c.counts = kernel.Counts{}
	threads = min(threads, units)
	for range threads - 1 {
		c.done.Add(1)
		go func() {
			defer c.done.Done()
			c.work(t)
		}()
	}
	c.work(t)
	if threads > 1 {
		c.done.Wait()
	}
	c.panics.rethrow()
	return !c.failed.Load()
}

// worth is how many threads so many bytes are worth.
func worth(threads, bytes int) int { return max(1, min(threads, bytes/aloneBytes)) }

func (c *workerGroup) work(t task) {
	defer c.panics.catch()
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

// panics brings what went wrong on any thread to the caller's, which can recover from it: elsewhere it would end the process.
type panics struct {
	mu    sync.Mutex
	value any
}

// catch is to be deferred.
func (p *panics) catch() {
	if r := recover(); r != nil {
		p.mu.Lock()
		p.value = r
		p.mu.Unlock()
	}
}

// rethrow goes on with a panic, when all threads are done.
func (p *panics) rethrow() {
	if r := p.value; r != nil {
		p.value = nil
		panic(r)
	}
}
