package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestGradIsTheReference compares random gradients with the reference, bit by bit.
func TestGradIsTheReference(t *testing.T) {
	failed := 0
	n := runs(t, 1500)
	for seed := range n {
		r := dice{rand.New(rand.NewPCG(uint64(seed), 8))}
		f := r.fuse()
		op := &kernel.FuseGradOp{
			Series:  f.Series[0],
			Targets: f.Targets,
			Clock:   f.Clock,
			Epsilon: f.Epsilon,
		}
		op.Series.Epilogue = kernel.Epilogue{}
		op.Series.Rule.Mode %= 4
		batch, rows := f.Out.Shape[0], f.Out.Shape[1]
		shape := op.Series.Values.Shape
		d := r.oneOf(robocache.Float32, robocache.Float16, robocache.BFloat16)
		op.Out = r.layout(d, true, batch, rows, shape[len(shape)-1])
		r.values(&op.Out)
		op.Grad = r.layout(
			r.oneOf(robocache.Float32, robocache.Float16, robocache.BFloat16),
			false,
			shape...)
		r.values(&op.Grad)
		want := *op
		want.Grad = *twin(&op.Grad)
		wantErr := kernel.Reference{}.Run(&want)
		err := New(1 + seed%4).Run(op)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("seed %d: %v, want %v", seed, err, wantErr)
		}
		if err != nil {
			failed++
			continue
		}
		if err := sameBits(op.Grad.Data, want.Grad.Data, op.Grad.DType); err != nil {
			t.Fatalf(
				"seed %d: %v %v %v of %v %v: %v",
				seed,
				op.Grad.DType,
				op.Grad.Shape,
				op.Grad.Stride,
				op.Out.DType,
				op.Out.Stride,
				err,
			)
		}
	}
	if failed > n/2 {
		t.Errorf("%d of %d were errors: little was compared", failed, n)
	}
	t.Logf("%d of %d were errors", failed, n)
}

// part returns a part of an ApplyOp with a random plan, or without one.
func (r dice) part() kernel.Part {
	d, sources, rows := dims[r.IntN(len(dims))], r.IntN(20), r.IntN(40)
	if r.IntN(20) == 0 {
		d = 5040 + 42*r.IntN(100)
	}
	out := r.oneOf(robocache.Float32, robocache.Float16, robocache.BFloat16, robocache.Float64)
	from := r.oneOf(
		out,
		robocache.Uint8,
		robocache.Float32,
		robocache.Float64,
		robocache.Uint8,
		robocache.Int16,
	)
	if r.IntN(6) == 0 {
		out = r.oneOf(robocache.Uint8, robocache.Bool, robocache.Int64)
		from = out
	}
	p := kernel.Part{Rule: r.rule(d), Epilogue: r.epilogue(d, out)}
	if !out.Float() {
		p.Rule.Mode = kernel.Previous
	}
	plan := r.IntN(3) > 0
	if !plan {
		rows = sources
	}
	p.Src, p.Out = r.layout(from, true, sources, d), r.layout(out, false, rows, d)
	r.values(&p.Src)
	if r.IntN(2) == 0 {
		v := r.layout(robocache.Uint8, false, rows)
		for i := range v.Data {
			v.Data[i] = byte(r.IntN(2))
		}
		p.Valid = &v
	}
	if !plan {
		return p
	}
	kind := r.layout(robocache.Uint8, true, rows)
	left := r.layout(robocache.Int32, false, rows)
	right := r.layout(robocache.Int32, false, rows)
	weight := r.layout(robocache.Float64, false, rows)
	clear(kind.Data)
	for i := range rows {
		k, a, b, w := kernel.Kind(r.IntN(4)), r.IntN(sources+1), r.IntN(sources+1), r.Float64()
		if kind.Stride[0] == 0 {
			k = kernel.Kind(kind.Data[kind.Base])
		}
		if a == sources && (k == kernel.Copy || k == kernel.Blend) ||
			b == sources && k == kernel.Blend ||
			k == kernel.Window && a >= b {
			k = kernel.Zero
		}
		if r.IntN(4) == 0 {
			w = math.Round(w)
		}
		if r.IntN(2000) == 0 {
			a = -1
		}
		if kind.Stride[0] != 0 {
			kind.Data[kind.Base+i*kind.Stride[0]] = byte(k)
		}
		le.PutUint32(left.Data[4*(left.Base+i*left.Stride[0]):], uint32(a))
		le.PutUint32(right.Data[4*(right.Base+i*right.Stride[0]):], uint32(b))
		le.PutUint64(weight.Data[8*(weight.Base+i*weight.Stride[0]):], math.Float64bits(w))
	}
	p.Kind, p.Left, p.Right, p.Weight = &kind, &left, &right, &weight
	return p
}

// TestApplyIsTheReference compares random ApplyOps with the reference, bit by bit. Slerp may differ
// by the tolerance of near.
func TestApplyIsTheReference(t *testing.T) {
	failed := 0
	n := runs(t, 2000)
	for seed := range n {
		r := dice{rand.New(rand.NewPCG(uint64(seed), 9))}
		op := &kernel.ApplyOp{}
		slerp := false
		for range 1 + r.IntN(3) {
			op.Parts = append(op.Parts, r.part())
			slerp = slerp || op.Parts[len(op.Parts)-1].Rule.Mode == kernel.Slerp
		}
		if r.IntN(3) == 0 {
			op.Counts = &kernel.Tensor{
				DType: robocache.Int64,
				Shape: []int{2},
				Data:  make([]byte, 16),
			}
		}
		want := &kernel.ApplyOp{Counts: twin(op.Counts)}
		for _, p := range op.Parts {
			p.Out, p.Valid = *twin(&p.Out), twin(p.Valid)
			want.Parts = append(want.Parts, p)
		}
		wantErr := kernel.Reference{}.Run(want)
		err := New(1 + seed%4).Run(op)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("seed %d: %v, want %v", seed, err, wantErr)
		}
		if err != nil {
			failed++
			continue
		}
		for i := range op.Parts {
			p, q := &op.Parts[i], &want.Parts[i]
			if p.Rule.Mode == kernel.Slerp {
				err = near(p.Out.Data, q.Out.Data, p.Out.DType)
			} else {
				err = sameBits(p.Out.Data, q.Out.Data, p.Out.DType)
			}
			if err == nil && p.Valid != nil {
				err = sameBits(p.Valid.Data, q.Valid.Data, robocache.Uint8)
			}
			if err == nil && op.Counts != nil {
				err = sameBits(op.Counts.Data, want.Counts.Data, robocache.Int64)
			}
			if err != nil {
				t.Fatalf(
					"seed %d part %d: %v %v %v → %v %v mode %v %+v plan %v: %v",
					seed,
					i,
					p.Src.DType,
					p.Src.Shape,
					p.Src.Stride,
					p.Out.DType,
					p.Out.Stride,
					p.Rule.Mode,
					p.Epilogue,
					p.Kind != nil,
					err,
				)
			}
		}
	}
	if failed > n/2 {
		t.Errorf("%d of %d were errors: little was compared", failed, n)
	}
	t.Logf("%d of %d were errors", failed, n)
}
