package frames

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache/cache"
)

// FrameRequest is one place that a frame goes to.
type FrameRequest struct {
	Ordinal int
	Path    int32 // index into paths
	Target  int32 // index into the targets
	Place   int32 // place of the target
}

// keptFrame is a frame that is there already, and the place that it goes to.
type keptFrame struct {
	frame   *frame // nil: in the cache directory
	path    string
	ordinal int32
	waiter
}

// copiesPerJob is small enough to spread a batch over the workers, copiesThere large enough for few calls of a device's driver.
const (
	copiesPerJob = 4
	copiesThere  = 64
)

// frameLookup is one call of Worker.Want.
type frameLookup struct {
	worker        *Worker
	stream        *Stream
	targets       []Target
	pendingCopies [][]keptFrame // a target each; not yet pushed
}

// RequestFrames brings frames of a column to places: those that are kept at once, those that are on their way when they come, and the others
// decoded. Of one call each frame is decoded once, however many places want it. It returns when the work is planned.
func (w *Worker) RequestFrames(col *Stream, to []Target, wants []FrameRequest, paths []string) {
	slices.SortFunc(wants, func(x, y FrameRequest) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Ordinal, y.Ordinal), cmp.Compare(x.Target, y.Target), cmp.Compare(x.Place, y.Place))
	})
	c := frameLookup{w, col, to, make([][]keptFrame, len(to))}
	for len(wants) > 0 {
		number := wants[0].Path
		n := countAlike(wants, func(x *FrameRequest) bool { return x.Path == number })
		own := wants[:n]
		wants = wants[n:]
		r := &request{stream: col, path: paths[number], fileNumber: number, taskFrames: 1, idlePriority: math.MaxInt64}
		if w.s.arena != nil || w.s.disk != nil {
			own = c.acceptedRequests(own, r.path)
		}
		if first := c.lookupFile(own, r); len(r.frames) > 0 {
			r.pushPlanning(w, first)
		}
	}
	for i := range c.pendingCopies {
		c.pushCopies(i)
	}
}

// countAlike counts the first wants that are alike.
func countAlike(wants []FrameRequest, alike func(x *FrameRequest) bool) int {
	n := 1
	for n < len(wants) && alike(&wants[n]) {
		n++
	}
	return n
}

// acceptedRequests takes out of wants those whose frames are refused (Stream.Check).
func (c *frameLookup) acceptedRequests(wants []FrameRequest, path string) []FrameRequest {
	check := c.stream.Check
	if check == nil {
		return wants
	}
	file, err := c.stream.Files.Open(c.worker.Ctx(), path)
	if err != nil {
		return wants // who decodes it says so
	}
	defer file.Release()
	return slices.DeleteFunc(wants, func(x FrameRequest) bool {
		err := check(c.worker, file, c.targets[x.Target], int(x.Place), x.Ordinal)
		if err != nil {
			c.targets[x.Target].Fail(int(x.Place), path, x.Ordinal, err)
		}
		return err != nil
	})
}

// lookupFile serves the wants of one file: a hit from what is kept; of one that is pending the place waits; a failed one is lost. What is none of them the
// request has to decode. It gives the first batch that waits for that.
func (c *frameLookup) lookupFile(wants []FrameRequest, r *request) (first int64) {
	w, s := c.worker, c.worker.s
	waits := make([]waiter, len(wants))
	for i, x := range wants {
		waits[i] = waiter{c.targets[x.Target], x.Place}
	}
	var prefix cache.Key
	if s.disk != nil {
		prefix = w.diskPrefix(c.stream, r.path)
	}
	var raised []Job
	type lost struct {
		x    *frame
		wait []waiter
	}
	var failed []lost
	var room []frame // of frames that are not kept in memory; a frame that may stay is on its own
	if s.arena == nil {
		room = make([]frame, 0, len(wants))
	}
	s.mu.Lock()
	key := frameKey{column: c.stream.ID}
	if s.arena != nil {
		key.file = s.fileNumber(key.column, r.path)
	}
	for lo, n := 0, 0; lo < len(wants); lo += n {
		ordinal := wants[lo].Ordinal
		n = countAlike(wants[lo:], func(x *FrameRequest) bool { return x.Ordinal == ordinal })
		wait := waits[lo : lo+n : lo+n]
		epoch := wait[0].target.Epoch() // before it is served: its batch may then go
		key.ordinal = int32(ordinal)
		hit := func(x *frame) {
			for i, at := range wait {
				c.addCopy(wants[lo+i].Target, keptFrame{x, r.path, key.ordinal, at})
			}
		}
		x := s.frames[key]
		switch {
		case x == nil:
			s.counts.misses += int64(n)
			if s.disk != nil && s.disk.hasFrame(prefix, key.ordinal, int64(n)) {
				hit(nil)
				continue
			}
			if s.arena != nil {
				x = &frame{key: key, waiters: wait}
				s.indexFrame(x)
			} else {
				room = append(room, frame{key: key, waiters: wait})
				x = &room[len(room)-1]
			}
			r.frames = append(r.frames, x)
			continue
		case x.state == unavailable:
			x.uses.release(epoch, int32(n))
			failed = append(failed, lost{x, wait})
			continue
		case x.state == ready:
			x.pins += int32(n)
			hit(x)
		default:
			x.waiters = append(x.waiters, wait...)
			if seq := wait[0].target.BatchNumber(); x.task != nil && seq < x.task.priority {
				x.task.priority = seq
				raised = append(raised, s.taskJob(x.task))
			}
		}
		x.uses.release(epoch, int32(n))
		s.counts.hits += int64(n)
	}
	first = firstWaitingBatch(r.frames) // frames that may stay are shared from here on
	s.mu.Unlock()
	for _, j := range raised {
		w.q.Push(j)
	}
	for _, f := range failed {
		failWaiters(f.wait, r.path, f.x)
	}
	return first
}

// failWaiters says that a frame cannot be had to all who wait for it.
func failWaiters(wait []waiter, path string, x *frame) {
	for _, at := range wait {
		at.target.Fail(int(at.place), path, int(x.key.ordinal), x.err)
	}
}

// addCopy notes a frame that is there already.
func (c *frameLookup) addCopy(to int32, x keptFrame) {
	most := copiesPerJob
	if x.frame != nil && x.frame.isOnDevice {
		most = copiesThere
	}
	if c.pendingCopies[to] = append(c.pendingCopies[to], x); len(c.pendingCopies[to]) >= most {
		c.pushCopies(int(to))
	}
}

func (c *frameLookup) pushCopies(i int) {
	list, col := c.pendingCopies[i], c.stream
	if c.pendingCopies[i] = nil; len(list) > 0 {
		c.worker.q.Push(Job{Prio: list[0].target.BatchNumber(), Sub: int64(col.ID)<<32 | int64(list[0].place), Kind: copyKind, Run: func(w *Worker) { w.copyFrames(col, list) }})
	}
}

// copyFrames writes frames that are there already into one batch.
func (w *Worker) copyFrames(col *Stream, list []keptFrame) {
	s := w.s
	defer s.remote.takeCore()()
	begin := time.Now()
	n := 0
	there := w.copyOnDevice(col, list)
	for i := range list {
		c := &list[i]
		ok, err := true, error(nil)
		if c.frame != nil && c.frame.isOnDevice {
			err = there
		} else if c.frame != nil {
			err = w.copyFromMemory(col, c)
		} else if ok, err = w.copyFromDisk(col, c); !ok {
			// Evicted, or found damaged: it is decoded as if it had not been there.
			x := &frame{key: frameKey{column: col.ID, ordinal: c.ordinal}, waiters: []waiter{c.waiter}}
			(&request{stream: col, path: c.path, taskFrames: 1, idlePriority: math.MaxInt64, frames: []*frame{x}}).pushPlanning(w, c.target.BatchNumber())
			continue
		}
		if err != nil {
			c.target.Fail(int(c.place), c.path, int(c.ordinal), err)
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

func (w *Worker) copyFromMemory(col *Stream, c *keptFrame) error {
	x := c.frame
	if !x.isPlanar {
		c.target.Put(int(c.place), x.memory.mem[:x.size])
		return nil
	}
	dst := c.target.Buffer(w, int(c.place))
	if err := col.Renderer.RenderPlanes(x.info, x.memory.mem[:x.size], dst); err != nil {
		return err
	}
	c.target.Put(int(c.place), dst)
	return nil
}

// copyOnDevice brings those of a list that are in a device's memory to their places, alike ones together. An error is of the driver, and of the batch.
func (w *Worker) copyOnDevice(col *Stream, list []keptFrame) error {
	var dst, src [][]byte
	var first *frame // of those that are alike
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
		if first != nil && (x.isPlanar != first.isPlanar || x.info != first.info || x.size != first.size) {
			if err := flush(); err != nil {
				return err
			}
		}
		first, dst, src = x, append(dst, list[i].target.Buffer(w, int(list[i].place))), append(src, x.memory.mem[:x.size])
	}
	return flush()
}
