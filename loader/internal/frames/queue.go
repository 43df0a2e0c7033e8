package frames

import (
	"container/heap"
	"context"
	"sync"
)

// Job is a piece of work for a Worker. Jobs of a lower Priority run first. Jobs of one priority run
// by Kind, then by Order.
type Job struct {
	Priority, Order int64 // Priority is the number of the first batch that needs the job
	Kind            Kind
	Run             func(w *Worker)
	Drop            func() // releases the job's resources if it does not run; may be nil
}

// Kind orders the jobs of one priority. Smaller kinds run first.
type Kind uint8

// Kinds of jobs. Decoding comes before opening more files, because a batch may need more files
// than the process may have open.
const (
	AdmitKind  Kind = iota // plan a file of an episode that enters a pool
	LocateKind             // look up the frames of a column
	GatherKind             // fill columns of a batch
	RaggedKind             // build one ragged tensor of a batch
	copyKind               // copy stored frames
	decodeKind             // decode a task
	fetchKind              // read the packets of a remote file
	planKind               // open a file and group its requested frames into tasks
)

// Queue distributes jobs to workers by priority. Safe for concurrent use.
type Queue struct {
	ctx             context.Context
	pool            *sync.Pool // of *Worker; shared by all queues of a loader
	mu              sync.Mutex
	jobAvailable    sync.Cond
	jobs            jobHeap
	sleepingWorkers int // blocked in popJob
	isClosed        bool
	workers         sync.WaitGroup
}

// NewQueue returns a queue without workers. It borrows them from pool, which holds *Worker. The
// caller must call Close and then Wait.
func NewQueue(ctx context.Context, pool *sync.Pool) *Queue {
	q := &Queue{ctx: ctx, pool: pool}
	q.jobAvailable.L = &q.mu
	return q
}

// Start starts n workers.
func (q *Queue) Start(n int) {
	for range n {
		q.workers.Add(1)
		go func() {
			defer q.workers.Done()
			q.Work()
		}()
	}
}

// Borrow returns a worker that pushes jobs into q. The caller must call Return.
func (q *Queue) Borrow() *Worker {
	w := q.pool.Get().(*Worker)
	w.queue = q
	return w
}

// Return ends the use of a borrowed worker.
func (q *Queue) Return(w *Worker) {
	w.queue = nil
	q.pool.Put(w)
}

// Work runs jobs until the queue is closed and empty. It drops jobs after the context is canceled.
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

// Push adds a job and wakes a worker.
func (q *Queue) Push(j Job) {
	q.mu.Lock()
	q.jobs.insertJob(j)
	wake := q.sleepingWorkers > 0
	q.mu.Unlock()
	if wake {
		q.jobAvailable.Signal()
	}
}

// popJob blocks until there is a job and removes it. It returns false if the queue is closed and
// empty.
func (q *Queue) popJob() (Job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 {
		if q.isClosed {
			return Job{}, false
		}
		q.sleepingWorkers++
		q.jobAvailable.Wait()
		q.sleepingWorkers--
	}
	return q.jobs.removeFirst(), true
}

// Len returns the number of jobs that have not started.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

// Close ends the workers when the queue is empty. If the context is canceled, they drop the
// remaining jobs.
func (q *Queue) Close() {
	q.mu.Lock()
	q.isClosed = true
	q.mu.Unlock()
	q.jobAvailable.Broadcast()
}

// Wait blocks until all workers have ended, then drops the jobs that were pushed after that.
func (q *Queue) Wait() {
	q.workers.Wait()
	q.mu.Lock()
	remaining := q.jobs
	q.jobs = nil
	q.mu.Unlock()
	for i := range remaining {
		remaining[i].dropJob()
	}
}

// dropJob releases the resources of a job that does not run.
func (j *Job) dropJob() {
	if j.Drop != nil {
		j.Drop()
	}
}

// jobHeap implements heap.Interface. insertJob and removeFirst replace Push and Pop, which would
// allocate an interface value per job.
type jobHeap []Job

func (h jobHeap) Len() int { return len(h) }
func (h jobHeap) Less(i, k int) bool {
	a, b := &h[i], &h[k]
	if a.Priority != b.Priority {
		return a.Priority < b.Priority
	}
	if a.Kind != b.Kind {
		return a.Kind < b.Kind
	}
	return a.Order < b.Order
}
func (h jobHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *jobHeap) Push(any)     {}
func (h *jobHeap) Pop() any     { return nil }

func (h *jobHeap) insertJob(j Job) {
	*h = append(*h, j)
	heap.Fix(h, len(*h)-1)
}

func (h *jobHeap) removeFirst() Job {
	old := *h
	j, last := old[0], len(old)-1
	old[0] = old[last]
	old[last] = Job{}
	if *h = old[:last]; last > 0 {
		heap.Fix(h, 0)
	}
	return j
}
