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

// Worker is what one goroutine needs to run jobs: scratch that outlives them.
type Worker struct {
	Owner any // what the owner of the workers keeps beside it

	s             *Store
	q             *Queue
	scratch, side []uint64
	planner       video.Planner
	numbers       []int
	deliverFrame  func(number int, f video.Frame) error

	// of the task that is being decoded
	task        *task
	delivered   []bool
	convertTime time.Duration // in deliver
}

// NewWorker makes a worker of a store.
func NewWorker(s *Store, own any) *Worker {
	w := &Worker{s: s, Owner: own}
	w.deliverFrame = w.receiveFrame
	return w
}

// Ctx ends when the run of the worker's queue does.
func (w *Worker) Ctx() context.Context { return w.q.ctx }

// Push adds a job to the worker's queue.
func (w *Worker) Push(j Job) { w.q.Push(j) }

// TakeCore takes a core where there are more workers than cores; the function that it gives hands it back.
func (w *Worker) TakeCore() func() { return w.s.TakeCore() }

// Scratch gives scratch at an 8-byte boundary, until the next call.
func (w *Worker) Scratch(n int) []byte { return growScratch(&w.scratch, n) }

func growScratch(b *[]uint64, n int) []byte {
	if len(*b)*8 < n {
		*b = make([]uint64, (n+7)/8)
	}
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*b))), n)
}

// request is frames of one file that are to be decoded.
type request struct {
	stream       *Stream
	path         string
	fileNumber   int32 // of the file among those asked for together
	frames       []*frame
	taskFrames   int   // frames of a task: more where nobody waits, for starting at a sync sample is then paid rarely
	idlePriority int64 // prio of frames that nobody waits for
}

// task is neighbouring frames of one file that are decoded in one go.
type task struct {
	*request
	frames    []*frame    // by frame number
	priority  int64       // of its most urgent job; guarded by Store.mu
	run       *readRun    // it is to be fetched with; guarded by Store.mu, as all below is
	isStarted bool        // a task that was made more urgent has two jobs
	fetched   *packetRead // nil: not yet, or taken
}

// takeFetched gives what was fetched for the task, once, and whether this is the first job of it.
func (s *Store) takeFetched(t *task) (f *packetRead, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, first = t.fetched, !t.isStarted
	t.fetched, t.isStarted = nil, true
	return f, first
}

// firstWaitingBatch is the first batch that waits for frames. s.mu is held, or they are not shared yet.
func firstWaitingBatch(list []*frame) int64 {
	first := int64(math.MaxInt64)
	for _, x := range list {
		for _, at := range x.waiters {
			first = min(first, at.target.BatchNumber())
		}
	}
	return first
}

// pushPlanning makes a job of planning.
func (r *request) pushPlanning(w *Worker, prio int64) {
	w.q.Push(Job{Prio: prio, Sub: int64(r.stream.ID)<<32 | int64(r.fileNumber), Kind: planKind, Run: func(w *Worker) { w.planRequest(r) }})
}

// taskJob is the task's job at its present urgency: before it is decoded its run is fetched. s.mu is held.
func (s *Store) taskJob(t *task) Job {
	if r := t.run; r != nil {
		return Job{Prio: t.priority, Sub: int64(t.stream.ID)<<32 | int64(t.fileNumber), Kind: fetchKind, Run: func(w *Worker) { w.readRunPackets(r) }}
	}
	first := int64(0)
	if len(t.frames) > 0 {
		first = int64(t.frames[0].key.ordinal)
	}
	return Job{Prio: t.priority, Sub: int64(t.stream.ID)<<48 | int64(t.fileNumber)<<32 | first, Kind: decodeKind,
		Run: func(w *Worker) { w.decodeTask(t) }, Drop: func() { f, _ := s.takeFetched(t); f.release() }}
}

// planRequest opens a file and makes tasks of the frames that are wanted of it.
func (w *Worker) planRequest(r *request) {
	begin := time.Now()
	defer func() { w.s.Counters.Plan.Add(int64(time.Since(begin))) }()
	s := w.s
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
	w.numbers = w.numbers[:0]
	for _, x := range r.frames {
		w.numbers = append(w.numbers, int(x.key.ordinal))
	}
	var ahead *readRun // of tasks that are fetched together
	if s.remote != nil && file.Remote() {
		ahead = &readRun{}
	}
	t := &task{request: r}
	flush := func() {
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
		if ahead != nil {
			ahead.tasks = append(ahead.tasks, t)
		} else {
			w.q.Push(j)
		}
		t = &task{request: r}
	}
	for _, g := range file.Plan(&w.planner, w.numbers) {
		if ahead != nil {
			size := file.FetchBytes(g)
			if n := len(ahead.tasks); n == runTasks || n > 0 && ahead.bytes+size > runBytes {
				w.pushReadRun(ahead)
				ahead = &readRun{}
			}
			ahead.bytes += size
		}
		for _, o := range g.Ordinals {
			if x := findFrame(r.frames, o); x != nil {
				t.frames = append(t.frames, x)
			}
		}
		if len(t.frames) >= r.taskFrames {
			flush()
		}
	}
	if flush(); ahead != nil {
		w.pushReadRun(ahead)
	}
}

// rejectWaiters takes those places out whose frames are refused (Stream.Check).
func (w *Worker) rejectWaiters(r *request, file File) {
	check := r.stream.Check
	if check == nil {
		return
	}
	for _, x := range r.frames { // no store knows them: nobody else looks at them
		x.waiters = slices.DeleteFunc(x.waiters, func(at waiter) bool {
			err := check(w, file, at.target, int(at.place), int(x.key.ordinal))
			if err != nil {
				at.target.Fail(int(at.place), r.path, int(x.key.ordinal), err)
			}
			return err != nil
		})
	}
}

// failFrame says that a frame cannot be had.
func (w *Worker) failFrame(r *request, x *frame, err error) {
	failWaiters(w.s.markFailed(x, err), r.path, x)
}

// decodableGroups plans w.numbers, less what the file does not have.
func (w *Worker) decodableGroups(file File) []video.Group {
	return slices.DeleteFunc(file.Plan(&w.planner, w.numbers), func(g video.Group) bool { return g.Cost() <= 0 })
}

// decodeTask decodes what is still wanted of a task.
func (w *Worker) decodeTask(t *task) {
	s := w.s
	f, first := s.takeFetched(t)
	defer func() { f.release() }()
	if !first {
		return // a more urgent job of it came first
	}
	w.numbers = w.numbers[:0]
	kept := t.frames[:0]
	s.mu.Lock()
	for _, x := range t.frames {
		if x.uses == (uses{}) && len(x.waiters) == 0 {
			s.unindexFrame(x)
			continue
		}
		kept = append(kept, x)
		w.numbers = append(w.numbers, int(x.key.ordinal))
	}
	t.frames = kept // under the lock: who wants a frame of it reads them to raise the task
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
			return // the run is over
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
			return // the run is over: its places need not be counted
		}
		// Whether a frame can be had must not depend on its neighbours (F3).
		if len(kept) > 1 || err == nil {
			var p video.Planner
			single := file.Plan(&p, []int{int(x.key.ordinal)})
			if single[0].Cost() <= 0 {
				err = robocache.Malformed("decode", nil, "the video has no frame of that number").
					WithHint("the video is shorter than its table")
			} else if err = file.Decode(w.Ctx(), nil, single, w.deliverFrame); w.delivered[i] {
				continue
			}
		}
		if err == nil {
			err = robocache.Malformed("decode", nil, "the decoder gave no frame")
		}
		w.failFrame(t.request, x, err)
	}
}

// borrowedFile is a file that its opener releases.
type borrowedFile struct{ File }

func (borrowedFile) Release() {}

// receiveFrame gets one decoded frame: for those who wait for it, and for those who will come.
func (w *Worker) receiveFrame(number int, f video.Frame) error {
	begin := time.Now()
	defer func() { w.convertTime += time.Since(begin) }()
	s, t := w.s, w.task
	i, ok := slices.BinarySearchFunc(t.frames, number, func(x *frame, o int) int { return int(x.key.ordinal) - o })
	if !ok || w.delivered[i] {
		return nil
	}
	x, col := t.frames[i], t.stream
	planes := s.planesToKeep(f)
	s.mu.Lock()
	wait := x.waiters
	s.mu.Unlock()
	size := col.FrameSize
	if planes != nil {
		info, _ := planes.PlaneInfo()
		size = info.Bytes()
	}
	var pixels []byte
	stored := false
	switch {
	case len(wait) > 0:
		pixels = wait[0].target.Buffer(w, int(wait[0].place))
	case planes == nil && col.Device == nil:
		pixels = w.Scratch(size)
	case planes == nil: // it is made where it stays, or later
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
	wait = s.publish(x, stored)
	defer s.unpin(x)
	if pixels == nil && len(wait) > 0 { // they came meanwhile
		pixels = wait[0].target.Buffer(w, int(wait[0].place))
		if x.err = col.Renderer.Render(f, pixels); x.err != nil {
			failWaiters(wait, t.path, x)
			return nil
		}
	}
	for _, at := range wait {
		at.target.Put(int(at.place), pixels)
	}
	s.Counters.Frames.Add(int64(len(wait)))
	// Only when all copies are made: a finished batch may be released, and its first frame overwritten.
	for _, at := range wait {
		at.target.Complete(1)
	}
	return nil
}

// planesToKeep is the frame where it is kept as its planes; else nil.
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
