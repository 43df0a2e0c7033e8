package conform

import (
	"encoding/json"
	"errors"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Case is one vector of a plan.
type Case struct {
	caseName
	ruleOptions
	File    string          `json:"-"`
	Times   integers        `json:"times"`
	Targets integers        `json:"targets"`
	Stored  *storedPlan     `json:"plan"`
	Data    sourceMatrix    `json:"data"`
	Out     robocache.DType `json:"out"`
	Want    []string        `json:"want"`
	Valid   []int           `json:"valid"`
	ULP     int64           `json:"ulp"`
	Error   *ExpectedError  `json:"error"`
}

// storedPlan is the plan of a case as it is stored.
type storedPlan struct {
	Kind   []kernel.Kind `json:"kind"`
	Left   []int32       `json:"left"`
	Right  []int32       `json:"right"`
	Weight []bits64      `json:"weight"`
	Valid  []int         `json:"valid"`
}

// sourceMatrix is the source of a case with its layout.
type sourceMatrix struct {
	tensor
	cols int
}

// UnmarshalJSON reads the memory of the matrix and its layout, which are fields of one object.
func (m *sourceMatrix) UnmarshalJSON(b []byte) error {
	var l struct {
		Rows      int `json:"rows"`
		Cols      int `json:"cols"`
		RowStride int `json:"row_stride"`
		ColStride int `json:"col_stride"`
	}
	err := errors.Join(json.Unmarshal(b, &m.tensor), json.Unmarshal(b, &l))
	m.Shape = []int{l.Rows, l.Cols}
	m.Stride = []int{l.RowStride, l.ColStride}
	m.cols = l.Cols
	return err
}

// Load reads all files of plans.
func Load() (all []Case, _ error) {
	for _, file := range listFiles(".") {
		cases, err := loadCases[Case](file)
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

// Plan returns the stored plan.
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

// runCase runs the case on the back end: as a batch of one entry with times, then by its stored
// plan.
func (c *Case) runCase(b kernel.Backend) (err error) {
	src := kernel.Tensor(c.Data.tensor)
	rule := c.kernelRule()
	values := src
	values.Shape = append([]int{1}, src.Shape...)
	values.Stride = append([]int{0}, src.Stride...)
	op := &kernel.FuseOp{
		Series: []kernel.Series{
			{Values: values, Times: *Int64s(c.Times...), Rule: rule},
		},
		Targets:  *Int64s(c.Targets...),
		Validate: true,
		Out:      *Filled(c.Out, 1, len(c.Targets), c.Data.cols),
		Valid:    Filled(robocache.Uint8, 1, len(c.Targets), 1),
	}
	runs, err := c.Error.runExpecting(b, op)
	if err != nil {
		return err
	}
	if !runs {
		return nil
	}
	if err := c.checkResult(&op.Out, op.Valid); err != nil {
		return err
	}
	part := Planned(c.Plan())
	part.Src, part.Out, part.Rule = src, *Filled(c.Out, part.Kind.Len(), c.Data.cols), rule
	planned := &kernel.ApplyOp{Parts: []kernel.Part{part}}
	defer robocache.LocateIn(&err, "by", "the plan")
	if _, err := c.Error.runExpecting(b, planned); err != nil {
		return err
	}
	return c.checkResult(&planned.Parts[0].Out, part.Valid)
}

// checkResult compares a result with the expected result of the case.
func (c *Case) checkResult(out, valid *kernel.Tensor) error {
	if err := expectElements(
		"out",
		out,
		c.Want,
		func(_ []int, want, got uint64) bool {
			return c.ULP != 0 &&
				stepsApart(want, got, c.Out) <= c.ULP
		},
	); err != nil {
		return err
	}
	return expectElements("valid", valid, hexWords(c.Valid, 2), nil)
}

// Planned returns a part with the plan's arrays as tensors.
func Planned(p *kernel.Plan) kernel.Part {
	n := p.Len()
	kind := Filled(robocache.Uint8, n)
	left := Filled(robocache.Int32, n)
	right := Filled(robocache.Int32, n)
	weight := Filled(robocache.Float64, n)
	valid := Filled(robocache.Uint8, n)
	for i := range n {
		kind.Data[i] = byte(p.Kind[i])
		valid.Data[i] = p.Valid[i]
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
