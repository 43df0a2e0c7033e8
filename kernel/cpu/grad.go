package cpu

import (
	"slices"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/kernel"
)

// runGrad computes the backward pass of one stream. It runs the reference on several cores, each
// with some of the entries.
func (b *Backend) runGrad(op *kernel.FuseGradOp) error {
	batch := 0
	if op.Series.Offsets == nil {
		batch = op.Out.Shape[0]
	}
	threads := min(worthThreads(b.threads, batch*8*op.Grad.Len()), batch)
	if threads < 2 {
		return kernel.Reference{}.Run(op)
	}
	var failed atomic.Bool
	runThreads(threads, func(t int) {
		from := t * batch / threads
		to := (t + 1) * batch / threads
		part := *op
		part.Series.Values = sliceEntries(op.Series.Values, 3, from, to)
		part.Series.Times = sliceEntries(op.Series.Times, 2, from, to)
		part.Targets = sliceEntries(op.Targets, 2, from, to)
		part.Out, part.Grad = sliceEntries(op.Out, 3, from, to), sliceEntries(op.Grad, 3, from, to)
		if l := op.Series.Lengths; l != nil {
			n := sliceEntries(*l, 1, from, to)
			part.Series.Lengths = &n
		}
		if (kernel.Reference{}).Run(&part) != nil {
			failed.Store(true)
		}
	})
	if failed.Load() {
		return kernel.Reference{}.Run(op) // the reference returns the error with its place
	}
	return nil
}

// sliceEntries returns entries from … to-1 of a tensor with the given number of axes. A tensor with
// fewer axes is shared by all entries and returned unchanged.
func sliceEntries(t kernel.Tensor, axes, from, to int) kernel.Tensor {
	if len(t.Shape) == axes {
		t.Base += from * t.Step(0)
		t.Shape = slices.Clone(t.Shape)
		t.Shape[0] = to - from
	}
	return t
}
