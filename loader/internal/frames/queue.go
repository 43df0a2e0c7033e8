package frames

import (
	"container/heap"
	"context"
	"sync"
)

// Job is one piece of work for a worker. Prio is the batch that needs it first; Sub orders the jobs of one batch and kind.
type Job struct {
	Prio, Sub int64
	Kind      Kind
	Run       func(w *Worker)
	Drop      func() // gives back what the job holds, where it will not run; may be nil
}

// Kind orders the jobs of one batch: the smaller runs first.
type Kind uint8

// Frames are decoded before more files are opened: a batch may want more files than a process may open.
const (
	Admit  Kind = iota // plan a file of an episode that becomes resident
	Locate             // ask where the frames of a column lie
	Gather
	Ragged   // one tensor of a batch whose rows vary in length
	copyKind // frames that are there already
	decodeKind
	fetchKind // read the packets of a file that is far away
	planKind  // open a file and plan what is wanted of it
)

// Queue hands jobs to workers, the earliest batch's first.
type Queue struct {
	ctx    context.Context
	pool   *sync.Pool // of *Worker
	mu     sync.Mutex
	more   sync.Cond
	jobs   jobHeap
	asleep int
	closed bool
	wg     sync.WaitGroup
}

// NewQueue makes a queue whose workers come of a pool.
func NewQueue(ctx context.Context, pool *sync.Pool) *Queue {
	q := &Queue{ctx: ctx, pool: pool}
	q.more.L = &q.mu
	return q
}

// Start adds workers.
func (q *Queue) Start(n int) {
	for range n {
		q.wg.Add(1)
		go func() {
			defer q.wg.Done()
			q.Work()
		}()
	}
}

// Borrow gives a worker that pushes into this queue, until Return.
func (q *Queue) Borrow() *Worker {
	w := q.pool.Get().(*Worker)
	w.q = q
	return w
}

// Return takes a worker back.
func (q *Queue) Return(w *Worker) {
	w.q = nil
	q.pool.Put(w)
}

// Work runs jobs until the queue is closed.
func (q *Queue) Work() {
	w := q.Borrow()
	defer q.Return(w)
	for {
		j, ok := q.popJob()
		switch {
		case !ok:
			return
		case q.ctx.Err() != nil:
			j.dropJob()
		default:
			j.Run(w)
		}
	}
}

// Push adds a job.
func (q *Queue) Push(j Job) {
	q.mu.Lock()
	q.jobs.push(j)
	wake := q.asleep > 0
	q.mu.Unlock()
	if wake {
		q.more.Signal()
	}
}

func (q *Queue) popJob() (Job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 {
		if q.closed {
			return Job{}, false
		}
		q.asleep++
		q.more.Wait()
		q.asleep--
	}
	return q.jobs.pop(), true
}

// Len is the number of jobs that wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

// Close lets the workers end once the queue is empty; with its context ended they drop what is left.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}

// Wait waits for the workers, and drops what nobody took.
func (q *Queue) Wait() {
	q.wg.Wait()
	q.mu.Lock()
	left := q.jobs
	q.jobs = nil
	q.mu.Unlock()
	for i := range left {
		left[i].dropJob()
	}
}

func (j *Job) dropJob() {
	if j.Drop != nil {
		j.Drop()
	}
}

// jobHeap is container/heap's interface; push and pop keep the job off the heap of Go.
type jobHeap []Job

func (h jobHeap) Len() int { return len(h) }
func (h jobHeap) Less(i, k int) bool {
	a, b := &h[i], &h[k]
	if a.Prio != b.Prio {
		return a.Prio < b.Prio
	}
	if a.Kind != b.Kind {
		return a.Kind < b.Kind
	}
	return a.Sub < b.Sub
}
func (h jobHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *jobHeap) Push(any)     {}
func (h *jobHeap) Pop() any     { return nil }

func (h *jobHeap) push(j Job) {
	*h = append(*h, j)
	heap.Fix(h, len(*h)-1)
}

func (h *jobHeap) pop() Job {
	old := *h
	j, last := old[0], len(old)-1
	old[0] = old[last]
	old[last] = Job{}
	if *h = old[:last]; last > 0 {
		heap.Fix(h, 0)
	}
	return j
}
