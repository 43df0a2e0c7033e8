package frames

import (
	"context"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Worker holds the scratch memory that one goroutine needs to run jobs. A Worker is not safe for
// concurrent use.
type Worker struct {
	Owner any // the owner's per-worker state

	store                 *Store
	queue                 *Queue
	scratch, planeScratch []uint64
	planner               video.Planner
	ordinals              []int
	deliverFrame          func(number int, f video.Frame) error

	// The fields below belong to the task that is being decoded.
	task        *task
	delivered   []bool
	convertTime time.Duration // time spent in receiveFrame
}

// NewWorker returns a worker of s. own becomes Owner.
func NewWorker(s *Store, owner any) *Worker {
	w := &Worker{store: s, Owner: owner}
	w.deliverFrame = w.receiveFrame
	return w
}

// Ctx returns the context of the worker's queue. It is canceled when the run ends.
func (w *Worker) Ctx() context.Context { return w.queue.ctx }

// Push adds a job to the worker's queue.
func (w *Worker) Push(j Job) { w.queue.Push(j) }

// TakeCore blocks until a core is free; see Store.TakeCore.
func (w *Worker) TakeCore() func() { return w.store.TakeCore() }

// Scratch returns n bytes at an 8-byte boundary. They are valid until the next call.
func (w *Worker) Scratch(n int) []byte { return growScratch(&w.scratch, n) }

// growScratch returns the first n bytes of b and enlarges b first if it is too small.
func growScratch(b *[]uint64, n int) []byte {
	if len(*b)*8 < n {
		*b = make([]uint64, (n+7)/8)
	}
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*b))), n)
}

// request is a set of frames of one file that are decoded.
type request struct {
	stream     *Stream
	path       string
	fileNumber int32 // index of the file in the paths of one RequestFrames call
	frames     []*frame
	// taskFrames is the minimum number of frames of a task. It is larger if no slot waits, so that
	// decoding starts at a sync sample less often.
	taskFrames   int
	idlePriority int64 // priority of frames without waiters
}

// task is a run of neighboring frames of one file that one job decodes.
type task struct {
	*request
	frames    []*frame    // sorted by frame number
	priority  int64       // the priority of its most urgent job; guarded by Store.mu
	readRun   *readRun    // reads its packets; guarded by Store.mu, like the fields below
	isStarted bool        // set by its first job; a task that became more urgent has two jobs
	fetched   *packetRead // nil: not read yet, or taken by a job
}

// takeFetched returns the packets that were read for t, at most once. first reports whether the
// caller is the first job of t.
func (s *Store) takeFetched(t *task) (f *packetRead, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, first = t.fetched, !t.isStarted
	t.fetched, t.isStarted = nil, true
	return f, first
}

// firstWaitingBatch returns the lowest batch number that waits for one of the frames. Caller must
// hold s.mu unless the frames are not shared yet.
func firstWaitingBatch(list []*frame) int64 {
	first := int64(math.MaxInt64)
	for _, x := range list {
		for _, at := range x.waiters {
			first = min(first, at.target.BatchNumber())
		}
	}
	return first
}

// pushPlanning queues a job that plans r.
func (r *request) pushPlanning(w *Worker, priority int64) {
	w.queue.Push(Job{
		Priority: priority,
		Order:    int64(r.stream.ID)<<32 | int64(r.fileNumber),
		Kind:     planKind,
		Run:      func(w *Worker) { w.planRequest(r) },
	})
}

// taskJob returns a job for t at its current priority. The job decodes t, or first reads the
// packets of t's run. Caller must hold s.mu.
func (s *Store) taskJob(t *task) Job {
	if r := t.readRun; r != nil {
		return Job{
			Priority: t.priority,
			Order:    int64(t.stream.ID)<<32 | int64(t.fileNumber),
			Kind:     fetchKind,
			Run:      func(w *Worker) { w.readRunPackets(r) },
		}
	}
	first := int64(0)
	if len(t.frames) > 0 {
		first = int64(t.frames[0].key.ordinal)
	}
	return Job{
		Priority: t.priority,
		Order:    int64(t.stream.ID)<<48 | int64(t.fileNumber)<<32 | first,
		Kind:     decodeKind,
		Run:      func(w *Worker) { w.decodeTask(t) },
		Drop:     func() { f, _ := s.takeFetched(t); f.releaseRef() },
	}
}

// planRequest opens a file, groups the requested frames into tasks and queues a job for each task.
// Tasks of a remote file are grouped into read runs.
func (w *Worker) planRequest(r *request) {
	begin := time.Now()
	defer func() { w.store.Counters.Plan.Add(int64(time.Since(begin))) }()
	s := w.store
	file, err := r.stream.Files.Open(w.Ctx(), r.path)
	if err != nil {
		for _, x := range r.frames {
			w.failFrame(r, x, err)
		}
		return
	}
	defer file.Release()
	if s.arena == nil && s.disk == nil {
		w.rejectWaiters(r, file)
	}
	w.ordinals = w.ordinals[:0]
	for _, x := range r.frames {
		w.ordinals = append(w.ordinals, int(x.key.ordinal))
	}
	var run *readRun // collects tasks whose packets are read together; nil: the file is local
	if s.remote != nil && file.Remote() {
		run = &readRun{}
	}
	t := &task{request: r}
	finishTask := func() {
		if len(t.frames) == 0 {
			return
		}
		sortByOrdinal(t.frames)
		s.mu.Lock()
		t.priority = min(firstWaitingBatch(t.frames), r.idlePriority)
		for _, x := range t.frames {
			x.task = t
		}
		j := s.taskJob(t)
		s.mu.Unlock()
		if run != nil {
			run.tasks = append(run.tasks, t)
		} else {
			w.queue.Push(j)
		}
		t = &task{request: r}
	}
	for _, g := range file.Plan(&w.planner, w.ordinals) {
		if run != nil {
			size := file.FetchBytes(g)
			if n := len(run.tasks); n == maxRunTasks || n > 0 && run.bytes+size > maxRunBytes {
				w.pushReadRun(run)
				run = &readRun{}
			}
			run.bytes += size
		}
		for _, o := range g.Ordinals {
			if x := findFrame(r.frames, o); x != nil {
				t.frames = append(t.frames, x)
			}
		}
		if len(t.frames) >= r.taskFrames {
			finishTask()
		}
	}
	finishTask()
	if run != nil {
		w.pushReadRun(run)
	}
}

// rejectWaiters fails and removes the waiters whose frames Stream.Check rejects. The frames must
// not be shared yet.
func (w *Worker) rejectWaiters(r *request, file File) {
	check := r.stream.Check
	if check == nil {
		return
	}
	for _, x := range r.frames { // not in any index, so no lock is needed
		x.waiters = slices.DeleteFunc(x.waiters, func(at waiter) bool {
			err := check(w, file, at.target, int(at.slot), int(x.key.ordinal))
			if err != nil {
				at.target.Fail(int(at.slot), r.path, int(x.key.ordinal), err)
			}
			return err != nil
		})
	}
}

// failFrame marks x as failed and fails its waiters.
func (w *Worker) failFrame(r *request, x *frame, err error) {
	failWaiters(w.store.markFailed(x, err), r.path, x)
}

// decodableGroups returns the decode groups of w.ordinals that exist in the file.
func (w *Worker) decodableGroups(file File) []video.Group {
	groups := file.Plan(&w.planner, w.ordinals)
	return slices.DeleteFunc(groups, func(g video.Group) bool { return g.Cost() <= 0 })
}

// decodeTask decodes the frames of t that still have uses or waiters.
func (w *Worker) decodeTask(t *task) {
	s := w.store
	f, first := s.takeFetched(t)
	defer func() { f.releaseRef() }()
	if !first {
		return // a more urgent job of the task ran first
	}
	w.ordinals = w.ordinals[:0]
	kept := t.frames[:0]
	s.mu.Lock()
	for _, x := range t.frames {
		if x.uses == (uses{}) && len(x.waiters) == 0 {
			s.unindexFrame(x)
			continue
		}
		kept = append(kept, x)
		w.ordinals = append(w.ordinals, int(x.key.ordinal))
	}
	t.frames = kept // under the lock, because lookupFile reads t.frames to raise the priority of t
	s.mu.Unlock()
	if len(kept) == 0 {
		return
	}
	file, err := t.stream.Files.Open(w.Ctx(), t.path)
	if err != nil {
		for _, x := range kept {
			w.failFrame(t.request, x, err)
		}
		return
	}
	defer file.Release()
	groups := w.decodableGroups(file)
	if f == nil && s.remote != nil && file.Remote() {
		var ok bool
		if f, ok = w.readPackets(borrowedFile{file}, groups, 1); !ok {
			return // the run was canceled
		}
	}
	var packets *video.Fetched
	if f != nil {
		packets = f.packets
	}
	if _, reads := file.(ReadsToDecode); !reads {
		defer w.TakeCore()()
	}
	begin := time.Now()
	w.task, w.convertTime = t, 0
	w.delivered = slices.Grow(w.delivered[:0], len(kept))[:len(kept)]
	clear(w.delivered)
	defer func() {
		w.task = nil
		s.Counters.Decode.Add(int64(time.Since(begin) - w.convertTime))
		s.Counters.Convert.Add(int64(w.convertTime))
	}()
	if len(groups) > 0 {
		err = file.Decode(w.Ctx(), packets, groups, w.deliverFrame)
	}
	for i, x := range kept {
		if w.delivered[i] {
			continue
		}
		if w.Ctx().Err() != nil {
			return // the run was canceled: no consumer waits for these slots
		}
		// Retry alone: a frame must not fail because of its neighbors (frames.F3).
		if len(kept) > 1 || err == nil {
			if err = w.retryFrame(file, x); w.delivered[i] {
				continue
			}
		}
		if err == nil {
			err = robocache.Malformed("decode", nil, "the decoder returned no frame")
		}
		w.failFrame(t.request, x, err)
	}
}

// retryFrame decodes one frame of the current task without the others.
func (w *Worker) retryFrame(file File, x *frame) error {
	var p video.Planner
	single := file.Plan(&p, []int{int(x.key.ordinal)})
	if single[0].Cost() <= 0 {
		return robocache.Malformed("decode", nil, "the video has no frame of that number").
			WithHint("the video is shorter than its table")
	}
	return file.Decode(w.Ctx(), nil, single, w.deliverFrame)
}

// borrowedFile has a no-op Release; its opener owns the file.
type borrowedFile struct{ File }

func (borrowedFile) Release() {}

// receiveFrame renders one decoded frame for its waiters and stores it if later samples need it.
func (w *Worker) receiveFrame(number int, f video.Frame) error {
	begin := time.Now()
	defer func() { w.convertTime += time.Since(begin) }()
	s, t := w.store, w.task
	i, ok := searchOrdinal(t.frames, number)
	if !ok || w.delivered[i] {
		return nil
	}
	x, col := t.frames[i], t.stream
	planes := s.planesToKeep(f)
	s.mu.Lock()
	slots := x.waiters
	s.mu.Unlock()
	size := col.FrameSize
	if planes != nil {
		info, _ := planes.PlaneInfo()
		size = info.Bytes()
	}
	var pixels []byte
	stored := false
	switch {
	case len(slots) > 0:
		pixels = slots[0].target.Buffer(w, int(slots[0].slot))
	case planes == nil && col.Device == nil:
		pixels = w.Scratch(size)
	case planes == nil:
		// On a device, render into the frame's own memory. If it gets none, the frame is rendered
		// below when waiters have arrived.
		if s.reserveCache(x, size) && s.allocateOnDevice(x) {
			pixels, stored = x.memory.mem[:size], true
		}
	}
	if pixels != nil {
		if err := col.Renderer.Render(f, pixels); err != nil {
			return err
		}
	}
	if !stored && s.reserveCache(x, size) {
		stored, _ = s.storeFrame(x, col, planes, pixels)
	}
	if s.disk != nil {
		w.writeToDisk(t.request, number, f, planes, pixels)
	}
	w.delivered[i] = true
	s.Counters.Unique.Add(1)
	slots = s.publish(x, stored)
	defer s.unpin(x)
	if pixels == nil && len(slots) > 0 { // waiters arrived after slots was read
		pixels = slots[0].target.Buffer(w, int(slots[0].slot))
		if x.err = col.Renderer.Render(f, pixels); x.err != nil {
			failWaiters(slots, t.path, x)
			return nil
		}
	}
	for _, at := range slots {
		at.target.Put(int(at.slot), pixels)
	}
	s.Counters.Frames.Add(int64(len(slots)))
	// Complete slots only after all copies: Complete may release a batch, and pixels may alias its
	// memory.
	for _, at := range slots {
		at.target.Complete(1)
	}
	return nil
}

// planesToKeep returns the planes of f if the store keeps planes and f has them, else nil.
func (s *Store) planesToKeep(f video.Frame) video.PlanarFrame {
	p, ok := f.(video.PlanarFrame)
	if !ok || !s.planar {
		return nil
	}
	if _, ok := p.PlaneInfo(); !ok {
		return nil
	}
	return p
}
