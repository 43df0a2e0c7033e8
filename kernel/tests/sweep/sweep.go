// Package sweep runs random operations on two back ends and compares the results. Only tests use
// it.
package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

// Ops runs n random operations on both back ends and compares their results bit by bit. Slerp and
// noise may differ by the tolerance of the contract. Operation i depends only on seed+i; a failure
// names this seed, which repeats it with n = 1. ran does not count operations that a back end does
// not support.
func Ops(a, b kernel.Backend, seed uint64, n int) (ran int, failures []error) {
	return sweep(a, b, seed, n, false)
}

// Bits is Ops for back ends whose slerp and noise must be equal to the bit too, because they run on
// the same processor.
func Bits(a, b kernel.Backend, seed uint64, n int) (ran int, failures []error) {
	return sweep(a, b, seed, n, true)
}

// sweep runs the operations of seeds seed … seed+n-1. With bits, no difference is tolerated.
func sweep(a, b kernel.Backend, seed uint64, n int, bits bool) (ran int, failures []error) {
	for i := range uint64(n) {
		done, err := sweepOne(a, b, seed+i, bits)
		if done {
			ran++
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("seed %d: %w", seed+i, err))
		}
	}
	return ran, failures
}

// sweepOne runs the operation of one seed on both back ends and compares the results. done is false
// if a back end does not support the operation.
func sweepOne(a, b kernel.Backend, seed uint64, bits bool) (done bool, err error) {
	// The same seed gives the same operation. It is made twice, so that each back end has its own
	// memory.
	kind := seed % 10
	seeded := func() sweeper { return sweeper{rand.New(rand.NewPCG(seed, 0x5eed))} }
	var x, y []result // results of a and of b
	var errA, errB error
	var text string // describes the operation, for errors
	switch {
	case kind < 6:
		p, err := seeded().randomFuse()
		if err != nil {
			return done, err
		}
		q, err := seeded().randomFuse()
		if err != nil {
			return done, err
		}
		if err := p.Check(); err != nil {
			return true, fmt.Errorf("the sweep made an op that is wrong: %w", err)
		}
		text, x, y = describeFuse(p), fuseResults(p), fuseResults(q)
		errA, errB = a.Run(p), b.Run(q)
	case kind < 8:
		p, err := seeded().randomGrad()
		if err != nil {
			return done, err
		}
		q, err := seeded().randomGrad()
		if err != nil {
			return done, err
		}
		if err := p.Check(); err != nil {
			return true, fmt.Errorf("the sweep made an op that is wrong: %w", err)
		}
		text = fmt.Sprintf(
			"gradient of %s from %v, targets %v",
			describeSeries(&p.Series),
			describeTensor(&p.Out),
			p.Targets.Shape,
		)
		x, y = []result{{t: &p.Grad}}, []result{{t: &q.Grad}}
		errA, errB = a.Run(p), b.Run(q)
	default:
		p, err := seeded().randomApply()
		if err != nil {
			return done, err
		}
		q, err := seeded().randomApply()
		if err != nil {
			return done, err
		}
		if err := p.Check(); err != nil {
			return true, fmt.Errorf("the sweep made an op that is wrong: %w", err)
		}
		text, x, y = describeApply(p), applyResults(p), applyResults(q)
		errA, errB = a.Run(p), b.Run(q)
	}
	if errors.Is(errA, robocache.ErrUnsupported) || errors.Is(errB, robocache.ErrUnsupported) {
		return false, nil
	}
	if errA != nil || errB != nil {
		if errA == nil || errB == nil || robocache.Classify(errA) != robocache.Classify(errB) {
			return true, fmt.Errorf("%s: one says %v, the other %v", text, errA, errB)
		}
		return true, nil
	}
	for i := range x {
		if bits {
			x[i].slack = nil
		}
		if err := x[i].compare(&y[i]); err != nil {
			return true, fmt.Errorf("%s: %w", text, err)
		}
	}
	return true, nil
}

// result is a tensor that an operation writes, with the tolerance of each column.
type result struct {
	name  string
	t     *kernel.Tensor
	slack []float64 // tolerance by column of the last axis; nil or 0 = equal bits
}

// compare compares the elements, and then the memory between them, which must be unchanged. It
// clears the elements of both results, so that only the memory between them remains.
func (x *result) compare(y *result) error {
	var err error
	dt := x.t.DType
	size := dt.Size()
	if err := x.t.Elements(func(o int, index []int) error {
		p, q := x.t.Data[o:o+size], y.t.Data[o:o+size]
		var slack float64
		if x.slack != nil {
			slack = x.slack[index[len(index)-1]]
		}
		if err == nil && !conform.Near(conform.Word(p), conform.Word(q), dt, slack) {
			err = fmt.Errorf(
				"%s %v: %0*x and %0*x",
				x.name,
				index,
				2*size,
				conform.Word(p),
				2*size,
				conform.Word(q),
			)
		}
		clear(p)
		clear(q)
		return nil
	}); err != nil {
		return err
	}
	if err == nil && !bytes.Equal(x.t.Data, y.t.Data) {
		err = fmt.Errorf("%s: memory between the elements was written to", x.name)
	}
	return err
}

// columnSlack returns the tolerance of a column between two back ends. It is one float32 step of a
// quaternion and 2^-20 of the noise (kernel.K5, kernel.K16), scaled as the epilogue scales them.
func columnSlack(r *kernel.Rule, e *kernel.Epilogue, out robocache.DType) float64 {
	s := 0.0
	if r.Mode == kernel.Slerp {
		s = 0x1p-23
		if e.Norm != nil {
			for _, b := range e.Norm.B {
				if b != 0 {
					s = max(s, 0x1p-22/math.Abs(float64(b)))
				}
			}
		}
	}
	if a := e.Augment; a != nil {
		if s > 0 {
			s *= max(1, math.Abs(float64(a.ScaleLo)), math.Abs(float64(a.ScaleHi)))
		}
		s += float64(a.Noise) * 0x1p-20
	}
	// add a step of the output type, because rounding can move the two values to different
	// neighbors
	if s > 0 {
		switch out {
		case robocache.Float16:
			s += 0x1p-10
		case robocache.BFloat16:
			s += 0x1p-7
		}
	}
	return s
}

// repeatValue returns n copies of s.
func repeatValue(s float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// fuseResults returns the results of op with the tolerance of each column. The counts are included
// only if all columns must have equal bits.
func fuseResults(op *kernel.FuseOp) []result {
	var columns []float64
	loose := false
	for i := range op.Series {
		s := &op.Series[i]
		x := columnSlack(&s.Rule, &s.Epilogue, op.Out.DType)
		loose = loose || x > 0
		columns = append(columns, repeatValue(x, s.Values.Shape[len(s.Values.Shape)-1])...)
	}
	out := []result{{"out", &op.Out, columns}}
	if op.Valid != nil {
		out = append(out, result{"valid", op.Valid, nil})
	}
	if op.Counts != nil && !loose {
		out = append(out, result{"counts", op.Counts, nil})
	}
	return out
}

// applyResults is fuseResults for an ApplyOp.
func applyResults(op *kernel.ApplyOp) []result {
	var out []result
	loose := false
	for i := range op.Parts {
		p := &op.Parts[i]
		x := columnSlack(&p.Rule, &p.Epilogue, p.Out.DType)
		loose = loose || x > 0
		out = append(out, result{fmt.Sprintf("part %d", i), &p.Out, repeatValue(x, p.Out.Shape[1])})
		if p.Valid != nil {
			out = append(out, result{fmt.Sprintf("valid of part %d", i), p.Valid, nil})
		}
	}
	if op.Counts != nil && !loose {
		out = append(out, result{"counts", op.Counts, nil})
	}
	return out
}

// describeTensor returns the type, the shape and the strides of a tensor, for errors.
func describeTensor(t *kernel.Tensor) string {
	if t.Stride == nil {
		return fmt.Sprint(t.DType, t.Shape)
	}
	return fmt.Sprint(t.DType, t.Shape, "/", t.Stride)
}

// describeRule returns the options of a stream, for errors.
func describeRule(r *kernel.Rule, e *kernel.Epilogue) string {
	s := fmt.Sprintf("%v %v gap %d", r.Mode, r.Edge, r.MaxGap)
	if r.Quats != nil {
		s += fmt.Sprint(" quats ", r.Quats)
	}
	if e.Unit {
		s += " unit"
	}
	if e.Norm != nil {
		s += fmt.Sprintf(" norm %d/%d", len(e.Norm.A), e.Plane)
	}
	if e.Clip != nil {
		s += " clip"
	}
	if a := e.Augment; a != nil {
		s += fmt.Sprintf(
			" noise %v dropout %v scale %v…%v",
			a.Noise,
			a.Dropout,
			a.ScaleLo,
			a.ScaleHi,
		)
	}
	return s
}

// describeSeries describes a stream, for errors.
func describeSeries(s *kernel.Series) string {
	kind := ""
	if s.Lengths != nil {
		kind = " padded"
	}
	if s.Offsets != nil {
		kind = " ragged"
	}
	return fmt.Sprintf(
		"{%s%s, times %s, %s}",
		describeTensor(&s.Values),
		kind,
		describeTensor(&s.Times),
		describeRule(&s.Rule, &s.Epilogue),
	)
}

// describeFuse describes an operation, for errors.
func describeFuse(op *kernel.FuseOp) string {
	s := fmt.Sprintf(
		"fuse clock %d to %s, targets %s",
		op.Clock,
		describeTensor(&op.Out),
		describeTensor(&op.Targets),
	)
	for i := range op.Series {
		s += " " + describeSeries(&op.Series[i])
	}
	return s
}

// describeApply describes an operation, for errors.
func describeApply(op *kernel.ApplyOp) string {
	s := "apply"
	for i := range op.Parts {
		p := &op.Parts[i]
		s += fmt.Sprintf(
			" {%s to %s planned %v, %s}",
			describeTensor(&p.Src),
			describeTensor(&p.Out),
			p.Kind != nil,
			describeRule(&p.Rule, &p.Epilogue),
		)
	}
	return s
}
