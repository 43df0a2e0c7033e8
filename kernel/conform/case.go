package conform

import (
	"encoding/json"
	"errors"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Case is one vector of a plan.
type Case struct {
	named
	options
	File    string          `json:"-"`
	Times   integers        `json:"times"`
	Targets integers        `json:"targets"`
	Stored  *plan           `json:"plan"`
	Data    matrix          `json:"data"`
	Out     robocache.DType `json:"out"`
	Want    []string        `json:"want"`
	Valid   []int           `json:"valid"`
	ULP     int64           `json:"ulp"`
	Error   *ExpectedError  `json:"error"`
}

// plan is a case's plan as stored.
type plan struct {
	Kind   []kernel.Kind `json:"kind"`
	Left   []int32       `json:"left"`
	Right  []int32       `json:"right"`
	Weight []bits64      `json:"weight"`
	Valid  []int         `json:"valid"`
}

// matrix is a case's source and its layout.
type matrix struct {
	tensor
	cols int
}

func (m *matrix) UnmarshalJSON(b []byte) error {
	var l struct {
		Rows      int `json:"rows"`
		Cols      int `json:"cols"`
		RowStride int `json:"row_stride"`
		ColStride int `json:"col_stride"`
	}
	err := errors.Join(json.Unmarshal(b, &m.tensor), json.Unmarshal(b, &l))
	m.Shape, m.Stride, m.cols = []int{l.Rows, l.Cols}, []int{l.RowStride, l.ColStride}, l.Cols
	return err
}

// Load reads every file of plans.
func Load() (all []Case, _ error) {
	for _, file := range files(".") {
		cases, err := load[Case](file)
		if err != nil {
			return nil, err
		}
		for i := range cases {
			cases[i].File = file
		}
		all = append(all, cases...)
	}
	return all, nil
}

// Plan is the stored plan.
func (c *Case) Plan() *kernel.Plan {
	p := &kernel.Plan{
		Mode:    c.Mode,
		Sources: len(c.Times),
		Kind:    c.Stored.Kind,
		Left:    c.Stored.Left,
		Right:   c.Stored.Right,
	}
	for i, w := range c.Stored.Weight {
		p.Weight, p.Valid = append(p.Weight, float64(w)), append(p.Valid, uint8(c.Stored.Valid[i]))
	}
	return p
}

// run gives the case to the back end: as a batch of one entry with times, then by its stored plan.
func (c *Case) run(b kernel.Backend) (err error) {
	src, rule := kernel.Tensor(c.Data.tensor), c.rule()
	values := src
	values.Shape, values.Stride = append([]int{1}, src.Shape...), append([]int{0}, src.Stride...)
	op := &kernel.FuseOp{
		Series: []kernel.Series{
			{Values: values, Times: *Int64s(c.Times...), Rule: rule},
		},
		Targets:  *Int64s(c.Targets...),
		Validate: true,
		Out:      *Filled(c.Out, 1, len(c.Targets), c.Data.cols),
		Valid:    Filled(robocache.Uint8, 1, len(c.Targets), 1),
	}
	runs, err := c.Error.runs(b, op)
	if err != nil {
		return err
	}
	if !runs {
		return nil
	}
	if err := c.check(&op.Out, op.Valid); err != nil {
		return err
	}
	part := Planned(c.Plan())
	part.Src, part.Out, part.Rule = src, *Filled(c.Out, part.Kind.Len(), c.Data.cols), rule
	planned := &kernel.ApplyOp{Parts: []kernel.Part{part}}
	defer robocache.LocateIn(&err, "by", "the plan")
	if _, err := c.Error.runs(b, planned); err != nil {
		return err
	}
	return c.check(&planned.Parts[0].Out, part.Valid)
}

// check compares a result with what the case wants.
func (c *Case) check(out, valid *kernel.Tensor) error {
	if err := expect(
		"out",
		out,
		c.Want,
		func(_ []int, want, got uint64) bool {
			return c.ULP != 0 &&
				apart(want, got, c.Out) <= c.ULP
		},
	); err != nil {
		return err
	}
	return expect("valid", valid, words(c.Valid, 2), nil)
}

// Planned is a part with a plan's arrays as tensors.
func Planned(p *kernel.Plan) kernel.Part {
	n := p.Len()
	kind := Filled(robocache.Uint8, n)
	left := Filled(robocache.Int32, n)
	right := Filled(robocache.Int32, n)
	weight := Filled(robocache.Float64, n)
	valid := Filled(robocache.Uint8, n)
	for i := range n {
		kind.Data[i], valid.Data[i] = byte(p.Kind[i]), p.Valid[i]
		Put(left, 4*i, 0, uint64(p.Left[i]))
		Put(right, 4*i, 0, uint64(p.Right[i]))
		Put(weight, 8*i, p.Weight[i], 0)
	}
	return kernel.Part{
		Rule:   kernel.Rule{Mode: p.Mode},
		Kind:   kind,
		Left:   left,
		Right:  right,
		Weight: weight,
		Valid:  valid,
	}
}
