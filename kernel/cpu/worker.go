package cpu

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// worker is what one thread works in: scratch that is kept from call to call.
type worker struct {
	plan    kernel.Plan
	plain   bool // every row of the plan is copied or blended
	search  searchArgs
	args    rowArgs
	counts  kernel.Counts
	samples [1]int64
	clocks  []prepared
	targets timestamps
	entry   int // that targets are of; -1 = none
	valid   []uint8
	// Of continuous signs: an entry's rows, and the stream that reads them.
	turned       []byte
	turnedStream stream
}

// prepared is what is known of a clock's entry.
type prepared struct {
	timestamps timestamps
	entry      int // -1 = none
	from       int // first row of the values
	// The plan at hand, where it is shared: its first row, and how many.
	planned [2]int
}

// timestamps are times in ns, or as given.
type timestamps struct {
	ns, room     []int64
	seconds, own []float64
}

var workers = sync.Pool{New: func() any { return new(worker) }}

// release forgets the caller's memory.
func (w *worker) release() {
	w.targets.ns, w.targets.seconds = nil, nil
	for i := range w.clocks {
		w.clocks[i].timestamps.ns, w.clocks[i].timestamps.seconds = nil, nil
	}
	w.search, w.args, w.turnedStream = searchArgs{}, rowArgs{}, stream{}
	workers.Put(w)
}

// entryRows makes rows from … to-1 of entry b. It is false where something is wrong with the times.
func (w *worker) entryRows(c *call, b, from, to int) bool {
	if w.entry != b && !(w.entry >= 0 && c.targets.batch == 0) {
		if !w.targets.read(&c.targets, 0, c.rows, b) {
			return false
		}
		w.entry = b
	}
	size := rowsPerPlan
	if c.whole {
		size = c.rows
	}
	for t := from; t < to; t += size {
		n := min(size, to-t)
		for k := range c.clocks {
			if !w.clock(c, k, b, t, n) {
				return false
			}
		}
	}
	return true
}

// clock plans rows t … t+n-1 of one entry for one clock, and makes them for its streams.
func (w *worker) clock(c *call, k, b, t, n int) bool {
	clock, p := &c.clocks[k], &w.clocks[k]
	if p.entry != b && !(p.entry >= 0 && clock.shared) && !p.prepare(clock, b) {
		return false
	}
	// A plan is at hand where all entries share it, and no other clock has used the room since.
	if key := [2]int{t, n}; !clock.shared || len(c.clocks) > 1 || p.planned != key {
		p.planned = key
		w.resizePlan(n)
		if !w.fill(&clock.series.Rule, &p.timestamps, &w.targets, t, n, c.op.Clock, c.op.Epsilon) {
			return false
		}
	}
	if c.dry {
		return true
	}
	for _, i := range clock.users {
		s := &c.streams[i]
		at := region{
			b:       b,
			row:     t,
			batch:   b,
			from:    p.from,
			sources: p.timestamps.len(),
			right:   s.cols,
		}
		if clock.series.Offsets != nil {
			at.batch = 0
		}
		if s.rule.Continuous && s.rule.Mode == kernel.Slerp {
			if s = w.continuous(s, &at); s == nil {
				return false
			}
		}
		valid, ok := w.rows(s, at, w.sample(s, b))
		if !ok {
			return false
		}
		if v := c.op.Valid; v != nil {
			o, step := v.Base+b*v.Step(0)+t*v.Step(1)+i*v.Step(2), v.Step(1)
			for _, x := range valid {
				v.Data[o] = x
				o += step
			}
		}
	}
	return true
}

// continuous is the stream with the entry's quaternions turned to one side (K20), in the worker's
// room.
func (w *worker) continuous(s *stream, at *region) *stream {
	size := s.src.dtype.Size()
	w.turned = resize(w.turned, at.sources*s.cols*size)
	signed := kernel.Dense(w.turned, s.src.dtype, at.sources, s.cols)
	if kernel.ContinuousSigns(
		signed,
		s.src.matrix(at.batch, at.from, at.sources, s.cols),
		s.rule.Quats,
	) != nil {
		return nil
	}
	w.turnedStream = *s
	w.turnedStream.src = view{data: w.turned, dtype: s.src.dtype, row: s.cols, step: 1}
	w.turnedStream.args.srcStep = s.cols * size
	at.batch, at.from = 0, 0
	return &w.turnedStream
}

// sample is the number that an entry's augmentation is keyed by.
func (w *worker) sample(s *stream, b int) []int64 {
	a := s.epilogue.Augment
	if a == nil {
		return nil
	}
	w.samples[0] = int64(b)
	if t := a.Samples; t != nil {
		w.samples[0] = int64(le.Uint64(t.Data[(t.Base+b*t.Step(0))*8:]))
	}
	return w.samples[:]
}

// prepare finds and proves the timestamps of an entry.
func (p *prepared) prepare(clock *clock, b int) bool {
	from, n, err := clock.series.Rows(b)
	if err != nil {
		return false
	}
	p.entry, p.from = b, from
	if !p.timestamps.read(&clock.times, from, n, b) {
		return false
	}
	return p.timestamps.proved()
}

func (s *timestamps) len() int { return len(s.ns) + len(s.seconds) }

// proved says that the timestamps do not decrease and are in range. Of those in order the first and
// the last say it for all.
func (s *timestamps) proved() bool {
	if v := s.ns; len(v) > 0 {
		return isSorted(v) && inRange(v[0]) && inRange(v[len(v)-1])
	}
	v := s.seconds
	for i, t := range v {
		if !(t > -kernel.MaxTime && t < kernel.MaxTime) || i > 0 && t < v[i-1] {
			return false
		}
	}
	return true
}

// clockView is a tensor of times by addresses.
type clockView struct {
	view
	asGiven bool
}

func clockOf(t *kernel.Tensor, clock kernel.Clock) clockView {
	axis := len(t.Shape) - 1
	v := clockView{
		view{data: t.Data, dtype: t.DType, base: t.Base, step: t.Step(axis)},
		clock == kernel.AsGiven,
	}
	if axis == 1 {
		v.batch = t.Step(0)
	}
	return v
}

// read takes n times from an index on. int64 ns that lie side by side are used where they are.
func (s *timestamps) read(v *clockView, from, n, entry int) bool {
	at, d := v.base+entry*v.batch+from*v.step, v.data
	s.ns, s.seconds = nil, nil
	if n == 0 {
		return true
	}
	if v.dtype == robocache.Int64 {
		if p := unsafe.Pointer(&d[at*8]); v.step == 1 && uintptr(p)%8 == 0 {
			s.ns = unsafe.Slice((*int64)(p), n)
			return true
		}
		s.room = resize(s.room, n)
		s.ns = s.room
		for i := range n {
			s.ns[i] = int64(le.Uint64(d[(at+i*v.step)*8:]))
		}
		return true
	}
	if v.asGiven {
		s.own = resize(s.own, n)
		s.seconds = s.own
		for i := range n {
			s.seconds[i] = number(d, v.dtype, at+i*v.step)
		}
		return true
	}
	s.room = resize(s.room, n)
	s.ns = s.room
	for i := range n {
		x := number(d, v.dtype, at+i*v.step)
		if x-x != 0 {
			return false // not finite
		}
		s.ns[i] = kernel.FromSeconds(x)
	}
	return true
}
