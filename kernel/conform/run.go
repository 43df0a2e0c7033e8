package conform

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Backend runs the operations of package kernel on tensors in host memory. A back end of a device is wrapped by one that moves them there and
// back.
type Backend interface {
	Fuse(*kernel.FuseOp) error
	FuseGrad(*kernel.FuseGradOp) error
	Apply(*kernel.ApplyOp) error
	Images(*kernel.ImageOp) error
	Space
}

// Run gives every vector to the back end; a plan's by its times through Fuse, and as it is stored through Apply. It returns how many ran, and the
// failures.
func Run(b Backend) (ran int, failures []error) {
	cases, err := Load()
	if err != nil {
		return 0, []error{err}
	}
	for i := range cases {
		c := &cases[i]
		ran++
		if err := c.Run(b); err != nil {
			failures = append(failures, fmt.Errorf("%s: %s: %w", c.File, c.Name, err))
		}
	}
	n, wrong := runOps(b)
	more, wrongVoxels := RunVoxels(b)
	images, wrongImages := RunImages(b)
	return ran + n + more + images, slices.Concat(failures, wrong, wrongVoxels, wrongImages)
}

// Run gives the case to the back end.
func (c *Case) Run(b Backend) error {
	if err := c.fuse(b); err != nil {
		return fmt.Errorf("by times: %w", err)
	}
	if c.Error != nil {
		return nil
	}
	if err := c.apply(b); err != nil {
		return fmt.Errorf("by the plan: %w", err)
	}
	return nil
}

var classes = map[string]error{"misuse": robocache.ErrMisuse, "malformed": robocache.ErrMalformed, "unsupported": robocache.ErrUnsupported, "resource": robocache.ErrResourceLimit}

// Match says whether err is what the case fails with.
func (e *ExpectedError) Match(err error) error {
	class := classes[e.Class]
	if class == nil {
		return fmt.Errorf("no such class: %q", e.Class)
	}
	if !errors.Is(err, class) || !strings.Contains(err.Error(), e.Phrase) {
		return fmt.Errorf("%v, want %s: %s", err, e.Class, e.Phrase)
	}
	return nil
}

func filled(d robocache.DType, shape ...int) kernel.Tensor {
	t := kernel.Tensor{DType: d, Shape: shape}
	t.Data = bytes.Repeat([]byte{poison}, t.Len()*d.Size())
	return t
}

func int64s(v []int64) kernel.Tensor {
	t := kernel.Tensor{DType: robocache.Int64, Shape: []int{len(v)}, Data: make([]byte, 0, 8*len(v))}
	for _, x := range v {
		t.Data = le.AppendUint64(t.Data, uint64(x))
	}
	return t
}

// fuse runs the case as a batch of one entry, with times.
func (c *Case) fuse(b Backend) error {
	times, err := Int64s(c.Times)
	if err != nil {
		return err
	}
	targets, err := Int64s(c.Targets)
	if err != nil {
		return err
	}
	src, err := c.Source()
	if err != nil {
		return err
	}
	rule, err := c.Rule()
	if err != nil {
		return err
	}
	dt, ok := robocache.ParseDType(c.Out)
	if !ok {
		return fmt.Errorf("dtype %q", c.Out)
	}
	before := string(src.Data)
	out, valid := filled(dt, 1, len(targets), c.Data.Cols), filled(robocache.Uint8, 1, len(targets), 1)
	values := src
	values.Shape, values.Stride = append([]int{1}, src.Shape...), append([]int{0}, src.Stride...)
	err = b.Fuse(&kernel.FuseOp{Series: []kernel.Series{{Values: values, Times: int64s(times), Rule: rule}}, Targets: int64s(targets), Out: out, Valid: &valid, Validate: true})
	if c.Error != nil {
		return c.Error.Match(err)
	}
	if err != nil {
		return err
	}
	if before != string(src.Data) {
		return errors.New("the source was written to")
	}
	return c.Check(out.Data, valid.Data)
}

// apply runs the case by its stored plan.
func (c *Case) apply(b Backend) error {
	p, err := c.Kernel()
	if err != nil {
		return err
	}
	src, err := c.Source()
	if err != nil {
		return err
	}
	rule, err := c.Rule()
	if err != nil {
		return err
	}
	dt, _ := robocache.ParseDType(c.Out)
	before := string(src.Data)
	out := filled(dt, p.Len(), c.Data.Cols)
	part := Planned(p)
	part.Src, part.Out, part.Rule = src, out, rule
	if err := b.Apply(&kernel.ApplyOp{Parts: []kernel.Part{part}}); err != nil {
		return err
	}
	if before != string(src.Data) {
		return errors.New("the source was written to")
	}
	return c.Check(out.Data, part.Valid.Data)
}

// Planned is a part with a plan's arrays as tensors.
func Planned(p *kernel.Plan) kernel.Part {
	n := p.Len()
	kind, left, right, weight, valid := filled(robocache.Uint8, n), filled(robocache.Int32, n), filled(robocache.Int32, n), filled(robocache.Float64, n), filled(robocache.Uint8, n)
	for i := range n {
		kind.Data[i], valid.Data[i] = byte(p.Kind[i]), p.Valid[i]
		le.PutUint32(left.Data[4*i:], uint32(p.Left[i]))
		le.PutUint32(right.Data[4*i:], uint32(p.Right[i]))
		le.PutUint64(weight.Data[8*i:], bits64(p.Weight[i]))
	}
	return kernel.Part{Rule: kernel.Rule{Mode: p.Mode}, Kind: &kind, Left: &left, Right: &right, Weight: &weight, Valid: &valid}
}
