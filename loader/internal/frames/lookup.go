package frames

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache/cache"
)

// FrameRequest asks for one frame in one slot of a target.
type FrameRequest struct {
	Ordinal int
	Path    int32 // index in the paths of the call
	Target  int32 // index in the targets of the call
	Slot    int32 // slot of the target
}

// keptFrame is a stored frame and the slot that it is copied to.
type keptFrame struct {
	frame   *frame // nil: in the cache directory
	path    string
	ordinal int32
	waiter
}

// Frames that one copy job copies. On the host the number is small enough to spread a batch over
// the workers. On a device it is large enough to need few driver calls.
const (
	copiesPerJob   = 4
	copiesOnDevice = 64
)

// frameLookup is the state of one RequestFrames call.
type frameLookup struct {
	worker        *Worker
	stream        *Stream
	targets       []Target
	pendingCopies [][]keptFrame // per target; not queued yet
}

// RequestFrames requests frames of a column for slots of targets and returns when the work is
// queued. Stored frames are copied, slots of pending frames wait for them, and all other frames are
// decoded. Each frame is decoded once per call, regardless of how many slots request it.
// RequestFrames sorts wants.
func (w *Worker) RequestFrames(col *Stream, to []Target, requests []FrameRequest, paths []string) {
	slices.SortFunc(requests, func(x, y FrameRequest) int {
		return cmp.Or(
			cmp.Compare(x.Path, y.Path),
			cmp.Compare(x.Ordinal, y.Ordinal),
			cmp.Compare(x.Target, y.Target),
			cmp.Compare(x.Slot, y.Slot),
		)
	})
	c := frameLookup{w, col, to, make([][]keptFrame, len(to))}
	for len(requests) > 0 {
		number := requests[0].Path
		n := countLeading(requests, func(x *FrameRequest) bool { return x.Path == number })
		inFile := requests[:n]
		requests = requests[n:]
		r := &request{
			stream:       col,
			path:         paths[number],
			fileNumber:   number,
			taskFrames:   1,
			idlePriority: math.MaxInt64,
		}
		if w.store.arena != nil || w.store.disk != nil {
			inFile = c.acceptedRequests(inFile, r.path)
		}
		if first := c.lookupFile(inFile, r); len(r.frames) > 0 {
			r.pushPlanning(w, first)
		}
	}
	for i := range c.pendingCopies {
		c.pushCopies(i)
	}
}

// countLeading returns how many requests at the beginning of wants satisfy alike. The first one
// always does.
func countLeading(requests []FrameRequest, alike func(x *FrameRequest) bool) int {
	n := 1
	for n < len(requests) && alike(&requests[n]) {
		n++
	}
	return n
}

// acceptedRequests returns the requests that Stream.Check accepts and fails the slots of the
// others.
func (c *frameLookup) acceptedRequests(requests []FrameRequest, path string) []FrameRequest {
	check := c.stream.Check
	if check == nil {
		return requests
	}
	file, err := c.stream.Files.Open(c.worker.Ctx(), path)
	if err != nil {
		return requests // planRequest reports the error
	}
	defer file.Release()
	return slices.DeleteFunc(requests, func(x FrameRequest) bool {
		err := check(c.worker, file, c.targets[x.Target], int(x.Slot), x.Ordinal)
		if err != nil {
			c.targets[x.Target].Fail(int(x.Slot), path, x.Ordinal, err)
		}
		return err != nil
	})
}

// lookupFile looks up the requests of one file. A ready frame is copied, a slot of a pending frame
// waits for it, and a slot of a failed frame fails. lookupFile adds all other frames to r. It
// returns the lowest batch number that waits for r.
func (c *frameLookup) lookupFile(requests []FrameRequest, r *request) (first int64) {
	w, s := c.worker, c.worker.store
	allSlots := make([]waiter, len(requests))
	for i, x := range requests {
		allSlots[i] = waiter{c.targets[x.Target], x.Slot}
	}
	var prefix cache.Key
	if s.disk != nil {
		prefix = w.diskPrefix(c.stream, r.path)
	}
	var raised []Job
	type failure struct {
		x     *frame
		slots []waiter
	}
	var failures []failure
	// Frames that are not indexed are allocated together. An indexed frame is allocated alone, so
	// that it does not keep the others reachable.
	var unindexed []frame
	if s.arena == nil {
		unindexed = make([]frame, 0, len(requests))
	}
	s.mu.Lock()
	key := frameKey{column: c.stream.ID}
	if s.arena != nil {
		key.file = s.fileNumber(key.column, r.path)
	}
	for lo, n := 0, 0; lo < len(requests); lo += n {
		ordinal := requests[lo].Ordinal
		n = countLeading(requests[lo:], func(x *FrameRequest) bool { return x.Ordinal == ordinal })
		slots := allSlots[lo : lo+n : lo+n]
		// Read the epoch now. When the slots are served, their batch may be released.
		epoch := slots[0].target.Epoch()
		key.ordinal = int32(ordinal)
		copyToSlots := func(x *frame) {
			for i, slot := range slots {
				c.addCopy(requests[lo+i].Target, keptFrame{x, r.path, key.ordinal, slot})
			}
		}
		x := s.frames[key]
		switch {
		case x == nil:
			s.counts.misses += int64(n)
			if s.disk != nil && s.disk.hasFrame(prefix, key.ordinal, int64(n)) {
				copyToSlots(nil)
				continue
			}
			if s.arena != nil {
				x = &frame{key: key, waiters: slots}
				s.indexFrame(x)
			} else {
				unindexed = append(unindexed, frame{key: key, waiters: slots})
				x = &unindexed[len(unindexed)-1]
			}
			r.frames = append(r.frames, x)
			continue
		case x.state == failed:
			x.uses.subtractUses(epoch, int32(n))
			failures = append(failures, failure{x, slots})
			continue
		case x.state == ready:
			x.pins += int32(n)
			copyToSlots(x)
		default: // pending
			x.waiters = append(x.waiters, slots...)
			if seq := slots[0].target.BatchNumber(); x.task != nil && seq < x.task.priority {
				x.task.priority = seq
				raised = append(raised, s.taskJob(x.task))
			}
		}
		x.uses.subtractUses(epoch, int32(n))
		s.counts.hits += int64(n)
	}
	first = firstWaitingBatch(r.frames) // under the lock: indexed frames are shared after it
	s.mu.Unlock()
	for _, j := range raised {
		w.queue.Push(j)
	}
	for _, f := range failures {
		failWaiters(f.slots, r.path, f.x)
	}
	return first
}

// failWaiters fails the slots that wait for x with its error.
func failWaiters(slots []waiter, path string, x *frame) {
	for _, w := range slots {
		w.target.Fail(int(w.slot), path, int(x.key.ordinal), x.err)
	}
}

// addCopy adds a stored frame to the copies of a target and queues a job when there are enough.
func (c *frameLookup) addCopy(target int32, x keptFrame) {
	limit := copiesPerJob
	if x.frame != nil && x.frame.isOnDevice {
		limit = copiesOnDevice
	}
	c.pendingCopies[target] = append(c.pendingCopies[target], x)
	if len(c.pendingCopies[target]) >= limit {
		c.pushCopies(int(target))
	}
}

// pushCopies queues a job that copies the collected frames of target i.
func (c *frameLookup) pushCopies(i int) {
	list, col := c.pendingCopies[i], c.stream
	if len(list) == 0 {
		return
	}
	c.pendingCopies[i] = nil
	c.worker.queue.Push(Job{
		Priority: list[0].target.BatchNumber(),
		Order:    int64(col.ID)<<32 | int64(list[0].slot),
		Kind:     copyKind,
		Run:      func(w *Worker) { w.copyFrames(col, list) },
	})
}

// copyFrames copies stored frames into the slots of one target.
func (w *Worker) copyFrames(col *Stream, list []keptFrame) {
	s := w.store
	defer s.remote.takeCore()()
	begin := time.Now()
	n := 0
	deviceErr := w.copyOnDevice(col, list)
	for i := range list {
		c := &list[i]
		ok, err := true, error(nil)
		if c.frame != nil && c.frame.isOnDevice {
			err = deviceErr
		} else if c.frame != nil {
			err = w.copyFromMemory(col, c)
		} else if ok, err = w.copyFromDisk(col, c); !ok {
			// The frame was evicted or is damaged. Decode it.
			x := &frame{
				key:     frameKey{column: col.ID, ordinal: c.ordinal},
				waiters: []waiter{c.waiter},
			}
			r := &request{
				stream:       col,
				path:         c.path,
				taskFrames:   1,
				idlePriority: math.MaxInt64,
				frames:       []*frame{x},
			}
			r.pushPlanning(w, c.target.BatchNumber())
			continue
		}
		if err != nil {
			c.target.Fail(int(c.slot), c.path, int(c.ordinal), err)
			continue
		}
		n++
	}
	s.mu.Lock()
	for i := range list {
		if x := list[i].frame; x != nil {
			x.pins--
			s.releaseIfUnused(x)
		}
	}
	s.mu.Unlock()
	s.Counters.Frames.Add(int64(n))
	s.Counters.Copy.Add(int64(time.Since(begin)))
	if n > 0 {
		list[0].target.Complete(n)
	}
}

// copyFromMemory copies or renders a frame of the host arena into its slot.
func (w *Worker) copyFromMemory(col *Stream, c *keptFrame) error {
	x := c.frame
	if !x.isPlanar {
		c.target.Put(int(c.slot), x.memory.mem[:x.size])
		return nil
	}
	dst := c.target.Buffer(w, int(c.slot))
	if err := col.Renderer.RenderPlanes(x.info, x.memory.mem[:x.size], dst); err != nil {
		return err
	}
	c.target.Put(int(c.slot), dst)
	return nil
}

// hasSameLayout reports whether one driver call can copy both frames.
func hasSameLayout(x, y *frame) bool {
	return x.isPlanar == y.isPlanar && x.info == y.info && x.size == y.size
}

// copyOnDevice copies or renders the frames of list that are in device memory. Consecutive frames
// of one layout share a driver call. An error is the driver's and applies to all of them.
func (w *Worker) copyOnDevice(col *Stream, list []keptFrame) error {
	var dst, src [][]byte
	var first *frame // first of the frames that the next driver call copies
	flush := func() (err error) {
		if first != nil && first.isPlanar {
			err = col.Device.RenderKept(first.info, src, dst)
		} else if first != nil {
			err = col.Device.Memory().Copy(dst, src)
		}
		first, dst, src = nil, dst[:0], src[:0]
		return err
	}
	for i := range list {
		x := list[i].frame
		if x == nil || !x.isOnDevice {
			continue
		}
		if first != nil && !hasSameLayout(x, first) {
			if err := flush(); err != nil {
				return err
			}
		}
		first = x
		dst = append(dst, list[i].target.Buffer(w, int(list[i].slot)))
		src = append(src, x.memory.mem[:x.size])
	}
	return flush()
}
