package frames

import (
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache/video"
)

// remote is how work is shared out where reading takes time: more workers than cores, a token for each core, and a bound on the
// bytes that are read ahead.
type remote struct {
	cores chan struct{}
	bytes *semaphore.Weighted
}

// core takes a core; the function that it gives hands it back.
func (r *remote) core() func() {
	if r == nil {
		return func() {}
	}
	r.cores <- struct{}{}
	return func() { <-r.cores }
}

// fetched is packets of one file, read together, until the last task that decodes them is done. The file stays open: its packets are
// found by its index.
type fetched struct {
	m    *remote
	file File
	b    *video.Fetched // nil: what is needed is read when it is decoded
	need int64
	refs atomic.Int32
}

// fetch reads the packets of groups. It waits for nobody's bytes: what is fetched may wait in the queue for this very worker. Without room
// it reads nothing, but for a single task, whose packets are read all the same.
func (w *Worker) fetch(file File, groups []video.Group, tasks int) (f *fetched, ok bool) {
	m := w.s.remote
	f = &fetched{m: m, file: file}
	f.refs.Store(int32(tasks))
	for _, g := range groups {
		f.need += file.FetchBytes(g)
	}
	if !m.bytes.TryAcquire(f.need) {
		if f.need = 0; tasks > 1 {
			return f, true
		}
	}
	begin := time.Now()
	b, err := file.Fetch(w.Ctx(), groups)
	w.s.N.Fetch.Add(int64(time.Since(begin)))
	if err != nil { // the context has ended
		m.bytes.Release(f.need)
		f.need = 0
		return f, false
	}
	f.b = b
	return f, true
}

func (f *fetched) unref() {
	if f != nil && f.refs.Add(-1) == 0 {
		if f.b != nil {
			f.b.Release()
		}
		f.m.bytes.Release(f.need)
		f.file.Release()
	}
}

// run is tasks of one file that are fetched together: near ones are one read, and the others are read at once.
type run struct {
	tasks []*task
	bytes int64
	begun bool // guarded by Store.mu: a run whose tasks were made more urgent has several jobs
}

const (
	runTasks = 16
	runBytes = 4 << 20
)

// pushRun makes a job of a run, as urgent as the first of its tasks.
func (w *Worker) pushRun(r *run) {
	if len(r.tasks) == 0 {
		return
	}
	w.s.mu.Lock()
	first := r.tasks[0]
	for _, t := range r.tasks {
		if t.run = r; t.prio < first.prio {
			first = t
		}
	}
	j := w.s.job(first)
	w.s.mu.Unlock()
	w.q.Push(j)
}

// fetchRun reads the packets of a run, and makes jobs of its tasks.
func (w *Worker) fetchRun(r *run) {
	col, path := r.tasks[0].col, r.tasks[0].path
	w.numbers = w.numbers[:0]
	w.s.mu.Lock()
	begun := r.begun
	r.begun = true
	for _, t := range r.tasks {
		for _, x := range t.frames {
			w.numbers = append(w.numbers, int(x.key.ordinal))
		}
	}
	w.s.mu.Unlock()
	if begun {
		return // a more urgent job of it came first
	}
	var f *fetched
	if file, err := col.Files.Open(w.Ctx(), path); err == nil { // else the tasks say so
		var ok bool
		if f, ok = w.fetch(file, w.decodable(file), len(r.tasks)); !ok {
			file.Release()
			return // the run is over
		}
	}
	for _, t := range r.tasks {
		w.s.mu.Lock()
		t.run, t.fetched = nil, f
		j := w.s.job(t)
		w.s.mu.Unlock()
		w.q.Push(j)
	}
}
