package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// reference makes the rows of each part by its plan.
func (op *ApplyOp) reference() error {
	plans := make([]*Plan, len(op.Parts))
	for i := range op.Parts {
		p := &op.Parts[i]
		plans[i] = p.plan()
		if err := plans[i].check(); err != nil {
			return robocache.At(err, p.where(i))
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
		if err := counted(
			p.Out.matrix(0, rows),
			p.Src.matrix(0, p.Src.Shape[0]),
			plans[i],
			opt,
			op.Counts,
		); err != nil {
			return robocache.At(err, p.where(i))
		}
		if p.Valid != nil {
			for row, v := range valid {
				p.Valid.Data[p.Valid.at(row)] = v
			}
		}
	}
	return nil
}

// plan reads the part's plan; without one, row i is made of row i.
func (p *Part) plan() *Plan {
	rows := p.Out.Shape[0]
	out := makePlan(p.Rule.Mode, rows)
	out.Sources = p.Src.Shape[0]
	for i := range rows {
		out.Valid[i] = 1
		if p.Valid != nil {
			out.Valid[i] = p.Valid.Data[p.Valid.at(i)]
		}
		if p.Kind == nil {
			out.Kind[i], out.Left[i], out.Right[i] = Copy, int32(i), int32(i)
			continue
		}
		out.Kind[i] = Kind(p.Kind.Data[p.Kind.at(i)])
		out.Left[i] = int32(le.Uint32(p.Left.Data[p.Left.at(i):]))
		out.Right[i] = int32(le.Uint32(p.Right.Data[p.Right.at(i):]))
		out.Weight[i] = math.Float64frombits(le.Uint64(p.Weight.Data[p.Weight.at(i):]))
	}
	return out
}
