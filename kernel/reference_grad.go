package kernel

import "github.com/goatnote-inc/robocache"

// reference is the backward of one stream (K17). The rows come in target order, so each sample's
// sum does.
func (op *FuseGradOp) reference() error {
	for _, write := range []bool{false, true} {
		if write {
			op.clear()
		}
		for b := range op.Out.Shape[0] {
			p, from, err := op.Series.plan(&op.Targets, b, op.Clock, op.Epsilon)
			if err != nil {
				return failed(err, "fuse_grad", op.Series.where(0, 1), b)
			}
			if !write {
				continue
			}
			s := Series{Values: op.Grad, Offsets: op.Series.Offsets}
			out, grad := op.Out.matrix(0, op.Out.Shape[1], b), s.values(b, from, p.Sources)
			if op.Series.Values.DType == robocache.Float64 {
				sums(
					p,
					&grad,
					&out,
					(*Matrix).load64,
					(*Matrix).store64,
					fma64,
					func(w float64) float64 { return w },
				)
			} else {
				sums(
					p,
					&grad,
					&out,
					(*Matrix).load32,
					(*Matrix).store32,
					FMA32,
					func(w float64) float32 { return float32(w) },
				)
			}
		}
	}
	return nil
}

// clear fills Grad with zeros: rows beyond a length, and between the entries, are read by no
// target.
func (op *FuseGradOp) clear() {
	g := op.Grad
	entries := 1
	if len(g.Shape) == 3 {
		entries = g.Shape[0]
	}
	for b := range entries {
		m := g.matrix(0, g.Shape[len(g.Shape)-2], []int{b}[:len(g.Shape)-2]...)
		for i := range m.Rows {
			m.zero(i)
		}
	}
}

// sums adds the gradient of each row to those of the samples that it was made of.
func sums[T float32 | float64](
	p *Plan,
	grad, out *Matrix,
	load func(*Matrix, []T, int, int),
	store func(*Matrix, []T, int, int, *Counts),
	fma func(a, b, c T) T,
	narrow func(float64) T,
) {
	if len(p.Kind) == 0 && p.Sources == 0 {
		return // rows of any length
	}
	cols := grad.Cols
	total, g := make([]T, p.Sources*cols), make([]T, cols)
	for i, k := range p.Kind {
		if k == Zero {
			continue
		}
		load(out, g, i, 0)
		left, right, w := int(p.Left[i]), int(p.Right[i]), narrow(p.Weight[i])
		if k == Blend && w == 0 {
			k = Copy // the row is the left sample's bits
		}
		for c, v := range g {
			l := &total[left*cols+c]
			if k == Copy {
				*l += v
				continue
			}
			r := &total[right*cols+c]
			*l = fma(1-w, v, *l)
			*r = fma(w, v, *r)
		}
	}
	var counts Counts
	for k := range p.Sources {
		store(grad, total[k*cols:(k+1)*cols], k, 0, &counts)
	}
}
