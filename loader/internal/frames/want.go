package frames

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache/cache"
)

// Want is one place that a frame goes to.
type Want struct {
	Ordinal int
	Path    int32 // index into paths
	To      int32 // index into the targets
	K       int32 // place of the target
}

// copied is a frame that is there already, and the place that it goes to.
type copied struct {
	x       *frame // nil: in the cache directory
	path    string
	ordinal int32
	waiter
}

// copiesPerJob is small enough to spread a batch over the workers, copiesThere large enough for few calls of a device's driver.
const (
	copiesPerJob = 4
	copiesThere  = 64
)

// wanting is one call of Worker.Want.
type wanting struct {
	w     *Worker
	col   *Stream
	to    []Target
	ready [][]copied // a target each; not yet pushed
}

// Want brings frames of a column to places: those that are kept at once, those that are on their way when they come, and the others
// decoded. Of one call each frame is decoded once, however many places want it. It returns when the work is planned.
func (w *Worker) Want(col *Stream, to []Target, wants []Want, paths []string) {
	slices.SortFunc(wants, func(x, y Want) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Ordinal, y.Ordinal), cmp.Compare(x.To, y.To), cmp.Compare(x.K, y.K))
	})
	c := wanting{w, col, to, make([][]copied, len(to))}
	for len(wants) > 0 {
		number := wants[0].Path
		n := same(wants, func(x *Want) bool { return x.Path == number })
		own := wants[:n]
		wants = wants[n:]
		r := &request{col: col, path: paths[number], number: number, least: 1, later: math.MaxInt64}
		if w.s.arena != nil || w.s.disk != nil {
			own = c.checked(own, r.path)
		}
		if first := c.lookup(own, r); len(r.frames) > 0 {
			r.push(w, first)
		}
	}
	for i := range c.ready {
		c.push(i)
	}
}

// same counts the first wants that are alike.
func same(wants []Want, alike func(x *Want) bool) int {
	n := 1
	for n < len(wants) && alike(&wants[n]) {
		n++
	}
	return n
}

// checked takes out of wants those whose frames are refused (Stream.Check).
func (c *wanting) checked(wants []Want, path string) []Want {
	check := c.col.Check
	if check == nil {
		return wants
	}
	file, err := c.col.Files.Open(c.w.Ctx(), path)
	if err != nil {
		return wants // who decodes it says so
	}
	defer file.Release()
	return slices.DeleteFunc(wants, func(x Want) bool {
		err := check(c.w, file, c.to[x.To], int(x.K), x.Ordinal)
		if err != nil {
			c.to[x.To].Lose(int(x.K), path, x.Ordinal, err)
		}
		return err != nil
	})
}

// lookup serves the wants of one file: a hit from what is kept; of one that is pending the place waits; a failed one is lost. What is none of them the
// request has to decode. It gives the first batch that waits for that.
func (c *wanting) lookup(wants []Want, r *request) (first int64) {
	w, s := c.w, c.w.s
	waits := make([]waiter, len(wants))
	for i, x := range wants {
		waits[i] = waiter{c.to[x.To], x.K}
	}
	var prefix cache.Key
	if s.disk != nil {
		prefix = w.prefix(c.col, r.path)
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
	key := frameKey{column: c.col.ID}
	if s.arena != nil {
		key.file = s.file(key.column, r.path)
	}
	for lo, n := 0, 0; lo < len(wants); lo += n {
		ordinal := wants[lo].Ordinal
		n = same(wants[lo:], func(x *Want) bool { return x.Ordinal == ordinal })
		wait := waits[lo : lo+n : lo+n]
		epoch := wait[0].to.Epoch() // before it is served: its batch may then go
		key.ordinal = int32(ordinal)
		hit := func(x *frame) {
			for i, at := range wait {
				c.add(wants[lo+i].To, copied{x, r.path, key.ordinal, at})
			}
		}
		x := s.have[key]
		switch {
		case x == nil:
			s.n.misses += int64(n)
			if s.disk != nil && s.disk.has(prefix, key.ordinal, int64(n)) {
				hit(nil)
				continue
			}
			if s.arena != nil {
				x = &frame{key: key, wait: wait}
				s.list(x)
			} else {
				room = append(room, frame{key: key, wait: wait})
				x = &room[len(room)-1]
			}
			r.frames = append(r.frames, x)
			continue
		case x.state == gone:
			x.uses.take(epoch, int32(n))
			failed = append(failed, lost{x, wait})
			continue
		case x.state == ready:
			x.pins += int32(n)
			hit(x)
		default:
			x.wait = append(x.wait, wait...)
			if seq := wait[0].to.Seq(); x.task != nil && seq < x.task.prio {
				x.task.prio = seq
				raised = append(raised, s.job(x.task))
			}
		}
		x.uses.take(epoch, int32(n))
		s.n.hits += int64(n)
	}
	first = seqOf(r.frames) // frames that may stay are shared from here on
	s.mu.Unlock()
	for _, j := range raised {
		w.q.Push(j)
	}
	for _, f := range failed {
		lose(f.wait, r.path, f.x)
	}
	return first
}

// lose says that a frame cannot be had to all who wait for it.
func lose(wait []waiter, path string, x *frame) {
	for _, at := range wait {
		at.to.Lose(int(at.k), path, int(x.key.ordinal), x.err)
	}
}

// add notes a frame that is there already.
func (c *wanting) add(to int32, x copied) {
	most := copiesPerJob
	if x.x != nil && x.x.there {
		most = copiesThere
	}
	if c.ready[to] = append(c.ready[to], x); len(c.ready[to]) >= most {
		c.push(int(to))
	}
}

func (c *wanting) push(i int) {
	list, col := c.ready[i], c.col
	if c.ready[i] = nil; len(list) > 0 {
		c.w.q.Push(Job{Prio: list[0].to.Seq(), Sub: int64(col.ID)<<32 | int64(list[0].k), Kind: copies, Run: func(w *Worker) { w.copy(col, list) }})
	}
}

// copy writes frames that are there already into one batch.
func (w *Worker) copy(col *Stream, list []copied) {
	s := w.s
	defer s.remote.core()()
	begin := time.Now()
	n := 0
	there := w.fromThere(col, list)
	for i := range list {
		c := &list[i]
		ok, err := true, error(nil)
		if c.x != nil && c.x.there {
			err = there
		} else if c.x != nil {
			err = w.fromMemory(col, c)
		} else if ok, err = w.fromDisk(col, c); !ok {
			// Evicted, or found damaged: it is decoded as if it had not been there.
			x := &frame{key: frameKey{column: col.ID, ordinal: c.ordinal}, wait: []waiter{c.waiter}}
			(&request{col: col, path: c.path, least: 1, later: math.MaxInt64, frames: []*frame{x}}).push(w, c.to.Seq())
			continue
		}
		if err != nil {
			c.to.Lose(int(c.k), c.path, int(c.ordinal), err)
			continue
		}
		n++
	}
	s.mu.Lock()
	for i := range list {
		if x := list[i].x; x != nil {
			x.pins--
			s.settle(x)
		}
	}
	s.mu.Unlock()
	s.N.Frames.Add(int64(n))
	s.N.Copy.Add(int64(time.Since(begin)))
	if n > 0 {
		list[0].to.Done(n)
	}
}

func (w *Worker) fromMemory(col *Stream, c *copied) error {
	x := c.x
	if !x.planar {
		c.to.Put(int(c.k), x.at.mem[:x.size])
		return nil
	}
	dst := c.to.Into(w, int(c.k))
	if err := col.Renderer.RenderPlanes(x.info, x.at.mem[:x.size], dst); err != nil {
		return err
	}
	c.to.Put(int(c.k), dst)
	return nil
}

// fromThere brings those of a list that are in a device's memory to their places, alike ones together. An error is of the driver, and of the batch.
func (w *Worker) fromThere(col *Stream, list []copied) error {
	var dst, src [][]byte
	var first *frame // of those that are alike
	flush := func() (err error) {
		if first != nil && first.planar {
			err = col.Device.RenderKept(first.info, src, dst)
		} else if first != nil {
			err = col.Device.Memory().Copy(dst, src)
		}
		first, dst, src = nil, dst[:0], src[:0]
		return err
	}
	for i := range list {
		x := list[i].x
		if x == nil || !x.there {
			continue
		}
		if first != nil && (x.planar != first.planar || x.info != first.info || x.size != first.size) {
			if err := flush(); err != nil {
				return err
			}
		}
		first, dst, src = x, append(dst, list[i].to.Into(w, int(list[i].k))), append(src, x.at.mem[:x.size])
	}
	return flush()
}
