package loader

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache/video"
)

// job is one piece of work for a worker. prio is the batch that needs it first; sub orders the jobs of one batch.
type job struct {
	prio, sub int64
	kind      jobKind
	col       int32
	lo, hi    int32
	p         *part
	parts     []*part // of one source, in a horizon
	task      *fileTask
	stills    *stillSet
	admit     *admitted
	chunk     *chunk
	copies    *copies
	group     video.Group
	fetched   *fetched // of the group; nil: not yet
	run       []job    // groups to be fetched together
}

type jobKind uint8

// Of one batch the smaller kind runs first. Groups come before files, so that what is open is decoded and closed before more is opened:
// a batch may want more files than a process may open.
const (
	jobAdmit  jobKind = iota // open a file of an episode that becomes resident; makes chunk jobs
	jobLocate                // ask where the frames of a column lie; makes file jobs
	jobSort                  // find the distinct rows of a column of stills; makes still jobs
	jobGather
	jobText
	jobRagged // one tensor of a batch whose rows vary in length
	jobCopy   // frames that are there already
	jobGroup
	jobChunk
	jobFetch // read the packets of groups of a file that is far away; makes group jobs
	jobFile  // open a file and plan its groups; makes group jobs
	jobStill
)

func (j *job) before(k *job) bool {
	if j.prio != k.prio {
		return j.prio < k.prio
	}
	if j.kind != k.kind {
		return j.kind < k.kind
	}
	return j.sub < k.sub
}

// queue hands jobs to workers, the earliest batch's first.
type queue struct {
	ctx    context.Context
	mu     sync.Mutex
	more   sync.Cond
	heap   []job
	asleep int
	closed bool
	wg     sync.WaitGroup
}

func newQueue(ctx context.Context) *queue {
	q := &queue{ctx: ctx}
	q.more.L = &q.mu
	return q
}

// start adds workers.
func (q *queue) start(a *assembler, n int) {
	for range n {
		q.wg.Add(1)
		go func() {
			defer q.wg.Done()
			q.work(a)
		}()
	}
}

// work runs jobs until the queue is closed.
func (q *queue) work(a *assembler) {
	w := a.workers.Get().(*worker)
	defer a.workers.Put(w)
	w.q = q
	for {
		j, ok := q.pop()
		if !ok {
			w.q = nil
			return
		}
		if q.ctx.Err() != nil {
			j.drop()
			continue
		}
		w.run(&j)
	}
}

func (q *queue) push(j job) {
	q.mu.Lock()
	q.heap = append(q.heap, j)
	up(q.heap, len(q.heap)-1)
	wake := q.asleep > 0
	q.mu.Unlock()
	if wake {
		q.more.Signal()
	}
}

func (q *queue) pop() (job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.heap) == 0 {
		if q.closed {
			return job{}, false
		}
		q.asleep++
		q.more.Wait()
		q.asleep--
	}
	j := q.heap[0]
	n := len(q.heap) - 1
	q.heap[0] = q.heap[n]
	q.heap[n] = job{}
	q.heap = q.heap[:n]
	down(q.heap)
	return j, true
}

// close lets the workers end once the queue is empty; with its context ended they drop what is left.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Broadcast()
}

// wait waits for the workers, and drops what nobody took.
func (q *queue) wait() {
	q.wg.Wait()
	q.mu.Lock()
	left := q.heap
	q.heap = nil
	q.mu.Unlock()
	for i := range left {
		left[i].drop()
	}
}

// drop gives back what a job holds that will not run.
func (j *job) drop() {
	switch j.kind {
	case jobGroup:
		j.fetched.unref()
		j.task.done()
	case jobFetch:
		for range j.run {
			j.task.done()
		}
	}
}

func up(h []job, i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func down(h []job) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
