package cpu

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// worker is the scratch memory of one thread. It is reused by later calls.
type worker struct {
	plan     kernel.Plan
	allPlain bool // every row of the plan is copied or blended
	search   searchArgs
	args     rowArgs
	counts   kernel.Counts
	samples  [1]int64
	clocks   []entryClock
	targets  timestamps
	entry    int // the entry of targets; -1 = none
	valid    []uint8
	// For continuous signs: the signed rows of an entry, and a stream that reads them.
	signedRows   []byte
	signedStream stream
}

// entryClock holds the timestamps of one entry of a clock.
type entryClock struct {
	timestamps timestamps
	entry      int // -1 = none
	from       int // first row of the values
	// The plan in the worker, if it is shared: first row and number of rows.
	planned [2]int
}

// timestamps are times in ns, or in seconds under AsGiven.
type timestamps struct {
	ns, nsBuffer           []int64
	seconds, secondsBuffer []float64
}

var workerPool = sync.Pool{New: func() any { return new(worker) }}

// release drops the references to the caller's memory and returns the worker to the pool.
func (w *worker) release() {
	w.targets.ns, w.targets.seconds = nil, nil
	for i := range w.clocks {
		w.clocks[i].timestamps.ns, w.clocks[i].timestamps.seconds = nil, nil
	}
	w.search, w.args, w.signedStream = searchArgs{}, rowArgs{}, stream{}
	workerPool.Put(w)
}

// entryRows computes rows from … to-1 of entry b. It returns false if the times are invalid.
func (w *worker) entryRows(c *fuseRun, b, from, to int) bool {
	// The targets are read once if all entries share them.
	if w.entry != b && !(w.entry >= 0 && c.targets.batch == 0) {
		if !w.targets.readTimes(&c.targets, 0, c.rows, b) {
			return false
		}
		w.entry = b
	}
	size := rowsPerPlan
	if c.wholeEntries {
		size = c.rows
	}
	for t := from; t < to; t += size {
		n := min(size, to-t)
		for k := range c.clocks {
			if !w.planClock(c, k, b, t, n) {
				return false
			}
		}
	}
	return true
}

// planClock plans rows t … t+n-1 of entry b for clock k and computes them for its streams. It
// returns false if the times are invalid.
func (w *worker) planClock(c *fuseRun, k, b, t, n int) bool {
	clock, p := &c.clocks[k], &w.clocks[k]
	if p.entry != b && !(p.entry >= 0 && clock.shared) && !p.prepareEntry(clock, b) {
		return false
	}
	// The worker's plan can be reused if all entries share it and no other clock has overwritten
	// it.
	if key := [2]int{t, n}; !clock.shared || len(c.clocks) > 1 || p.planned != key {
		p.planned = key
		w.resizePlan(n)
		if !w.planRows(&clock.series.Rule, &p.timestamps, &w.targets, t, n, c.op.Clock,
			c.op.Epsilon) {
			return false
		}
	}
	if c.planOnly {
		return true
	}
	for _, i := range clock.streams {
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
			if s = w.continuousStream(s, &at); s == nil {
				return false
			}
		}
		valid, ok := w.makeRows(s, at, w.sampleNumbers(s, b))
		if !ok {
			return false
		}
		if v := c.op.Valid; v != nil {
			o := v.Base + b*v.Step(0) + t*v.Step(1) + i*v.Step(2)
			step := v.Step(1)
			for _, x := range valid {
				v.Data[o] = x
				o += step
			}
		}
	}
	return true
}

// continuousStream copies the rows of an entry with continuous signs (kernel.K20) into the worker,
// and returns a stream that reads the copy. It changes at, so that it locates the copy. It returns
// nil if the rows cannot be copied.
func (w *worker) continuousStream(s *stream, at *region) *stream {
	size := s.src.dtype.Size()
	w.signedRows = resizeSlice(w.signedRows, at.sources*s.cols*size)
	signed := kernel.Dense(w.signedRows, s.src.dtype, at.sources, s.cols)
	if kernel.ContinuousSigns(signed, s.src.matrixView(at.batch, at.from, at.sources, s.cols),
		s.rule.Quats) != nil {
		return nil
	}
	w.signedStream = *s
	w.signedStream.src = tensorView{data: w.signedRows, dtype: s.src.dtype, row: s.cols, step: 1}
	w.signedStream.args.srcStep = s.cols * size
	at.batch, at.from = 0, 0
	return &w.signedStream
}

// sampleNumbers returns the sample number that the augmentation of entry b uses, or nil without
// augmentation.
func (w *worker) sampleNumbers(s *stream, b int) []int64 {
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

// prepareEntry reads the timestamps of entry b. It returns false if they or the length of the entry
// are invalid.
func (p *entryClock) prepareEntry(clock *sharedClock, b int) bool {
	from, n, err := clock.series.Rows(b)
	if err != nil {
		return false
	}
	p.entry, p.from = b, from
	if !p.timestamps.readTimes(&clock.times, from, n, b) {
		return false
	}
	return p.timestamps.areValid()
}

// len returns the number of times. One of the two slices is empty.
func (s *timestamps) len() int { return len(s.ns) + len(s.seconds) }

// areValid reports whether the timestamps do not decrease and are in range. If they are sorted,
// only the first and the last must be compared with the range.
func (s *timestamps) areValid() bool {
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

// clockView gives the memory address of each time in a tensor.
type clockView struct {
	tensorView
	asGiven bool
}

// clockOf returns the view of times [S] or [B, S].
func clockOf(t *kernel.Tensor, clock kernel.Clock) clockView {
	axis := len(t.Shape) - 1
	v := clockView{
		tensorView{data: t.Data, dtype: t.DType, base: t.Base, step: t.Step(axis)},
		clock == kernel.AsGiven,
	}
	if axis == 1 {
		v.batch = t.Step(0)
	}
	return v
}

// readTimes reads n times of an entry from index from on. It uses adjacent int64 values in place.
// It returns false if a time is NaN or infinite.
func (s *timestamps) readTimes(v *clockView, from, n, entry int) bool {
	at := v.base + entry*v.batch + from*v.step
	d := v.data
	s.ns, s.seconds = nil, nil
	if n == 0 {
		return true
	}
	if v.dtype == robocache.Int64 {
		if p := unsafe.Pointer(&d[at*8]); v.step == 1 && uintptr(p)%8 == 0 {
			s.ns = unsafe.Slice((*int64)(p), n)
			return true
		}
		s.nsBuffer = resizeSlice(s.nsBuffer, n)
		s.ns = s.nsBuffer
		for i := range n {
			s.ns[i] = int64(le.Uint64(d[(at+i*v.step)*8:]))
		}
		return true
	}
	if v.asGiven {
		s.secondsBuffer = resizeSlice(s.secondsBuffer, n)
		s.seconds = s.secondsBuffer
		for i := range n {
			s.seconds[i] = readNumber(d, v.dtype, at+i*v.step)
		}
		return true
	}
	s.nsBuffer = resizeSlice(s.nsBuffer, n)
	s.ns = s.nsBuffer
	for i := range n {
		x := readNumber(d, v.dtype, at+i*v.step)
		if x-x != 0 {
			return false // NaN or infinite
		}
		s.ns[i] = kernel.FromSeconds(x)
	}
	return true
}
