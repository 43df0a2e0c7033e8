package cuda

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache/kernel"
)

// gradParams mirrors Grad of src/grad.cu, which documents the fields.
type gradParams struct {
	times, rows, targets, out, grad                      uintptr
	batch, work, raggedRows                              int64
	timesEntry, timesRow, rowsStep                       int64
	targetsEntry, targetsRow                             int64
	outEntry, outRow, outColumn                          int64
	gradEntry, gradRow, gradColumn                       int64
	maxGap                                               int64
	epsilon                                              float64
	n, targetsN, columns, samples, groups, chunk, chunks int32
	dtype, outType, gradType, timeType                   uint8
	targetType, clock, mode, edge, flags                 uint8
	_                                                    [3]uint8
}

const (
	gradThreads = 256  // kPiece
	gradOwned   = 1024 // kPiece * kOwned
)

// gradParamsOf returns the parameters of the backward pass without addresses.
func gradParamsOf(op *kernel.FuseGradOp) *gradParams {
	s := &op.Series
	p := &gradParams{
		batch:    int64(op.Out.Shape[0]),
		targetsN: int32(op.Out.Shape[1]),
		columns:  int32(op.Out.Shape[2]),
	}
	axis := len(op.Grad.Shape) - 2
	rows := op.Grad.Shape[axis]
	p.n = int32(rows)
	p.raggedRows = int64(rows)
	p.timesEntry, p.timesRow = timeSteps(&s.Times)
	p.targetsEntry, p.targetsRow = timeSteps(&op.Targets)
	p.outEntry = bytesStep(&op.Out, 0)
	p.outRow = bytesStep(&op.Out, 1)
	p.outColumn = bytesStep(&op.Out, 2)
	p.gradRow = bytesStep(&op.Grad, axis)
	p.gradColumn = bytesStep(&op.Grad, axis+1)
	if axis == 1 {
		p.gradEntry = bytesStep(&op.Grad, 0)
	}
	p.maxGap = s.Rule.MaxGap
	p.epsilon = op.Epsilon
	p.clock = uint8(op.Clock)
	p.mode = uint8(s.Rule.Mode)
	p.edge = uint8(s.Rule.Edge)
	p.dtype = uint8(s.Values.DType)
	p.outType = uint8(op.Out.DType)
	p.gradType = uint8(op.Grad.DType)
	p.timeType = uint8(s.Times.DType)
	p.targetType = uint8(op.Targets.DType)
	p.chunk = min(p.columns, gradThreads)
	p.chunks = int32(ceilDiv(int64(p.columns), int64(p.chunk)))
	p.samples = gradOwned / p.chunk
	p.groups = int32(ceilDiv(int64(p.n), int64(p.samples)))
	p.work = p.batch * int64(p.groups) * int64(p.chunks)
	for _, t := range []*kernel.Tensor{s.Lengths, s.Offsets} {
		if t != nil {
			p.rowsStep = bytesStep(t, 0)
		}
	}
	if s.Lengths != nil {
		p.flags |= streamLengths
	}
	if s.Offsets != nil {
		p.flags |= streamOffsets
		p.work = int64(p.groups) * int64(p.chunks)
	}
	return p
}

// prepareFuseGrad prepares the backward pass of one stream. The gradient of each sample is summed
// in target order, so that the bits are the same in each run.
func (d *Device) prepareFuseGrad(op *kernel.FuseGradOp) (*Launch, error) {
	s := &op.Series
	l := newLaunch(d.launcher, "fuse_grad", op)
	if op.Grad.Len() == 0 {
		return l, nil
	}
	rows := op.Grad.Shape[len(op.Grad.Shape)-2]
	most := max(rows, op.Out.Shape[1], op.Out.Shape[2])
	if most > math.MaxInt32/2 {
		return nil, tooLargeError("fuse_grad", "elements of an axis", most)
	}
	p := gradParamsOf(op)
	n := l.addCall(
		call{
			kernel: "fuse_grad",
			grid:   uint32(min(p.work, 1<<30)),
			block:  gradThreads,
			params: paramsOf(p),
			early:  true,
			args: func() string {
				return fmt.Sprintf("B %d, S %d, T %d, D %d", p.batch, p.n, p.targetsN, p.columns)
			},
		},
	)
	l.bind(n, &p.times, &s.Times)
	l.bind(n, &p.rows, s.Lengths)
	l.bind(n, &p.rows, s.Offsets)
	l.bind(n, &p.targets, &op.Targets)
	l.bind(n, &p.out, &op.Out)
	l.bind(n, &p.grad, &op.Grad)
	return l, nil
}
