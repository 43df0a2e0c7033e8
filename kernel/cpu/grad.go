package cpu

import (
	"slices"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/kernel"
)

// grad is the backward of one stream: the reference's, with the entries shared out among the cores.
func (b *Backend) grad(op *kernel.FuseGradOp) error {
	batch := 0
	if op.Series.Offsets == nil {
		batch = op.Out.Shape[0]
	}
	threads := min(worth(b.threads, batch*8*op.Grad.Len()), batch)
	if threads < 2 {
		return kernel.Reference{}.Run(op)
	}
	var failed atomic.Bool
	each(threads, func(t int) {
		from, to := t*batch/threads, (t+1)*batch/threads
		part := *op
		part.Series.Values, part.Series.Times, part.Targets = entries(
			op.Series.Values,
			3,
			from,
			to,
		), entries(
			op.Series.Times,
			2,
			from,
			to,
		), entries(
			op.Targets,
			2,
			from,
			to,
		)
		part.Out, part.Grad = entries(op.Out, 3, from, to), entries(op.Grad, 3, from, to)
		if l := op.Series.Lengths; l != nil {
			n := entries(*l, 1, from, to)
			part.Series.Lengths = &n
		}
		if (kernel.Reference{}).Run(&part) != nil {
			failed.Store(true)
		}
	})
	if failed.Load() {
		return kernel.Reference{}.Run(op) // which says what is wrong, and where
	}
	return nil
}

// entries are some of a tensor's, which has so many axes; with fewer they share it.
func entries(t kernel.Tensor, axes, from, to int) kernel.Tensor {
	if len(t.Shape) == axes {
		t.Base += from * t.Step(0)
		t.Shape = slices.Clone(t.Shape)
		t.Shape[0] = to - from
	}
	return t
}
