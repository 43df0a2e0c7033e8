package sweep

import (
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/conform"
)

var (
	floatTypes = []robocache.DType{
		robocache.Float32,
		robocache.Float32,
		robocache.Float16,
		robocache.BFloat16,
		robocache.Float64,
	}
	otherTypes = []robocache.DType{
		robocache.Bool,
		robocache.Int8,
		robocache.Int16,
		robocache.Int32,
		robocache.Int64,
		robocache.Uint8,
		robocache.Uint16,
		robocache.Uint32,
		robocache.Uint64,
	}
)

// sizes are the extents of an operation.
type sizes struct{ batch, rows, cols int }

// sizes returns random extents. Most are small; some have many rows or many columns.
func (r sweeper) sizes() sizes {
	n := sizes{r.upTo(5), r.upTo(40), 1 + r.IntN(20)}
	switch {
	case r.chance(.1):
		n = sizes{1 + r.IntN(40), 50 + r.IntN(200), 1 + r.IntN(40)}
	case r.chance(.1):
		n = sizes{1 + r.IntN(3), 1 + r.IntN(80), 100 + r.IntN(400)}
	case r.chance(.05):
		n = sizes{1, 1 + r.IntN(2000), 1 + r.IntN(3)}
	}
	return n
}

// clock states how the times of an operation are written.
type clock struct {
	as         kernel.Clock
	types      []robocache.DType
	base       int64
	step       int
	timestamps []int64 // of one entry of the first stream; targets are chosen near them
}

// clock returns a random way to write times: int64 ns, or seconds in a floating-point type.
func (r sweeper) clock() clock {
	c := clock{
		types: []robocache.DType{robocache.Int64},
		base:  pick[int64](r, 0, -5000, 1_760_000_000_000_000_000, 1<<61),
		step:  pick(r, 10, 1000, 20_000_000),
	}
	if r.chance(.3) {
		c.types = []robocache.DType{robocache.Float64, robocache.Float32, robocache.Float64}
		c.base = pick[int64](r, 0, -3_000_000_000, 100_000_000_000)
		c.step = 20_000_000
		if r.chance(.5) {
			c.as = kernel.AsGiven
		}
	}
	return c
}

// series returns a random stream of the batch. out is the type of the result, which limits the type
// of the values.
func (r sweeper) series(c *clock, batch, cols int, out robocache.DType) (kernel.Series, error) {
	n := r.upTo(30)
	if r.chance(.1) {
		n = 200 + r.IntN(400)
	}
	var s kernel.Series
	s.Rule = r.rule(cols, c.step)
	if c.as == kernel.AsGiven && s.Rule.Mode == kernel.Mean {
		s.Rule.Mode = kernel.Linear
	}
	d := pick(r, floatTypes...)
	switch {
	case !out.Float():
		d = out
		if s.Rule.Mode.Computes() {
			if s.Rule.Mode = kernel.Nearest; r.chance(.5) {
				d = pick(r, floatTypes...)
				s.Rule = kernel.Rule{
					Mode: pick(r, kernel.Linear, kernel.Previous),
					Edge: s.Rule.Edge,
				}
			}
		}
	case r.chance(.4):
		d = out
	case r.chance(.15):
		d = pick(r, otherTypes...)
		if d == robocache.Bool && s.Rule.Mode.Computes() {
			d = robocache.Uint8
		}
	}
	timestamps := make([][]int64, batch) // timestamps of each entry
	ragged, padded := r.chance(.25), r.chance(.25)
	total := 0
	for b := range timestamps {
		k := n
		if ragged && n > 0 {
			k = r.upTo(n)
		}
		timestamps[b] = r.times(k, c.base, c.step)
		total += k
	}
	if batch > 0 && c.timestamps == nil {
		c.timestamps = timestamps[r.IntN(batch)]
	}
	dt := pick(r, c.types...)
	if ragged {
		lead := r.upTo(2) // rows before the first entry
		s.Values = r.layout(d, true, total+lead, cols)
		var all []int64
		offsets := []int64{int64(lead)}
		for range lead {
			all = append(all, c.base)
		}
		for _, e := range timestamps {
			all = append(all, e...)
			offsets = append(offsets, int64(len(all)))
		}
		var err error
		if s.Times, err = r.clocked(
			dt,
			func(_, i int) int64 { return all[i] },
			len(all),
		); err != nil {
			return kernel.Series{}, err
		}
		s.Offsets = conform.Int64s(offsets...)
	} else {
		s.Values = r.layout(d, true, batch, n, cols)
		if batch > 0 && r.chance(.4) {
			var err error
			if s.Times, err = r.clocked(
				dt,
				func(_, i int) int64 { return timestamps[0][i] },
				n,
			); err != nil {
				return kernel.Series{}, err
			}
		} else {
			var err error
			if s.Times, err = r.clocked(
				dt,
				func(b, i int) int64 { return timestamps[b][i] },
				batch,
				n,
			); err != nil {
				return kernel.Series{}, err
			}
		}
		if padded {
			l := r.layout(robocache.Int64, false, batch)
			if err := l.Elements(func(o int, _ []int) error {
				conform.Put(&l, o, 0, uint64(r.upTo(n)))
				return nil
			}); err != nil {
				return kernel.Series{}, err
			}
			s.Lengths = &l
		}
	}
	r.values(&s.Values, s.Rule.Mode)
	s.Rule.Continuous = s.Rule.Continuous && s.Rule.Mode == kernel.Slerp && d.Float()
	if out.Float() && r.chance(.3) {
		var err error
		if s.Epilogue, err = r.epilogue(cols, batch); err != nil {
			return kernel.Series{}, err
		}
	}
	return s, nil
}

// targetTensor returns the targets of an operation, shared by its entries or separate.
func (r sweeper) targetTensor(c *clock, n sizes) (kernel.Tensor, error) {
	dt := pick(r, c.types...)
	if r.chance(.5) {
		t := r.targets(n.rows, c.timestamps, c.base, c.step)
		return r.clocked(dt, func(_, i int) int64 { return t[i] }, n.rows)
	}
	var t [][]int64
	for range n.batch {
		t = append(t, r.targets(n.rows, c.timestamps, c.base, c.step))
	}
	return r.clocked(dt, func(b, i int) int64 { return t[b][i] }, n.batch, n.rows)
}

// randomFuse returns a random FuseOp with blank results.
func (r sweeper) randomFuse() (*kernel.FuseOp, error) {
	n, c := r.sizes(), r.clock()
	op := &kernel.FuseOp{Clock: c.as, Validate: true}
	if c.as == kernel.AsGiven {
		op.Epsilon = pick(r, 0, 1e-8)
	}
	out := pick(r, floatTypes...)
	if r.chance(.1) {
		out = pick(r, otherTypes[1:]...)
	}
	streams, cols := 1, 0
	if r.chance(.5) {
		streams = 1 + r.IntN(5)
	}
	for range streams {
		d := n.cols
		if streams > 1 {
			d = 1 + r.IntN(n.cols)
		}
		series, err := r.series(&c, n.batch, d, out)
		if err != nil {
			return nil, err
		}
		op.Series = append(op.Series, series)
		cols += d
	}
	var err error
	if op.Targets, err = r.targetTensor(&c, n); err != nil {
		return nil, err
	}
	op.Out = r.layout(out, false, n.batch, n.rows, cols)
	if r.chance(.7) {
		v := r.layout(robocache.Uint8, false, n.batch, n.rows, streams)
		op.Valid = &v
	}
	if r.chance(.5) {
		op.Counts = conform.Int64s(3, 5)
	}
	if r.chance(.03) {
		op.Series[r.IntN(streams)].Rule.Edge = kernel.ErrorEdge
	}
	return op, nil
}

// randomGrad returns a random FuseGradOp with a blank result.
func (r sweeper) randomGrad() (*kernel.FuseGradOp, error) {
	n, c := r.sizes(), r.clock()
	op := &kernel.FuseGradOp{Clock: c.as}
	if c.as == kernel.AsGiven {
		op.Epsilon = 1e-8
	}
	var err error
	if op.Series, err = r.series(&c, n.batch, n.cols, robocache.Float32); err != nil {
		return nil, err
	}
	s := &op.Series
	if s.Epilogue = (kernel.Epilogue{}); s.Rule.Mode > kernel.Next || r.chance(.5) {
		s.Rule = kernel.Rule{Edge: s.Rule.Edge, MaxGap: s.Rule.MaxGap}
	}
	if !s.Values.DType.Float() {
		s.Values = r.layout(robocache.Float32, true, s.Values.Shape...)
	}
	if op.Targets, err = r.targetTensor(&c, n); err != nil {
		return nil, err
	}
	d := s.Values.DType
	if r.chance(.3) {
		d = pick(r, floatTypes...)
	}
	op.Out = r.layout(d, true, n.batch, n.rows, n.cols)
	r.values(&op.Out, kernel.Linear)
	op.Grad = r.layout(s.Values.DType, false, s.Values.Shape...)
	return op, nil
}

// randomApply returns a random ApplyOp with blank results.
func (r sweeper) randomApply() (*kernel.ApplyOp, error) {
	op := &kernel.ApplyOp{}
	for range 1 + r.IntN(4) {
		n := r.sizes()
		entries := max(n.batch, 1)
		rows := entries * (n.rows % 20)
		out := pick(r, floatTypes...)
		if r.chance(.15) {
			out = pick(r, otherTypes[1:]...)
		}
		c := r.clock()
		c.as = kernel.Nanoseconds
		s, err := r.series(&c, 1, n.cols, out)
		if err != nil {
			return nil, err
		}
		src := 1 + r.IntN(30)
		p := kernel.Part{Rule: s.Rule, Epilogue: s.Epilogue}
		p.Rule.Continuous = false
		planned := r.chance(.7)
		if !planned {
			src = rows
		}
		p.Src = r.layout(s.Values.DType, true, src, n.cols)
		p.Out = r.layout(out, false, rows, n.cols)
		r.values(&p.Src, p.Rule.Mode)
		if planned {
			r.plan(&p, rows, src)
		}
		if a := p.Epilogue.Augment; a != nil && a.Samples != nil {
			t := r.layout(robocache.Int64, false, entries)
			if err := t.Elements(func(o int, _ []int) error {
				conform.Put(&t, o, 0, uint64(r.IntN(1000)))
				return nil
			}); err != nil {
				return nil, err
			}
			a.Samples = &t
		}
		op.Parts = append(op.Parts, p)
	}
	if r.chance(.5) {
		op.Counts = conform.Int64s(0, 1)
	}
	return op, nil
}

// plan gives the part random rows, of all kinds that its mode allows.
func (r sweeper) plan(p *kernel.Part, rows, src int) {
	plan := &kernel.Plan{Mode: p.Rule.Mode, Sources: src}
	for range rows {
		kind, left, right, weight := kernel.Copy, r.IntN(src), 0, 0.0
		switch {
		case r.chance(.1):
			kind, left = kernel.Zero, 0
		case r.chance(.3):
		case p.Rule.Mode == kernel.Mean:
			kind, right = kernel.Window, left+1+r.IntN(src-left)
		case p.Rule.Mode.Computes():
			kind, right, weight = kernel.Blend, r.IntN(src), r.Float64()
			if r.chance(.05) {
				weight = pick(r, 0, 1e-50, math.Nextafter(1, 0), 1.5, -.25)
			}
		}
		plan.Kind = append(plan.Kind, kind)
		plan.Left = append(plan.Left, int32(left))
		plan.Right = append(plan.Right, int32(right))
		plan.Weight, plan.Valid = append(plan.Weight, weight), append(plan.Valid, uint8(r.IntN(2)))
	}
	q := conform.Planned(plan)
	p.Kind, p.Left, p.Right, p.Weight = q.Kind, q.Left, q.Right, q.Weight
	if r.chance(.7) {
		p.Valid = q.Valid
	}
}
