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
	Own any // what the owner of the workers keeps beside it

	s             *Store
	q             *Queue
	scratch, side []uint64
	planner       video.Planner
	numbers       []int
	deliver       func(number int, f video.Frame) error

	// of the task that is being decoded
	task  *task
	got   []bool
	spent time.Duration // in deliver
}

// NewWorker makes a worker of a store.
func NewWorker(s *Store, own any) *Worker {
	w := &Worker{s: s, Own: own}
	w.deliver = w.receive
	return w
}

// Ctx ends when the run of the worker's queue does.
func (w *Worker) Ctx() context.Context { return w.q.ctx }

// Push adds a job to the worker's queue.
func (w *Worker) Push(j Job) { w.q.Push(j) }

// Core takes a core where there are more workers than cores; the function that it gives hands it back.
func (w *Worker) Core() func() { return w.s.Core() }

// Bytes gives scratch at an 8-byte boundary, until the next call.
func (w *Worker) Bytes(n int) []byte { return room(&w.scratch, n) }

func room(b *[]uint64, n int) []byte {
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
	col    *Stream
	path   string
	number int32 // of the file among those asked for together
	frames []*frame
	least  int   // frames of a task: more where nobody waits, for starting at a sync sample is then paid rarely
	later  int64 // prio of frames that nobody waits for
}

// task is neighbouring frames of one file that are decoded in one go.
type task struct {
	*request
	frames  []*frame // by frame number
	prio    int64    // of its most urgent job; guarded by Store.mu
	run     *run     // it is to be fetched with; guarded by Store.mu, as all below is
	begun   bool     // a task that was made more urgent has two jobs
	fetched *fetched // nil: not yet, or taken
}

// take gives what was fetched for the task, once, and whether this is the first job of it.
func (s *Store) take(t *task) (f *fetched, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, first = t.fetched, !t.begun
	t.fetched, t.begun = nil, true
	return f, first
}

// seqOf is the first batch that waits for frames. s.mu is held, or they are not shared yet.
func seqOf(list []*frame) int64 {
	first := int64(math.MaxInt64)
	for _, x := range list {
		for _, at := range x.wait {
			first = min(first, at.to.Seq())
		}
	}
	return first
}

// push makes a job of planning.
func (r *request) push(w *Worker, prio int64) {
	w.q.Push(Job{Prio: prio, Sub: int64(r.col.ID)<<32 | int64(r.number), Kind: plan, Run: func(w *Worker) { w.plan(r) }})
}

// job is the task's job at its present urgency: before it is decoded its run is fetched. s.mu is held.
func (s *Store) job(t *task) Job {
	if r := t.run; r != nil {
		return Job{Prio: t.prio, Sub: int64(t.col.ID)<<32 | int64(t.number), Kind: fetch, Run: func(w *Worker) { w.fetchRun(r) }}
	}
	first := int64(0)
	if len(t.frames) > 0 {
		first = int64(t.frames[0].key.ordinal)
	}
	return Job{Prio: t.prio, Sub: int64(t.col.ID)<<48 | int64(t.number)<<32 | first, Kind: decode,
		Run: func(w *Worker) { w.decode(t) }, Drop: func() { f, _ := s.take(t); f.unref() }}
}

// plan opens a file and makes tasks of the frames that are wanted of it.
func (w *Worker) plan(r *request) {
	begin := time.Now()
	defer func() { w.s.N.Plan.Add(int64(time.Since(begin))) }()
	s := w.s
	file, err := r.col.Files.Open(w.Ctx(), r.path)
	if err != nil {
		for _, x := range r.frames {
			w.giveUp(r, x, err)
		}
		return
	}
	defer file.Release()
	if s.arena == nil && s.disk == nil {
		w.checkWaiting(r, file)
	}
	w.numbers = w.numbers[:0]
	for _, x := range r.frames {
		w.numbers = append(w.numbers, int(x.key.ordinal))
	}
	var ahead *run // of tasks that are fetched together
	if s.remote != nil && file.Remote() {
		ahead = &run{}
	}
	t := &task{request: r}
	flush := func() {
		if len(t.frames) == 0 {
			return
		}
		sorted(t.frames)
		s.mu.Lock()
		t.prio = min(seqOf(t.frames), r.later)
		for _, x := range t.frames {
			x.task = t
		}
		j := s.job(t)
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
				w.pushRun(ahead)
				ahead = &run{}
			}
			ahead.bytes += size
		}
		for _, o := range g.Ordinals {
			if x := at(r.frames, o); x != nil {
				t.frames = append(t.frames, x)
			}
		}
		if len(t.frames) >= r.least {
			flush()
		}
	}
	if flush(); ahead != nil {
		w.pushRun(ahead)
	}
}

// checkWaiting takes those places out whose frames are refused (Stream.Check).
func (w *Worker) checkWaiting(r *request, file File) {
	check := r.col.Check
	if check == nil {
		return
	}
	for _, x := range r.frames { // no store knows them: nobody else looks at them
		x.wait = slices.DeleteFunc(x.wait, func(at waiter) bool {
			err := check(w, file, at.to, int(at.k), int(x.key.ordinal))
			if err != nil {
				at.to.Lose(int(at.k), r.path, int(x.key.ordinal), err)
			}
			return err != nil
		})
	}
}

// giveUp says that a frame cannot be had.
func (w *Worker) giveUp(r *request, x *frame, err error) { lose(w.s.failed(x, err), r.path, x) }

// decodable plans w.numbers, less what the file does not have.
func (w *Worker) decodable(file File) []video.Group {
	return slices.DeleteFunc(file.Plan(&w.planner, w.numbers), func(g video.Group) bool { return g.Cost() <= 0 })
}

// decode decodes what is still wanted of a task.
func (w *Worker) decode(t *task) {
	s := w.s
	f, first := s.take(t)
	defer func() { f.unref() }()
	if !first {
		return // a more urgent job of it came first
	}
	w.numbers = w.numbers[:0]
	kept := t.frames[:0]
	s.mu.Lock()
	for _, x := range t.frames {
		if x.uses == (uses{}) && len(x.wait) == 0 {
			s.unlist(x)
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
	file, err := t.col.Files.Open(w.Ctx(), t.path)
	if err != nil {
		for _, x := range kept {
			w.giveUp(t.request, x, err)
		}
		return
	}
	defer file.Release()
	groups := w.decodable(file)
	if f == nil && s.remote != nil && file.Remote() {
		var ok bool
		if f, ok = w.fetch(shared{file}, groups, 1); !ok {
			return // the run is over
		}
	}
	var packets *video.Fetched
	if f != nil {
		packets = f.b
	}
	if _, reads := file.(ReadsToDecode); !reads {
		defer w.Core()()
	}
	begin := time.Now()
	w.task, w.spent = t, 0
	w.got = slices.Grow(w.got[:0], len(kept))[:len(kept)]
	clear(w.got)
	defer func() {
		w.task = nil
		s.N.Decode.Add(int64(time.Since(begin) - w.spent))
		s.N.Convert.Add(int64(w.spent))
	}()
	if len(groups) > 0 {
		err = file.Decode(w.Ctx(), packets, groups, w.deliver)
	}
	for i, x := range kept {
		if w.got[i] {
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
			} else if err = file.Decode(w.Ctx(), nil, single, w.deliver); w.got[i] {
				continue
			}
		}
		if err == nil {
			err = robocache.Malformed("decode", nil, "the decoder gave no frame")
		}
		w.giveUp(t.request, x, err)
	}
}

// shared is a file that its opener releases.
type shared struct{ File }

func (shared) Release() {}

// receive gets one decoded frame: for those who wait for it, and for those who will come.
func (w *Worker) receive(number int, f video.Frame) error {
	begin := time.Now()
	defer func() { w.spent += time.Since(begin) }()
	s, t := w.s, w.task
	i, ok := slices.BinarySearchFunc(t.frames, number, func(x *frame, o int) int { return int(x.key.ordinal) - o })
	if !ok || w.got[i] {
		return nil
	}
	x, col := t.frames[i], t.col
	planes := s.planes(f)
	s.mu.Lock()
	wait := x.wait
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
		pixels = wait[0].to.Into(w, int(wait[0].k))
	case planes == nil && col.Device == nil:
		pixels = w.Bytes(size)
	case planes == nil: // it is made where it stays, or later
		if s.keeps(x, size) && s.roomThere(x) {
			pixels, stored = x.at.mem[:size], true
		}
	}
	if pixels != nil {
		if err := col.Renderer.Render(f, pixels); err != nil {
			return err
		}
	}
	if !stored && s.keeps(x, size) {
		stored, _ = s.fill(x, col, planes, pixels)
	}
	if s.disk != nil {
		w.toDisk(t.request, number, f, planes, pixels)
	}
	w.got[i] = true
	s.N.Unique.Add(1)
	wait = s.arrived(x, stored)
	defer s.done(x)
	if pixels == nil && len(wait) > 0 { // they came meanwhile
		pixels = wait[0].to.Into(w, int(wait[0].k))
		if x.err = col.Renderer.Render(f, pixels); x.err != nil {
			lose(wait, t.path, x)
			return nil
		}
	}
	for _, at := range wait {
		at.to.Put(int(at.k), pixels)
	}
	s.N.Frames.Add(int64(len(wait)))
	// Only when all copies are made: a finished batch may be released, and its first frame overwritten.
	for _, at := range wait {
		at.to.Done(1)
	}
	return nil
}

// planes is the frame where it is kept as its planes; else nil.
func (s *Store) planes(f video.Frame) video.PlanarFrame {
	p, ok := f.(video.PlanarFrame)
	if !ok || !s.planar {
		return nil
	}
	if _, ok := p.PlaneInfo(); !ok {
		return nil
	}
	return p
}
