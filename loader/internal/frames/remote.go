package frames

import (
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache/video"
)

// remoteReads limits work when reads are slow. There are more workers than cores, so each decode
// takes a token. Bytes that are read ahead are bounded.
type remoteReads struct {
	coreTokens     chan struct{}
	readAheadBytes *semaphore.Weighted
}

// takeCore blocks until a core is free and returns the function that releases it. r may be nil.
func (r *remoteReads) takeCore() func() {
	if r == nil {
		return func() {}
	}
	r.coreTokens <- struct{}{}
	return func() { <-r.coreTokens }
}

// packetRead holds packets of one file that were read together. It is released with the last task
// that decodes them. The file stays open, because its index locates the packets.
type packetRead struct {
	reads         *remoteReads
	file          File
	packets       *video.Fetched // nil: each decode reads its own packets
	reservedBytes int64
	refs          atomic.Int32 // tasks that have not been decoded
}

// readPackets reads the packets of groups for a number of tasks. It never waits for the byte budget,
// because tasks that this worker has yet to run may hold it. If the budget is used up, it reads
// nothing, and each task reads its packets later. For a single task it reads anyway. It returns
// false if the run was canceled. The caller must call releaseRef once per task.
func (w *Worker) readPackets(file File, groups []video.Group, tasks int) (f *packetRead, ok bool) {
	reads := w.store.remote
	f = &packetRead{reads: reads, file: file}
	f.refs.Store(int32(tasks))
	for _, g := range groups {
		f.reservedBytes += file.FetchBytes(g)
	}
	if !reads.readAheadBytes.TryAcquire(f.reservedBytes) {
		f.reservedBytes = 0
		if tasks > 1 {
			return f, true
		}
	}
	begin := time.Now()
	packets, err := file.Fetch(w.Ctx(), groups)
	w.store.Counters.Fetch.Add(int64(time.Since(begin)))
	if err != nil { // the context is canceled
		reads.readAheadBytes.Release(f.reservedBytes)
		f.reservedBytes = 0
		return f, false
	}
	f.packets = packets
	return f, true
}

// releaseRef ends the use by one task. The last call releases packets and file. f may be nil.
func (f *packetRead) releaseRef() {
	if f != nil && f.refs.Add(-1) == 0 {
		if f.packets != nil {
			f.packets.Release()
		}
		f.reads.readAheadBytes.Release(f.reservedBytes)
		f.file.Release()
	}
}

// readRun is a set of tasks of one file whose packets are read by one job. Nearby packets are
// merged into one read, and the reads are concurrent.
type readRun struct {
	tasks []*task
	bytes int64
	// isStarted is set by the first job of the run. There are several jobs if tasks of the run
	// became more urgent after it was queued. Guarded by Store.mu.
	isStarted bool
}

// Limits of a read run.
const (
	maxRunTasks = 16
	maxRunBytes = 4 << 20 // more only if a single task has more
)

// pushReadRun queues a job for a run at the priority of its most urgent task.
func (w *Worker) pushReadRun(r *readRun) {
	if len(r.tasks) == 0 {
		return
	}
	w.store.mu.Lock()
	first := r.tasks[0]
	for _, t := range r.tasks {
		t.readRun = r
		if t.priority < first.priority {
			first = t
		}
	}
	j := w.store.taskJob(first)
	w.store.mu.Unlock()
	w.queue.Push(j)
}

// readRunPackets reads the packets of a run and queues a decode job for each of its tasks.
func (w *Worker) readRunPackets(r *readRun) {
	col, path := r.tasks[0].stream, r.tasks[0].path
	w.ordinals = w.ordinals[:0]
	w.store.mu.Lock()
	wasStarted := r.isStarted
	r.isStarted = true
	for _, t := range r.tasks {
		for _, x := range t.frames {
			w.ordinals = append(w.ordinals, int(x.key.ordinal))
		}
	}
	w.store.mu.Unlock()
	if wasStarted {
		return // a more urgent job of the run ran first
	}
	var f *packetRead
	if file, err := col.Files.Open(w.Ctx(), path); err == nil { // decodeTask reports err
		var ok bool
		if f, ok = w.readPackets(file, w.decodableGroups(file), len(r.tasks)); !ok {
			file.Release()
			return // the run was canceled
		}
	}
	for _, t := range r.tasks {
		w.store.mu.Lock()
		t.readRun, t.fetched = nil, f
		j := w.store.taskJob(t)
		w.store.mu.Unlock()
		w.queue.Push(j)
	}
}
