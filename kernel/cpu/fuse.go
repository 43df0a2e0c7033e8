package cpu

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel"
)

// fuse resamples every stream of every entry into its columns.
func (b *Backend) fuse(op *kernel.FuseOp) error {
	c := calls.Get().(*call)
	defer c.release()
	c.start(op)
	if c.batch == 0 || c.rows == 0 {
		return kernel.Reference{}.Run(op) // nothing to fill, yet the times are to be proved
	}
	for i := range op.Series {
		// A row outside is no error of the data: the output stays as it was.
		if op.Series[i].Rule.Edge == kernel.ErrorEdge {
			c.dry = true
		}
	}
	ok := true
	if c.dry {
		ok = c.run(b.threads)
		c.dry = false
	}
	if !ok || !c.run(b.threads) {
		return kernel.Reference{}.Run(op) // which says what is wrong, and where
	}
	c.group.tell(op.Counts)
	return nil
}

// rowsPerPlan is how many rows are planned before they are made: their plan stays in the first
// cache.
const rowsPerPlan = 512

// call is one Fuse while it runs. It is kept and used again, so that a call allocates nothing once
// its size has been seen.
type call struct {
	op          *kernel.FuseOp
	batch, rows int
	targets     clockView
	streams     []stream
	clocks      []clock
	whole       bool // an entry's rows are made in one piece: augmentation counts them
	dry         bool // plans are made and proved, rows are not
	bytes       int  // that are read and written

	parts int // pieces of an entry's rows
	group workerGroup
}

// clock is what streams of the same timestamps and the same rule of time share: one plan.
type clock struct {
	series *kernel.Series
	times  clockView
	shared bool // by all entries
	users  []int
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	for i := range c.streams {
		c.streams[i].forget()
	}
	for i := range c.clocks {
		c.clocks[i].series, c.clocks[i].times = nil, clockView{}
	}
	c.op, c.targets = nil, clockView{}
	calls.Put(c)
}

func (c *call) start(op *kernel.FuseOp) {
	c.op, c.batch, c.rows = op, op.Out.Shape[0], op.Out.Shape[1]
	c.whole, c.dry = false, false
	c.targets = clockOf(&op.Targets, op.Clock)
	c.streams = resize(c.streams, len(op.Series))
	c.clocks = c.clocks[:0]
	size := op.Out.DType.Size()
	c.bytes = op.Out.Len() * size
	streaming := c.bytes >= streamBytes
	col := 0
	for i := range op.Series {
		s := &op.Series[i]
		d := s.Values.Shape[len(s.Values.Shape)-1]
		rows := s.Values.Len() / max(d, 1)
		c.bytes += min(rows, 2*c.batch*c.rows)*d*s.Values.DType.Size() + 8*s.Times.Len()
		c.whole = c.whole || s.Epilogue.Augment != nil
		dst := viewOf(&op.Out)
		dst.base += col * dst.step
		c.streams[i].start(
			&s.Rule,
			&s.Epilogue,
			dst,
			viewOf(&s.Values),
			d,
			op.Counts != nil,
			streaming,
			c.batch == 0 || c.rows == 0,
		)
		c.clock(s, i)
		col += d
	}
}

// clock finds the clock of a stream among those of the streams before it.
func (c *call) clock(s *kernel.Series, i int) {
	for k := range c.clocks {
		if o := &c.clocks[k]; sameClock(o.series, s) {
			o.users = append(o.users, i)
			return
		}
	}
	n := len(c.clocks)
	c.clocks = resize(c.clocks, n+1)
	o := &c.clocks[n]
	o.series, o.users = s, append(o.users[:0], i)
	o.times = clockOf(&s.Times, c.op.Clock)
	o.shared = s.Lengths == nil && s.Offsets == nil && o.times.batch == 0 && c.targets.batch == 0
}

func sameClock(a, b *kernel.Series) bool {
	r, q := &a.Rule, &b.Rule
	return sameTensor(&a.Times, &b.Times) && a.Lengths == b.Lengths && a.Offsets == b.Offsets &&
		r.Mode == q.Mode &&
		r.Edge == q.Edge &&
		r.MaxGap == q.MaxGap &&
		r.Before == q.Before &&
		r.After == q.After
}

func sameTensor(a, b *kernel.Tensor) bool {
	if unsafe.SliceData(a.Data) != unsafe.SliceData(b.Data) || a.Base != b.Base ||
		a.DType != b.DType ||
		len(a.Shape) != len(b.Shape) {
		return false
	}
	for i := range a.Shape {
		if a.Shape[i] != b.Shape[i] || a.Step(i) != b.Step(i) {
			return false
		}
	}
	return true
}

// run makes all rows. It is false where something is wrong with the times.
func (c *call) run(threads int) bool {
	threads = worth(threads, c.bytes)
	c.parts = 1
	if c.batch < 2*threads && !c.whole && threads > 1 {
		c.parts = max(1, min((2*threads+c.batch-1)/c.batch, c.rows/16))
	}
	return c.group.run(c, c.batch*c.parts, threads)
}

// begin forgets what the worker knows of another call.
func (c *call) begin(w *worker) {
	w.entry = -1
	w.clocks = resize(w.clocks, len(c.clocks))
	for i := range w.clocks {
		w.clocks[i].entry = -1
		w.clocks[i].planned = [2]int{-1}
	}
}

// unit makes a part of the rows of one entry. Neighbouring entries come one after another: a plan
// that they share is made once a worker.
func (c *call) unit(w *worker, u int) bool {
	part, b := u/c.batch, u%c.batch
	return w.entryRows(c, b, part*c.rows/c.parts, (part+1)*c.rows/c.parts)
}

// resize is s with n entries; those that were there before keep their slices.
func resize[T any](s []T, n int) []T {
	for cap(s) < n {
		s = append(s[:cap(s)], *new(T))
	}
	return s[:n]
}

// maxSpan is the longest interval whose length, and so every distance in it, is exact in the vector
// kernels' way to float64.
const maxSpan = 1<<52 - 1

func gapLimit(rule *kernel.Rule) int64 {
	if rule.MaxGap == 0 {
		return maxSpan
	}
	return min(rule.MaxGap, maxSpan)
}

func inRange(t int64) bool { return t > -kernel.MaxTime && t < kernel.MaxTime }
