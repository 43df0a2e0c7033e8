package kernel

import "github.com/goatnote-inc/robocache"

// runReference computes the backward pass of one stream (kernel.K17). It handles rows in target
// order, so the sum of each sample is in target order too.
func (op *FuseGradOp) runReference() error {
	// The first pass only plans, so that an error leaves Grad unchanged.
	for _, write := range []bool{false, true} {
		if write {
			op.clearGrad()
		}
		for b := range op.Out.Shape[0] {
			p, from, err := op.Series.planEntry(&op.Targets, b, op.Clock, op.Epsilon)
			if err != nil {
				return entryError(err, "fuse_grad", op.Series.errorPlace(0, 1), b)
			}
			if !write {
				continue
			}
			s := Series{Values: op.Grad, Offsets: op.Series.Offsets}
			out := op.Out.matrixView(0, op.Out.Shape[1], b)
			grad := s.entryValues(b, from, p.Sources)
			if op.Series.Values.DType == robocache.Float64 {
				accumulateGrad(
					p,
					&grad,
					&out,
					(*Matrix).loadRow64,
					(*Matrix).storeRow64,
					fma64,
					func(w float64) float64 { return w },
				)
			} else {
				accumulateGrad(
					p,
					&grad,
					&out,
					(*Matrix).loadRow32,
					(*Matrix).storeRow32,
					FMA32,
					func(w float64) float32 { return float32(w) },
				)
			}
		}
	}
	return nil
}

// clearGrad fills Grad with zeros. Rows beyond a length, and rows between entries, are not written
// later.
func (op *FuseGradOp) clearGrad() {
	g := op.Grad
	entries := 1
	if len(g.Shape) == 3 {
		entries = g.Shape[0]
	}
	for b := range entries {
		m := g.matrixView(0, g.Shape[len(g.Shape)-2], []int{b}[:len(g.Shape)-2]...)
		for i := range m.Rows {
			m.zeroRow(i)
		}
	}
}

// accumulateGrad adds the gradient of each row to the gradients of the samples that it was computed
// from.
func accumulateGrad[T float32 | float64](
	p *Plan,
	grad, out *Matrix,
	load func(*Matrix, []T, int, int),
	store func(*Matrix, []T, int, int, *Counts),
	fma func(a, b, c T) T,
	narrow func(float64) T,
) {
	if len(p.Kind) == 0 && p.Sources == 0 {
		// Without rows and samples, no memory bounds the number of columns. Allocating even one row
		// could fail.
		return
	}
	cols := grad.Cols
	totals := make([]T, p.Sources*cols) // gradients of the samples
	rowGrad := make([]T, cols)
	for i, kind := range p.Kind {
		if kind == Zero {
			continue
		}
		load(out, rowGrad, i, 0)
		left := totals[int(p.Left[i])*cols:][:cols]
		weight := narrow(p.Weight[i])
		if kind == Copy || weight == 0 { // the row has the bits of the left sample
			for c, g := range rowGrad {
				left[c] += g
			}
			continue
		}
		right := totals[int(p.Right[i])*cols:][:cols]
		for c, g := range rowGrad {
			left[c] = fma(1-weight, g, left[c])
			right[c] = fma(weight, g, right[c])
		}
	}
	var counts Counts
	for k := range p.Sources {
		store(grad, totals[k*cols:(k+1)*cols], k, 0, &counts)
	}
}
