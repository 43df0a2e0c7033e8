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

// Want brings frames of a column to places: those that are kept at once, those that are on their way when they come, and the others
// decoded. Of one call each frame is decoded once, however many places want it. It returns when the work is planned.
func (w *Worker) Want(col Column, to []Target, wants []Want, paths []string) {
	slices.SortFunc(wants, func(x, y Want) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Ordinal, y.Ordinal), cmp.Compare(x.To, y.To), cmp.Compare(x.K, y.K))
	})
	c := copier{w: w, col: col, to: to}
	for lo := 0; lo < len(wants); {
		hi := lo
		for hi < len(wants) && wants[hi].Path == wants[lo].Path {
			hi++
		}
		number := wants[lo].Path
		path := paths[number]
		own := wants[lo:hi]
		lo = hi
		if w.s.arena != nil || w.s.disk != nil {
			own = w.checked(col, to, own, path)
		}
		p := &request{col: col, path: path, number: number, least: 1, later: math.MaxInt64}
		var first int64
		if p.frames, first = w.lookup(&c, own, path); len(p.frames) > 0 {
			p.push(w, first)
		}
	}
	c.flush()
}

// checked takes out of wants those whose frames are refused (Column.Check).
func (w *Worker) checked(col Column, to []Target, wants []Want, path string) []Want {
	check := col.Check()
	if check == nil {
		return wants
	}
	file, err := col.Files().Open(w.Ctx(), path)
	if err != nil {
		return wants // who decodes it says so
	}
	defer file.Release()
	return slices.DeleteFunc(wants, func(x Want) bool {
		err := check(w, file, to[x.To], int(x.K), x.Ordinal)
		if err != nil {
			to[x.To].Lose(int(x.K), path, x.Ordinal, err)
		}
		return err != nil
	})
}

// lookup serves the wants of one file from what is kept, or on its way, and gives the frames that are to be decoded, with who waits for
// them, and the first batch that waits.
func (w *Worker) lookup(c *copier, wants []Want, path string) (missing []*frame, first int64) {
	s := w.s
	waits := make([]waiter, len(wants))
	for i, x := range wants {
		waits[i] = waiter{c.to[x.To], x.K}
	}
	var prefix cache.Key
	if s.disk != nil {
		prefix = w.prefix(c.col, path)
	}
	var raised []Job
	var failed []*frame
	var hopeless [][]waiter
	var room []frame // of frames that are not kept in memory; a frame that may stay is on its own
	if s.arena == nil {
		room = make([]frame, 0, len(wants))
	}
	s.mu.Lock()
	key := frameKey{column: c.col.ID()}
	if s.arena != nil {
		key.file = s.file(key.column, path)
	}
	for lo := 0; lo < len(wants); {
		hi := lo
		for hi < len(wants) && wants[hi].Ordinal == wants[lo].Ordinal {
			hi++
		}
		same, n := waits[lo:hi:hi], int64(hi-lo)
		key.ordinal = int32(wants[lo].Ordinal)
		lo = hi
		x := s.have[key]
		if x == nil {
			s.n.misses += n
			if s.disk != nil && s.disk.has(prefix, key.ordinal, n) {
				for _, at := range same {
					c.add(copied{path: path, ordinal: int(key.ordinal), waiter: at})
				}
				continue
			}
			if s.arena != nil {
				x = &frame{key: key, wait: same}
				s.list(x)
			} else {
				room = append(room, frame{key: key, wait: same})
				x = &room[len(room)-1]
			}
			missing = append(missing, x)
			continue
		}
		x.uses = max(x.uses-int32(n), 0)
		switch x.state {
		case lost:
			failed, hopeless = append(failed, x), append(hopeless, same)
			continue
		case ready:
			x.pins += int32(n)
			for _, at := range same {
				c.add(copied{x: x, path: path, ordinal: int(key.ordinal), waiter: at})
			}
		case pending:
			x.wait = append(x.wait, same...)
			if seq := same[0].to.Seq(); x.task != nil && seq < x.task.prio {
				x.task.prio = seq
				raised = append(raised, x.task.job())
			}
		}
		s.n.hits += n
	}
	first = seqOf(missing) // frames that may stay are shared from here on
	s.mu.Unlock()
	for _, j := range raised {
		w.q.Push(j)
	}
	for i, x := range failed {
		lose(hopeless[i], path, x)
	}
	return missing, first
}

// lose says that a frame cannot be had to all who wait for it.
func lose(wait []waiter, path string, x *frame) {
	for _, at := range wait {
		at.to.Lose(int(at.k), path, int(x.key.ordinal), x.err)
	}
}

// copied is a frame that is there already, and the place that it goes to.
type copied struct {
	x       *frame // nil: in the cache directory
	path    string
	ordinal int
	waiter
}

// copier makes jobs of frames that are there already.
type copier struct {
	w    *Worker
	col  Column
	to   []Target
	open [][]copied // by batch, not yet pushed
}

// copiesPerJob is small enough to spread a batch over the workers.
const copiesPerJob = 4

func (c *copier) add(x copied) {
	if c.open == nil {
		c.open = make([][]copied, len(c.to))
	}
	i := slices.Index(c.to, x.to)
	if c.open[i] = append(c.open[i], x); len(c.open[i]) == copiesPerJob {
		c.push(i)
	}
}

func (c *copier) push(i int) {
	list, col := c.open[i], c.col
	c.open[i] = nil
	c.w.q.Push(Job{Prio: list[0].to.Seq(), Sub: int64(col.ID())<<32 | int64(list[0].k), Kind: copies, Run: func(w *Worker) { w.copy(col, list) }})
}

func (c *copier) flush() {
	for i := range c.open {
		if c.open[i] != nil {
			c.push(i)
		}
	}
}

// copy writes frames that are there already into one batch.
func (w *Worker) copy(col Column, list []copied) {
	s := w.s
	defer s.remote.core()()
	begin := time.Now()
	defer func() { s.N.Copy.Add(int64(time.Since(begin))) }()
	n := 0
	for i := range list {
		c := &list[i]
		var err error
		if c.x == nil {
			var ok bool
			if ok, err = w.fromDisk(col, c); !ok {
				// Evicted, or found damaged: it is decoded as if it had not been there.
				x := &frame{key: frameKey{column: col.ID(), ordinal: int32(c.ordinal)}, wait: []waiter{c.waiter}}
				(&request{col: col, path: c.path, least: 1, later: math.MaxInt64, frames: []*frame{x}}).push(w, c.to.Seq())
				continue
			}
		} else {
			err = w.fromMemory(col, c)
			s.done(c.x)
		}
		if err != nil {
			c.to.Lose(int(c.k), c.path, c.ordinal, err)
			continue
		}
		n++
	}
	s.N.Frames.Add(int64(n))
	if n > 0 {
		list[0].to.Done(n)
	}
}

func (w *Worker) fromMemory(col Column, c *copied) error {
	x := c.x
	if !x.planar {
		c.to.Put(int(c.k), x.at.mem[:x.size])
		return nil
	}
	dst := c.to.Into(w, int(c.k))
	if err := col.FromPlanes(x.info, x.at.mem[:x.size], dst); err != nil {
		return err
	}
	c.to.Put(int(c.k), dst)
	return nil
}
