package cpu

import (
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// FuseGrad is the backward of one stream: entries are shared out among the cores, and each adds up its rows in target order. After an error the
// gradient may hold anything.
func (b *Backend) FuseGrad(op *kernel.FuseGradOp) error {
	if err := kernel.CheckHost(op); err != nil {
		return err
	}
	c := grads.Get().(*gradCall)
	defer grads.Put(c)
	defer c.forget()
	if !c.start(op) || !c.group.run(c, c.batch, worth(b.threads, op.Grad.Len()*8)) {
		return kernel.Reference{}.FuseGrad(op) // says what is wrong, or does what has no kernel
	}
	return nil
}

// gradCall is one FuseGrad while it runs.
type gradCall struct {
	op          *kernel.FuseGradOp
	clock       clock
	targets     clockView
	out, grad   view
	batch, rows int
	cols        int
	group       workerGroup
	load, store func(*rowArgs) // rows to and from float32; nil = they are float32
}

var grads = sync.Pool{New: func() any { return new(gradCall) }}

func (c *gradCall) forget() {
	c.op, c.clock, c.targets, c.out, c.grad = nil, clock{}, clockView{}, view{}, view{}
}

// start is false where there is no kernel: float64, columns with gaps, or a processor without.
func (c *gradCall) start(op *kernel.FuseGradOp) bool {
	c.op, c.out, c.grad = op, viewOf(&op.Out), viewOf(&op.Grad)
	c.clock.series, c.clock.times, c.targets = &op.Series, clockOf(&op.Series.Times, op.Clock), clockOf(&op.Targets, op.Clock)
	c.batch, c.rows, c.cols = op.Out.Shape[0], op.Out.Shape[1], op.Out.Shape[2]
	if !fast || c.batch == 0 || c.rows == 0 || c.cols == 0 || c.cols > 1 && (c.out.step != 1 || c.grad.step != 1) || op.Series.Values.DType == robocache.Float64 || c.out.dtype == robocache.Float64 || c.grad.dtype == robocache.Float64 {
		return false
	}
	c.load, c.store = nil, nil
	if c.out.dtype != robocache.Float32 {
		c.load = lerpKernel(c.out.dtype, robocache.Float32, plain)
	}
	if c.grad.dtype != robocache.Float32 {
		c.store = lerpKernel(robocache.Float32, c.grad.dtype, plain)
	}
	if op.Series.Offsets != nil {
		// Rows between the entries are read by no target.
		c.clear(0, 0, op.Grad.Shape[0])
	}
	return true
}

func (c *gradCall) clear(b, from, rows int) {
	if rows == 0 {
		return
	}
	n := c.cols * c.grad.dtype.Size()
	for i := range rows {
		clear(unsafe.Slice((*byte)(c.grad.at(b, from+i)), n))
	}
}

func (c *gradCall) begin(w *worker) {
	w.entry = -1
	w.clocks = resize(w.clocks, 1)
	w.clocks[0].entry = -1
}

func (c *gradCall) unit(w *worker, b int) bool {
	op, p := c.op, &w.clocks[0]
	if !w.targets.read(&c.targets, 0, c.rows, b) || !p.prepare(&c.clock, b) {
		return false
	}
	batch := b
	if op.Series.Offsets != nil {
		batch = 0
	} else {
		c.clear(b, 0, op.Grad.Shape[1])
	}
	sources := p.timestamps.len()
	if sources == 0 {
		w.resizePlan(c.rows)
		return w.fill(&op.Series.Rule, &p.timestamps, &w.targets, 0, c.rows, op.Clock, op.Epsilon)
	}
	total, step := c.grad.at(batch, p.from), c.grad.row*4
	if c.store != nil {
		w.total = resize(w.total, sources*c.cols)
		clear(w.total)
		total, step = unsafe.Pointer(&w.total[0]), c.cols*4
	}
	for t := 0; t < c.rows; t += rowsPerPlan {
		n := min(rowsPerPlan, c.rows-t)
		w.resizePlan(n)
		if !w.fill(&op.Series.Rule, &p.timestamps, &w.targets, t, n, op.Clock, op.Epsilon) {
			return false
		}
		g, pitch := c.out.at(b, t), c.out.row*c.out.dtype.Size()
		if c.load != nil {
			g, pitch = w.convert(c.load, g, pitch, n, c.cols), c.cols*4
		}
		q := &w.plan
		for i := 0; i < n; {
			j := i + 1
			for j < n && (q.Kind[j] == kernel.Zero) == (q.Kind[i] == kernel.Zero) {
				j++
			}
			if q.Kind[i] != kernel.Zero {
				w.args = rowArgs{dst: total, dstStep: step, src: unsafe.Add(g, i*pitch), srcStep: pitch, left: &q.Left[i], right: &q.Right[i], weight: &q.Weight[i], rows: j - i, cols: c.cols}
				scatter(&w.args)
			}
			i = j
		}
	}
	if c.store != nil {
		w.identity(min(sources, rowsPerPlan))
		for r := 0; r < sources; r += rowsPerPlan {
			w.args = rowArgs{dst: c.grad.at(batch, p.from+r), dstStep: c.grad.row * c.grad.dtype.Size(), src: unsafe.Pointer(&w.total[r*c.cols]), srcStep: c.cols * 4,
				left: &w.same[0], right: &w.same[0], weight: &w.none[0], rows: min(rowsPerPlan, sources-r), cols: c.cols}
			c.store(&w.args)
		}
	}
	return true
}

// identity makes the plan that takes each row as it is.
func (w *worker) identity(n int) {
	for len(w.same) < n {
		w.same, w.none = append(w.same, int32(len(w.same))), append(w.none, 0)
	}
}

// convert gives rows as float32, side by side.
func (w *worker) convert(kernel func(*rowArgs), src unsafe.Pointer, step, rows, cols int) unsafe.Pointer {
	w.identity(rows)
	w.wide = resize(w.wide, rows*cols)
	w.args = rowArgs{dst: unsafe.Pointer(&w.wide[0]), dstStep: cols * 4, src: src, srcStep: step, left: &w.same[0], right: &w.same[0], weight: &w.none[0], rows: rows, cols: cols}
	kernel(&w.args)
	return unsafe.Pointer(&w.wide[0])
}
