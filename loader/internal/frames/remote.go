package frames

import (
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache/video"
)

// remoteReads is how work is shared out where reading takes time: more workers than cores, a token for each core, and a bound on the
// bytes that are read ahead.
type remoteReads struct {
	cores chan struct{}
	bytes *semaphore.Weighted
}

// takeCore takes a core; the function that it gives hands it back.
func (r *remoteReads) takeCore() func() {
	if r == nil {
		return func() {}
	}
	r.cores <- struct{}{}
	return func() { <-r.cores }
}

// packetRead is packets of one file, read together, until the last task that decodes them is done. The file stays open: its packets are
// found by its index.
type packetRead struct {
	reads         *remoteReads
	file          File
	packets       *video.Fetched // nil: what is needed is read when it is decoded
	reservedBytes int64
	refs          atomic.Int32
}

// readPackets reads the packets of groups. It waits for nobody's bytes: what is fetched may wait in the queue for this very worker. Without room
// it reads nothing, but for a single task, whose packets are read all the same.
func (w *Worker) readPackets(file File, groups []video.Group, tasks int) (f *packetRead, ok bool) {
	m := w.s.remote
	f = &packetRead{reads: m, file: file}
	f.refs.Store(int32(tasks))
	for _, g := range groups {
		f.reservedBytes += file.FetchBytes(g)
	}
	if !m.bytes.TryAcquire(f.reservedBytes) {
		if f.reservedBytes = 0; tasks > 1 {
			return f, true
		}
	}
	begin := time.Now()
	b, err := file.Fetch(w.Ctx(), groups)
	w.s.Counters.Fetch.Add(int64(time.Since(begin)))
	if err != nil { // the context has ended
		m.bytes.Release(f.reservedBytes)
		f.reservedBytes = 0
		return f, false
	}
	f.packets = b
	return f, true
}

func (f *packetRead) release() {
	if f != nil && f.refs.Add(-1) == 0 {
		if f.packets != nil {
			f.packets.Release()
		}
		f.reads.bytes.Release(f.reservedBytes)
		f.file.Release()
	}
}

// readRun is tasks of one file that are fetched together: near ones are one read, and the others are read at once.
type readRun struct {
	tasks     []*task
	bytes     int64
	isStarted bool // guarded by Store.mu: a run whose tasks were made more urgent has several jobs
}

const (
	runTasks = 16
	runBytes = 4 << 20
)

// pushReadRun makes a job of a run, as urgent as the first of its tasks.
func (w *Worker) pushReadRun(r *readRun) {
	if len(r.tasks) == 0 {
		return
	}
	w.s.mu.Lock()
	first := r.tasks[0]
	for _, t := range r.tasks {
		if t.run = r; t.priority < first.priority {
			first = t
		}
	}
	j := w.s.taskJob(first)
	w.s.mu.Unlock()
	w.q.Push(j)
}

// readRunPackets reads the packets of a run, and makes jobs of its tasks.
func (w *Worker) readRunPackets(r *readRun) {
	col, path := r.tasks[0].stream, r.tasks[0].path
	w.numbers = w.numbers[:0]
	w.s.mu.Lock()
	begun := r.isStarted
	r.isStarted = true
	for _, t := range r.tasks {
		for _, x := range t.frames {
			w.numbers = append(w.numbers, int(x.key.ordinal))
		}
	}
	w.s.mu.Unlock()
	if begun {
		return // a more urgent job of it came first
	}
	var f *packetRead
	if file, err := col.Files.Open(w.Ctx(), path); err == nil { // else the tasks say so
		var ok bool
		if f, ok = w.readPackets(file, w.decodableGroups(file), len(r.tasks)); !ok {
			file.Release()
			return // the run is over
		}
	}
	for _, t := range r.tasks {
		w.s.mu.Lock()
		t.run, t.fetched = nil, f
		j := w.s.taskJob(t)
		w.s.mu.Unlock()
		w.q.Push(j)
	}
}
