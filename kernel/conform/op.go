package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

const opVectors = "testdata/vectors/ops/"

// opCase is a vector of a whole Fuse or FuseGrad; vectorgen/ops.py says what the fields are.
type opCase struct {
	Op       string         `json:"op"`
	Name     string         `json:"name"`
	Series   []opSeries     `json:"series"`
	Targets  *array         `json:"targets"`
	Clock    string         `json:"clock"`
	Epsilon  string         `json:"epsilon"`
	Gradient *array         `json:"gradient"`
	Out      *array         `json:"out"`
	ValidOut *array         `json:"valid_out"`
	Want     []string       `json:"want"`
	Valid    []int          `json:"valid"`
	Counts   []int64        `json:"counts"`
	Slack    []string       `json:"slack"`
	Error    *ExpectedError `json:"error"`
}

type opSeries struct {
	Name       string      `json:"name"`
	Values     *array      `json:"values"`
	Times      *array      `json:"times"`
	Lengths    []string    `json:"lengths"`
	Offsets    []string    `json:"offsets"`
	Mode       kernel.Mode `json:"mode"`
	Edge       kernel.Edge `json:"edge"`
	MaxGap     int64       `json:"max_gap,string"`
	Before     int64       `json:"before,string"`
	After      int64       `json:"after,string"`
	Period     string      `json:"period"`
	Lo         string      `json:"lo"`
	Quats      [][4]int    `json:"quats"`
	Continuous bool        `json:"continuous"`
	Epilogue   *opEpilogue `json:"epilogue"`
}

type opEpilogue struct {
	Unit bool `json:"unit"`
	Norm *struct {
		Kind string   `json:"kind"`
		A    []string `json:"a"`
		B    []string `json:"b"`
	} `json:"norm"`
	Plane   int      `json:"plane"`
	Clip    []string `json:"clip"`
	Augment *struct {
		Seed    uint64   `json:"seed,string"`
		Epoch   uint64   `json:"epoch,string"`
		Op      uint32   `json:"op"`
		Samples []string `json:"samples"`
		Noise   string   `json:"noise"`
		Dropout string   `json:"dropout"`
		Scale   []string `json:"scale"`
	} `json:"augment"`
}

func loadOps() ([]opCase, []string, error) {
	entries, err := kernel.Vectors.ReadDir(path.Clean(opVectors))
	if err != nil {
		return nil, nil, err
	}
	var all []opCase
	var files []string
	for _, e := range entries {
		if e.Name() == "large.json" {
			continue
		}
		raw, err := kernel.Vectors.ReadFile(opVectors + e.Name())
		var f struct{ Cases []opCase }
		if err == nil {
			err = json.Unmarshal(raw, &f)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		for range f.Cases {
			files = append(files, e.Name())
		}
		all = append(all, f.Cases...)
	}
	return all, files, nil
}

func runOps(b Backend) (ran int, failures []error) {
	cases, files, err := loadOps()
	if err != nil {
		return 0, []error{err}
	}
	for i := range cases {
		c := &cases[i]
		ran++
		var err error
		switch c.Op {
		case "fuse":
			err = c.fuse(b)
		case "fuse_grad":
			err = c.grad(b)
		default:
			err = fmt.Errorf("unknown op %q", c.Op)
		}
		if c.Error == nil && c.continuous() && errors.Is(err, robocache.ErrUnsupported) {
			err = nil // K20 leaves it to the back end
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("ops/%s: %s: %w", files[i], c.Name, err))
		}
	}
	n, more := runLarge(b)
	return ran + n, append(failures, more...)
}

func (c *opCase) continuous() bool {
	for i := range c.Series {
		if c.Series[i].Continuous {
			return true
		}
	}
	return false
}

func (r *reader) float64(s string) float64 {
	if s == "" {
		return 0
	}
	x, err := float(s)
	r.err = errors.Join(r.err, err)
	return x
}

func (r *reader) series(s *opSeries) kernel.Series {
	out := kernel.Series{Name: s.Name, Values: r.tensor(s.Values), Times: r.tensor(s.Times), Lengths: r.index(s.Lengths), Offsets: r.index(s.Offsets)}
	out.Rule = kernel.Rule{Mode: s.Mode, Edge: s.Edge, MaxGap: s.MaxGap, Before: s.Before, After: s.After, Period: r.float64(s.Period), Quats: s.Quats, Continuous: s.Continuous}
	if s.Lo != "" {
		lo := r.float64(s.Lo)
		out.Rule.Lo = &lo
	}
	if s.Epilogue != nil {
		out.Epilogue = r.epilogue(s.Epilogue)
	}
	return out
}

func (r *reader) epilogue(e *opEpilogue) kernel.Epilogue {
	out := kernel.Epilogue{Unit: e.Unit, Plane: e.Plane}
	if n := e.Norm; n != nil {
		out.Norm = &kernel.Norm{Kind: map[string]kernel.NormKind{"mean_std": kernel.MeanStd, "min_max": kernel.MinMax}[n.Kind], A: make([]float32, len(n.A)), B: make([]float32, len(n.B))}
		r.floats(out.Norm.A, n.A)
		r.floats(out.Norm.B, n.B)
	}
	if e.Clip != nil {
		out.Clip = new([2]float32)
		r.floats(out.Clip[:], e.Clip)
	}
	if a := e.Augment; a != nil {
		var scale [2]float32
		r.floats(scale[:], a.Scale)
		out.Augment = &kernel.Augment{Seed: a.Seed, Epoch: a.Epoch, Op: a.Op, Samples: r.index(a.Samples), Noise: r.float(a.Noise), Dropout: r.float(a.Dropout), ScaleLo: scale[0], ScaleHi: scale[1]}
	}
	return out
}

// result is a tensor that the vector gives the layout of, full of poison.
func (r *reader) result(a *array) *kernel.Tensor {
	if a == nil {
		return nil
	}
	t := &kernel.Tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride, Base: a.Base}
	end := 0
	elements(t, func(o int, _ []int) { end = max(end, o+a.DType.Size()) })
	buf := make([]byte, a.Skip+end)
	for i := range buf {
		buf[i] = poison
	}
	t.Data = buf[a.Skip:]
	return t
}

func (r *reader) clock(name string) kernel.Clock {
	switch name {
	case "", "ns":
		return kernel.Nanoseconds
	case "as_given":
		return kernel.AsGiven
	}
	r.err = errors.Join(r.err, errors.New("unknown clock "+strconv.Quote(name)))
	return 0
}

func (c *opCase) fuse(b Backend) error {
	var r reader
	op := &kernel.FuseOp{Targets: r.tensor(c.Targets), Out: *r.result(c.Out), Clock: r.clock(c.Clock), Epsilon: r.float64(c.Epsilon), Validate: true}
	for i := range c.Series {
		op.Series = append(op.Series, r.series(&c.Series[i]))
	}
	op.Valid = r.result(c.ValidOut)
	if op.Valid == nil && len(op.Out.Shape) == 3 {
		v := filled(robocache.Uint8, op.Out.Shape[0], op.Out.Shape[1], len(op.Series))
		op.Valid = &v
	}
	counts := int64s([]int64{7, 1 << 40})
	op.Counts = &counts
	if r.err != nil {
		return r.err
	}
	all := op.Tensors()
	inputs := all[:len(all)-3] // out, valid and counts are last
	before := memory(inputs)
	err := b.Fuse(op)
	if c.Error != nil {
		return c.Error.Match(err)
	}
	if err != nil {
		return err
	}
	if memory(inputs) != before {
		return errors.New("an input was written to")
	}
	if err := c.compare(&op.Out); err != nil {
		return err
	}
	valid := make([]string, len(c.Valid))
	for i, v := range c.Valid {
		valid[i] = fmt.Sprintf("%02x", v)
	}
	if err := expect("valid", op.Valid, valid); err != nil {
		return err
	}
	if c.Counts != nil {
		if err := expect("counts", op.Counts, words([]int64{7 + c.Counts[0], 1<<40 + c.Counts[1]}, 16)); err != nil {
			return err
		}
	}
	if op.Clock == kernel.Nanoseconds && !c.continuous() {
		if err := c.apply(b, op); err != nil {
			return fmt.Errorf("by plans: %w", err)
		}
	}
	return nil
}

// apply makes the same result by Apply: a part for every entry and stream, with the reference's plans, all into the op's tensors.
func (c *opCase) apply(b Backend, op *kernel.FuseOp) error {
	for _, t := range []*kernel.Tensor{&op.Out, op.Valid} {
		for i := range t.Data {
			t.Data[i] = poison
		}
	}
	counts := int64s([]int64{0, 0})
	a := &kernel.ApplyOp{Counts: &counts}
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
			p.Src = view(&s.Values, e, first, plan.Sources)
			p.Out = view(&op.Out, e, 0, plan.Len())
			p.Out.Base += col * p.Out.Stride[1]
			p.Out.Shape[1] = p.Src.Shape[1]
			// The part's own validity goes into the op's.
			v := view(op.Valid, e, 0, plan.Len())
			v.Base += i * v.Stride[1]
			v.Shape, v.Stride = v.Shape[:1], v.Stride[:1]
			elements(&v, func(o int, index []int) { v.Data[o] = plan.Valid[index[0]] })
			p.Valid = &v
			if g := s.Epilogue.Augment; g != nil {
				sample := int64(e)
				if g.Samples != nil {
					sample = int64(le.Uint64(g.Samples.Data[8*e:]))
				}
				one, g := int64s([]int64{sample}), *g
				g.Samples = &one
				p.Epilogue.Augment = &g
			}
			a.Parts = append(a.Parts, p)
			col += p.Src.Shape[1]
		}
	}
	if err := b.Apply(a); err != nil {
		return err
	}
	if err := c.compare(&op.Out); err != nil {
		return err
	}
	valid := make([]string, len(c.Valid))
	for i, v := range c.Valid {
		valid[i] = fmt.Sprintf("%02x", v)
	}
	if err := expect("valid", op.Valid, valid); err != nil {
		return err
	}
	if c.Counts != nil {
		return expect("counts", a.Counts, words(c.Counts, 16))
	}
	return nil
}

// view is rows first … first+n-1 of an entry: the last two axes.
func view(t *kernel.Tensor, entry, first, n int) kernel.Tensor {
	v := *t
	axis := len(t.Shape) - 2
	v.Shape, v.Stride = []int{n, t.Shape[axis+1]}, []int{t.Step(axis), t.Step(axis + 1)}
	v.Base += first * v.Stride[0]
	if axis == 1 {
		v.Base += entry * t.Step(0)
	}
	return v
}

func (c *opCase) grad(b Backend) error {
	var r reader
	op := &kernel.FuseGradOp{Targets: r.tensor(c.Targets), Out: r.tensor(c.Gradient), Grad: *r.result(c.Out), Clock: r.clock(c.Clock), Epsilon: r.float64(c.Epsilon), Series: r.series(&c.Series[0])}
	if r.err != nil {
		return r.err
	}
	all := op.Tensors()
	inputs := all[:len(all)-1] // grad is last
	before := memory(inputs)
	err := b.FuseGrad(op)
	if c.Error != nil {
		return c.Error.Match(err)
	}
	if err != nil {
		return err
	}
	if memory(inputs) != before {
		return errors.New("an input was written to")
	}
	return c.compare(&op.Grad)
}

// memory is what tensors lie in.
func memory(tensors []*kernel.Tensor) string {
	var s []byte
	for _, t := range tensors {
		s = append(s, t.Data...)
	}
	return string(s)
}

// compare looks at the result: to the bit, or within the slack of its column.
func (c *opCase) compare(t *kernel.Tensor) error {
	if c.Slack == nil {
		return expect("out", t, c.Want)
	}
	var r reader
	want := make([]string, 0, len(c.Want))
	elements(t, func(o int, index []int) {
		i := len(want)
		if i >= len(c.Want) {
			return
		}
		w, got, size := c.Want[i], word(t.Data[o:o+t.DType.Size()]), t.DType.Size()
		if u, err := strconv.ParseUint(w, 16, 64); err == nil && near(u, got, t.DType, r.float64(c.Slack[index[len(index)-1]])) {
			w = fmt.Sprintf("%0*x", 2*size, got)
		}
		want = append(want, w)
	})
	return errors.Join(r.err, expect("out", t, want))
}
