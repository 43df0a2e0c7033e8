package column

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// DeviceOp says what is left to do of a column whose batches are raw: its tensor holds what was stored, and a device makes of it what the
// field promises, for all columns in one launch (Finish).
type DeviceOp struct {
	OutDType    robocache.DType // of the field
	Elements    int             // of a row of the field
	Norm        *Affine
	IsUnitRange bool // frames: x/255
	Rule        kernel.Rule
	HasPairs    bool // rows come as the two samples that they lie between
	HasDraws    bool // of augmented frames: what was drawn for each comes beside them
	HasPlan     bool // the plan of the rows comes beside them; else all are copied
	FirstExtra  int  // the first tensor of what comes beside them
}

// The tensors of a plan: kernel.Plan's arrays.
var Planned = [4]struct {
	name  string
	Dtype robocache.DType
}{{"kind", robocache.Uint8}, {"left", robocache.Int32}, {"right", robocache.Int32}, {"weight", robocache.Float64}}

// RawTensor is the raw tensor in place of that of the field. The fields stay what the user gets.
func (op *DeviceOp) RawTensor(c *Column) layout.TensorPlan {
	t := c.Source.Tensors[c.Entry]
	t.Shape = slices.Clone(t.Shape)
	t.DType, t.Bytes = c.OutDType, c.Steps*c.OutBytes
	switch n := len(t.Shape); {
	case op.HasDraws:
		t.Shape[n-2], t.Shape[n-1] = c.Image().Height, c.Image().Width
	case op.HasPairs:
		t.Shape, t.Bytes = []int{c.Steps, 2, c.Elements}, 2*t.Bytes
	}
	return t
}

// ExtraTensors are the tensors of what comes beside the raw one.
func (op *DeviceOp) ExtraTensors(c *Column) (out []layout.TensorPlan) {
	switch {
	case op.HasDraws:
		out = append(out, layout.NewTensor(c.Key+"\x00draws", robocache.Int32, c.Steps, kernel.ImageDrawWords))
	case op.HasPlan:
		for _, x := range Planned {
			out = append(out, layout.NewTensor(c.Key+"\x00"+x.name, x.Dtype, c.Steps))
		}
	}
	return out
}

// Normalization is a column's normalisation, whoever does it.
func (c *Column) Normalization() *Affine {
	if c.Deferred != nil {
		return c.Deferred.Norm
	}
	if i := c.Image(); i != nil && i.Augment != nil {
		return i.Augment.Norm
	}
	return c.Norm
}

// planRow is a row of the plan that comes beside a raw column.
func (op *DeviceOp) planRow(p *Part, at int, kind kernel.Kind, left, right int, weight float64) {
	p.TensorData(op.FirstExtra)[at] = byte(kind)
	AsSlice[int32](p.TensorData(op.FirstExtra + 1))[at], AsSlice[int32](p.TensorData(op.FirstExtra + 2))[at] = int32(left), int32(right)
	AsSlice[float64](p.TensorData(op.FirstExtra + 3))[at] = weight
}

func (op *DeviceOp) draw(p *Part, at int, d kernel.ImageDraw) {
	at *= 4 * kernel.ImageDrawWords
	d.Append(p.TensorData(op.FirstExtra)[at:at])
}

// begin draws for the frames of a part, or writes their plan: each is there, until blank says that it is not.
func (op *DeviceOp) begin(p *Part, c *Column) {
	i := c.Image()
	if i == nil {
		return
	}
	for k := range p.size() * c.Steps {
		switch at := p.ValueSlot(c, k); {
		case op.HasDraws:
			op.draw(p, at, p.draw(i, k))
		case op.HasPlan:
			op.planRow(p, at, kernel.Copy, at, at, 0)
		}
	}
}

// blank says of the k-th frame of a part that it is not there.
func (op *DeviceOp) blank(p *Part, c *Column, k int) {
	switch at := p.ValueSlot(c, k); {
	case op.HasDraws:
		op.draw(p, at, kernel.ImageDraw{Blank: 1})
	case op.HasPlan:
		p.TensorData(op.FirstExtra)[at] = byte(kernel.Zero)
	}
}

// pair writes the raw rows of a column that goes by time: for each the two samples that it lies between, and its plan.
func (p *Part) pair(c *Column, plan *kernel.Plan, src []byte) {
	dst, size := p.TensorData(c.Entry), c.RowBytes
	for i, k := range plan.Kind {
		at := p.ValueSlot(c, i)
		c.Deferred.planRow(p, at, k, 2*at, 2*at+1, plan.Weight[i])
		first, second := dst[2*at*size:(2*at+1)*size], dst[(2*at+1)*size:2*(at+1)*size]
		// What the row does not read is cleared: the buffer is an old batch's.
		clear(first)
		clear(second)
		switch k {
		case kernel.Blend:
			copy(second, src[int(plan.Right[i])*size:])
			fallthrough
		case kernel.Copy:
			copy(first, src[int(plan.Left[i])*size:])
		}
	}
}

// Epilogue is what happens to the values of a raw column.
func (op *DeviceOp) Epilogue(c *Column) kernel.Epilogue {
	plane := 0
	if op.IsUnitRange {
		plane = c.Image().plane(op.Norm)
	}
	e := op.Norm.Epilogue(plane)
	e.Unit = op.IsUnitRange
	return e
}

// plane is how many elements of a frame share one number of its statistics: a channel's, or all.
func (c *ImageColumn) plane(norm *Affine) int {
	if norm != nil && len(norm.A) == 1 {
		return c.Elements
	}
	return c.Height * c.Width
}
