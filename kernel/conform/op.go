package conform

import (
	"errors"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// opCase is a vector of a whole FuseOp or FuseGradOp. vectorgen/ops.py documents the fields.
type opCase struct {
	caseName
	Op       string         `json:"op"`
	Series   []opSeries     `json:"series"`
	Targets  tensor         `json:"targets"`
	Clock    string         `json:"clock"`
	Epsilon  bits64         `json:"epsilon"`
	Gradient tensor         `json:"gradient"`
	Out      *tensorLayout  `json:"out"`
	ValidOut *tensorLayout  `json:"valid_out"`
	Want     []string       `json:"want"`
	Valid    []int          `json:"valid"`
	Counts   []int64        `json:"counts"`
	Slack    []bits64       `json:"slack"`
	Error    *ExpectedError `json:"error"`
}

// opSeries is one stream of an opCase.
type opSeries struct {
	ruleOptions
	Name       string      `json:"name"`
	Values     tensor      `json:"values"`
	Times      tensor      `json:"times"`
	Lengths    integers    `json:"lengths"`
	Offsets    integers    `json:"offsets"`
	Quats      [][4]int    `json:"quats"`
	Continuous bool        `json:"continuous"`
	Epilogue   *opEpilogue `json:"epilogue"`
}

// opEpilogue is the epilogue of a stream.
type opEpilogue struct {
	Unit bool `json:"unit"`
	Norm *struct {
		Kind string  `json:"kind"`
		A    numbers `json:"a"`
		B    numbers `json:"b"`
	} `json:"norm"`
	Plane   int     `json:"plane"`
	Clip    numbers `json:"clip"`
	Augment *struct {
		Seed    uint64   `json:"seed,string"`
		Epoch   uint64   `json:"epoch,string"`
		Op      uint32   `json:"op"`
		Samples integers `json:"samples"`
		Noise   bits32   `json:"noise"`
		Dropout bits32   `json:"dropout"`
		Scale   numbers  `json:"scale"`
	} `json:"augment"`
}

// runCase runs the case on the back end and compares the results.
func (c *opCase) runCase(b kernel.Backend) error {
	run := map[string]func(b kernel.Backend) error{"fuse": c.runFuse, "fuse_grad": c.runGrad}[c.Op]
	err := run(b)
	if c.Error == nil && c.hasContinuous() && errors.Is(err, robocache.ErrUnsupported) {
		return nil // kernel.K20 allows a back end to return Unsupported
	}
	if err != nil {
		return err
	}
	return nil
}

// hasContinuous reports whether a stream of the case has continuous signs.
func (c *opCase) hasContinuous() bool {
	return slices.ContainsFunc(c.Series, func(s opSeries) bool { return s.Continuous })
}

// kernelSeries returns the stream as an argument of an operation.
func (s *opSeries) kernelSeries() kernel.Series {
	out := kernel.Series{
		Name:    s.Name,
		Values:  kernel.Tensor(s.Values),
		Times:   kernel.Tensor(s.Times),
		Lengths: s.Lengths.indexTensor(),
		Offsets: s.Offsets.indexTensor(),
		Rule:    s.kernelRule(),
	}
	out.Rule.Quats, out.Rule.Continuous = s.Quats, s.Continuous
	e := s.Epilogue
	if e == nil {
		return out
	}
	out.Epilogue = kernel.Epilogue{Unit: e.Unit, Plane: e.Plane}
	if n := e.Norm; n != nil {
		out.Epilogue.Norm = &kernel.Norm{
			Kind: map[string]kernel.NormKind{
				"mean_std": kernel.MeanStd,
				"min_max":  kernel.MinMax,
			}[n.Kind],
			A: n.A,
			B: n.B,
		}
	}
	if e.Clip != nil {
		out.Epilogue.Clip = (*[2]float32)(e.Clip)
	}
	if a := e.Augment; a != nil {
		out.Epilogue.Augment = &kernel.Augment{
			Seed:    a.Seed,
			Epoch:   a.Epoch,
			Op:      a.Op,
			Samples: a.Samples.indexTensor(),
			Noise:   float32(a.Noise),
			Dropout: float32(a.Dropout),
			ScaleLo: a.Scale[0],
			ScaleHi: a.Scale[1],
		}
	}
	return out
}

// clocks maps the clock of a case to the constant of package kernel.
var clocks = map[string]kernel.Clock{
	"":         kernel.Nanoseconds,
	"ns":       kernel.Nanoseconds,
	"as_given": kernel.AsGiven,
}

// runFuse runs a FuseOp. Under the clock Nanoseconds it then computes the same rows with an
// ApplyOp.
func (c *opCase) runFuse(b kernel.Backend) error {
	op := &kernel.FuseOp{
		Targets:  kernel.Tensor(c.Targets),
		Out:      *blankTensor(c.Out),
		Clock:    clocks[c.Clock],
		Epsilon:  float64(c.Epsilon),
		Validate: true,
		Counts:   Int64s(7, 1<<40), // a back end must add to these numbers
	}
	for i := range c.Series {
		op.Series = append(op.Series, c.Series[i].kernelSeries())
	}
	if c.ValidOut != nil {
		op.Valid = blankTensor(c.ValidOut)
	} else if len(op.Out.Shape) == 3 {
		op.Valid = Filled(robocache.Uint8, op.Out.Shape[0], op.Out.Shape[1], len(op.Series))
	}
	runs, err := c.Error.runExpecting(b, op)
	if err != nil {
		return err
	}
	if !runs {
		return nil
	}
	if err := c.compareResults(&op.Out, op.Valid, op.Counts, 7, 1<<40); err != nil {
		return err
	}
	if op.Clock == kernel.Nanoseconds && !c.hasContinuous() {
		if err := c.runApply(b, op); err != nil {
			return err
		}
	}
	return nil
}

// runApply computes the same result with an ApplyOp. It has a part for every entry and stream, with
// the reference's plan. All parts write to the tensors of op.
func (c *opCase) runApply(b kernel.Backend, op *kernel.FuseOp) (err error) {
	defer robocache.LocateIn(&err, "by", "plans")
	Fill(&op.Out)
	Fill(op.Valid)
	a := &kernel.ApplyOp{Counts: Int64s(0, 0)}
	for e := range op.Out.Shape[0] {
		col := 0
		for i := range op.Series {
			s := &op.Series[i]
			plan, first, err := s.Plan(&op.Targets, e)
			if err != nil {
				return err
			}
			p := Planned(plan)
			p.Rule, p.Epilogue = s.Rule, s.Epilogue
			p.Src = entryView(&s.Values, e, first, plan.Sources)
			p.Out = entryView(&op.Out, e, 0, plan.Len())
			p.Out.Base += col * p.Out.Stride[1]
			p.Out.Shape[1] = p.Src.Shape[1]
			// The validity of the part is written to the tensor of op.
			v := entryView(op.Valid, e, 0, plan.Len())
			v.Base += i * v.Stride[1]
			v.Shape, v.Stride = v.Shape[:1], v.Stride[:1]
			if err := v.Elements(func(o int, index []int) error {
				v.Data[o] = plan.Valid[index[0]]
				return nil
			}); err != nil {
				return err
			}
			p.Valid = &v
			if g := s.Epilogue.Augment; g != nil {
				sample := int64(e)
				if g.Samples != nil {
					sample = int64(le.Uint64(g.Samples.Data[8*e:]))
				}
				g := *g
				g.Samples = Int64s(sample)
				p.Epilogue.Augment = &g
			}
			a.Parts = append(a.Parts, p)
			col += p.Src.Shape[1]
		}
	}
	if err := b.Run(a); err != nil {
		return err
	}
	return c.compareResults(&op.Out, op.Valid, a.Counts, 0, 0)
}

// entryView returns the rows first … first+n-1 of an entry, as a view of the last two axes.
func entryView(t *kernel.Tensor, entry, first, n int) kernel.Tensor {
	v := *t
	axis := len(t.Shape) - 2
	v.Shape = []int{n, t.Shape[axis+1]}
	v.Stride = []int{t.Step(axis), t.Step(axis + 1)}
	v.Base += first * v.Stride[0]
	if axis == 1 {
		v.Base += entry * t.Step(0)
	}
	return v
}

// runGrad runs a FuseGradOp.
func (c *opCase) runGrad(b kernel.Backend) error {
	op := &kernel.FuseGradOp{
		Targets: kernel.Tensor(c.Targets),
		Out:     kernel.Tensor(c.Gradient),
		Grad:    *blankTensor(c.Out),
		Clock:   clocks[c.Clock],
		Epsilon: float64(c.Epsilon),
		Series:  c.Series[0].kernelSeries(),
	}
	runs, err := c.Error.runExpecting(b, op)
	if err != nil {
		return err
	}
	if runs {
		if err := c.compareResults(&op.Grad, nil, nil, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// compareResults compares the results with the case. out must be equal to the bit, or within the
// slack of its column. overflow and nan are the initial values of the counts.
func (c *opCase) compareResults(out, valid, counts *kernel.Tensor, overflow, nan int64) error {
	if err := expectElements("out", out, c.Want, func(index []int, want, got uint64) bool {
		return c.Slack != nil && Near(want, got, out.DType, float64(c.Slack[index[len(index)-1]]))
	}); err != nil {
		return err
	}
	if err := expectElements("valid", valid, hexWords(c.Valid, 2), nil); err != nil {
		return err
	}
	if c.Counts != nil {
		if err := expectElements("counts", counts,
			hexWords([]int64{overflow + c.Counts[0], nan + c.Counts[1]}, 16), nil); err != nil {
			return err
		}
	}
	return nil
}
