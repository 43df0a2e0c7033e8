package cpu

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel"
)

// runFuse resamples every stream of every entry into its columns.
func (b *Backend) runFuse(op *kernel.FuseOp) error {
	c := fusePool.Get().(*fuseRun)
	defer c.release()
	c.prepareStreams(op)
	if c.batch == 0 || c.rows == 0 {
		return kernel.Reference{}.Run(op) // there are no rows, but the times must still be checked
	}
	for i := range op.Series {
		// Under ErrorEdge a target outside the data must leave the output unchanged, so all rows
		// are planned first.
		if op.Series[i].Rule.Edge == kernel.ErrorEdge {
			c.planOnly = true
		}
	}
	ok := true
	if c.planOnly {
		ok = c.runParts(b.threads)
		c.planOnly = false
	}
	if !ok || !c.runParts(b.threads) {
		return kernel.Reference{}.Run(op) // the reference returns the error with its place
	}
	c.group.addCounts(op.Counts)
	return nil
}

// rowsPerPlan is the number of rows that are planned before they are computed. A plan of this size
// stays in the first-level cache.
const rowsPerPlan = 512

// fuseRun is the state of one FuseOp while it runs. It is pooled, so that a call allocates nothing
// if an earlier call had the same size.
type fuseRun struct {
	op          *kernel.FuseOp
	batch, rows int
	targets     clockView
	streams     []stream
	clocks      []sharedClock
	// wholeEntries means that each entry must be computed in one piece, because augmentation counts
	// its rows.
	wholeEntries bool
	planOnly     bool // only compute and check the plans, without computing rows
	bytes        int  // number of bytes read and written

	partsPerEntry int // number of pieces into which each entry's rows are cut
	group         workerGroup
}

// sharedClock is a group of streams with the same timestamps and the same time rule. They share one
// plan.
type sharedClock struct {
	series  *kernel.Series
	times   clockView
	shared  bool // all entries have the same timestamps and targets
	streams []int
}

var fusePool = sync.Pool{New: func() any { return new(fuseRun) }}

// release drops the references to the operation and returns c to the pool.
func (c *fuseRun) release() {
	for i := range c.streams {
		c.streams[i].forgetCaller()
	}
	for i := range c.clocks {
		c.clocks[i].series = nil
		c.clocks[i].times = clockView{}
	}
	c.op = nil
	c.targets = clockView{}
	fusePool.Put(c)
}

// prepareStreams chooses the kernel of each stream and groups the streams by clock.
func (c *fuseRun) prepareStreams(op *kernel.FuseOp) {
	c.op = op
	c.batch = op.Out.Shape[0]
	c.rows = op.Out.Shape[1]
	c.wholeEntries, c.planOnly = false, false
	c.targets = clockOf(&op.Targets, op.Clock)
	c.streams = resizeSlice(c.streams, len(op.Series))
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
		c.wholeEntries = c.wholeEntries || s.Epilogue.Augment != nil
		dst := viewOf(&op.Out)
		dst.base += col * dst.step
		c.streams[i].chooseKernel(
			&s.Rule,
			&s.Epilogue,
			dst,
			viewOf(&s.Values),
			d,
			rowTraits{
				countsOverflows: op.Counts != nil,
				exceedsCaches:   streaming,
				isEmpty:         c.batch == 0 || c.rows == 0,
			},
		)
		c.addClock(s, i)
		col += d
	}
}

// addClock adds stream i to the group of earlier streams with the same clock, or to a new group.
func (c *fuseRun) addClock(s *kernel.Series, i int) {
	for k := range c.clocks {
		if o := &c.clocks[k]; sameClock(o.series, s) {
			o.streams = append(o.streams, i)
			return
		}
	}
	n := len(c.clocks)
	c.clocks = resizeSlice(c.clocks, n+1)
	o := &c.clocks[n]
	o.series = s
	o.streams = append(o.streams[:0], i)
	o.times = clockOf(&s.Times, c.op.Clock)
	o.shared = s.Lengths == nil && s.Offsets == nil && o.times.batch == 0 && c.targets.batch == 0
}

// sameClock reports whether two streams have the same timestamps and the same time rule, so that
// one plan is right for both.
func sameClock(a, b *kernel.Series) bool {
	r, q := &a.Rule, &b.Rule
	sameEntries := a.Lengths == b.Lengths && a.Offsets == b.Offsets
	sameMode := r.Mode == q.Mode && r.Edge == q.Edge && r.MaxGap == q.MaxGap
	sameWindow := r.Before == q.Before && r.After == q.After
	return sameEntries && sameMode && sameWindow && sameTensor(&a.Times, &b.Times)
}

// sameTensor reports whether two tensors are the same view of the same memory.
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

// runParts computes all rows. It returns false if the times are invalid.
func (c *fuseRun) runParts(threads int) bool {
	threads = worthThreads(threads, c.bytes)
	c.partsPerEntry = 1
	if c.batch < 2*threads && !c.wholeEntries && threads > 1 {
		c.partsPerEntry = max(1, min((2*threads+c.batch-1)/c.batch, c.rows/16))
	}
	return c.group.runTask(c, c.batch*c.partsPerEntry, threads)
}

// beginWorker discards what the worker prepared for another call.
func (c *fuseRun) beginWorker(w *worker) {
	w.entry = -1
	w.clocks = resizeSlice(w.clocks, len(c.clocks))
	for i := range w.clocks {
		w.clocks[i].entry = -1
		w.clocks[i].planned = [2]int{-1}
	}
}

// runUnit computes a part of the rows of one entry. Neighboring units belong to neighboring
// entries, so that a worker computes a plan that they share only once.
func (c *fuseRun) runUnit(w *worker, u int) bool {
	part := u / c.batch
	b := u % c.batch
	return w.entryRows(c, b, part*c.rows/c.partsPerEntry, (part+1)*c.rows/c.partsPerEntry)
}

// resizeSlice returns s with n elements. Existing elements keep their slices.
func resizeSlice[T any](s []T, n int) []T {
	for cap(s) < n {
		s = append(s[:cap(s)], *new(T))
	}
	return s[:n]
}

// maxSpan is the longest interval for which the vector kernels convert every distance to float64
// exactly.
const maxSpan = 1<<52 - 1

// gapLimit returns the longest interval between samples in which the vector kernels may find a row.
func gapLimit(rule *kernel.Rule) int64 {
	if rule.MaxGap == 0 {
		return maxSpan
	}
	return min(rule.MaxGap, maxSpan)
}

// inRange reports whether t is a legal time in ns (kernel.K13).
func inRange(t int64) bool { return t > -kernel.MaxTime && t < kernel.MaxTime }
