package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// runReference computes the rows of each part by its plan.
func (op *ApplyOp) runReference() error {
	plans := make([]*Plan, len(op.Parts))
	for i := range op.Parts {
		p := &op.Parts[i]
		plans[i] = p.readPlan()
		if err := plans[i].checkRows(); err != nil {
			return robocache.At(err, p.errorPlace(i))
		}
	}
	for i := range op.Parts {
		p := &op.Parts[i]
		rows := p.Out.Shape[0]
		valid := make([]uint8, rows)
		opt := Options{Rule: p.Rule, Epilogue: p.Epilogue, Valid: valid}
		if a := p.Epilogue.Augment; a != nil && a.Samples != nil && rows > 0 {
			for k := range a.Samples.Shape[0] {
				opt.Samples = append(opt.Samples, a.Samples.int64At(k))
			}
		}
		if err := resampleCounted(p.Out.matrixView(0, rows), p.Src.matrixView(0, p.Src.Shape[0]),
			plans[i], opt, op.Counts); err != nil {
			return robocache.At(err, p.errorPlace(i))
		}
		if p.Valid != nil {
			for row, v := range valid {
				p.Valid.Data[p.Valid.byteOffset(row)] = v
			}
		}
	}
	return nil
}

// readPlan reads the plan of the part. Without a plan, row i is computed from row i.
func (p *Part) readPlan() *Plan {
	rows := p.Out.Shape[0]
	out := MakePlan(p.Rule.Mode, rows)
	out.Sources = p.Src.Shape[0]
	for i := range rows {
		out.Valid[i] = 1
		if p.Valid != nil {
			out.Valid[i] = p.Valid.Data[p.Valid.byteOffset(i)]
		}
		if p.Kind == nil {
			out.Kind[i] = Copy
			out.Left[i] = int32(i)
			out.Right[i] = int32(i)
			continue
		}
		out.Kind[i] = Kind(p.Kind.Data[p.Kind.byteOffset(i)])
		out.Left[i] = int32(le.Uint32(p.Left.Data[p.Left.byteOffset(i):]))
		out.Right[i] = int32(le.Uint32(p.Right.Data[p.Right.byteOffset(i):]))
		out.Weight[i] = math.Float64frombits(le.Uint64(p.Weight.Data[p.Weight.byteOffset(i):]))
	}
	return out
}
