package column

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// DeviceOp describes the operations that a device applies to a column of a raw batch. The raw
// tensor holds stored values, and one kernel launch for all columns computes the values that the
// field promises (loader.Finish).
type DeviceOp struct {
	OutDType    robocache.DType // of the field
	Elements    int             // of a row of the field
	Norm        *Affine
	IsUnitRange bool // divide pixels by 255
	Rule        kernel.Rule
	HasPairs    bool // each row is stored as the two rows that it is interpolated between
	HasDraws    bool // extra tensors hold the augmentation draw of each frame
	HasPlan     bool // extra tensors hold a plan of the rows; otherwise all rows are copied
	FirstExtra  int  // first of the extra tensors
}

// Planned lists the extra tensors of a plan: the arrays of kernel.Plan.
var Planned = [4]struct {
	name  string
	Dtype robocache.DType
}{
	{"kind", robocache.Uint8},
	{"left", robocache.Int32},
	{"right", robocache.Int32},
	{"weight", robocache.Float64},
}

// RawTensor returns the tensor that replaces the field's tensor in a raw batch. With draws, frames
// have their size before augmentation. With pairs, each row becomes two stored rows. The field
// itself describes the finished values.
func (op *DeviceOp) RawTensor(c *Column) layout.TensorPlan {
	t := c.Source.Tensors[c.Entry]
	t.Shape = slices.Clone(t.Shape)
	t.DType, t.Bytes = c.OutDType, c.Steps*c.OutBytes
	switch n := len(t.Shape); {
	case op.HasDraws:
		// Raw frames are RGB with the channels first.
		copy(t.Shape[n-3:], []int{3, c.Image().Height, c.Image().Width})
	case op.HasPairs:
		t.Shape, t.Bytes = []int{c.Steps, 2, c.Elements}, 2*t.Bytes
	}
	return t
}

// ExtraTensors returns the tensors that accompany the raw one.
func (op *DeviceOp) ExtraTensors(c *Column) (out []layout.TensorPlan) {
	switch {
	case op.HasDraws:
		out = append(
			out,
			layout.NewTensor(c.Key+"\x00draws", robocache.Int32, c.Steps, kernel.ImageDrawWords),
		)
	case op.HasPlan:
		for _, x := range Planned {
			out = append(out, layout.NewTensor(c.Key+"\x00"+x.name, x.Dtype, c.Steps))
		}
	}
	return out
}

// Normalization returns the column's normalization, whether the host or a device applies it. It
// returns nil if there is none.
func (c *Column) Normalization() *Affine {
	if c.Deferred != nil {
		return c.Deferred.Norm
	}
	if i := c.Image(); i != nil && i.Augment != nil {
		return i.Augment.Norm
	}
	return c.Norm
}

// writePlanRow writes the plan of a row to the extra tensors. at is the index of the row in the
// batch.
func (op *DeviceOp) writePlanRow(
	p *Part,
	at int,
	kind kernel.Kind,
	left, right int,
	weight float64,
) {
	p.TensorData(op.FirstExtra)[at] = byte(kind)
	AsSlice[int32](p.TensorData(op.FirstExtra + 1))[at] = int32(left)
	AsSlice[int32](p.TensorData(op.FirstExtra + 2))[at] = int32(right)
	AsSlice[float64](p.TensorData(op.FirstExtra + 3))[at] = weight
}

// writeDraw writes the augmentation draw of a frame to the extra tensor. at is the index of the
// frame in the batch.
func (op *DeviceOp) writeDraw(p *Part, at int, d kernel.ImageDraw) {
	offset := 4 * kernel.ImageDrawWords * at
	d.Append(p.TensorData(op.FirstExtra)[offset:offset])
}

// beginPart writes the draws or the plan of a part's frames. All frames count as present until
// markBlank is called.
func (op *DeviceOp) beginPart(p *Part, c *Column) {
	i := c.Image()
	if i == nil {
		return
	}
	for k := range p.sampleCount() * c.Steps {
		switch at := p.ValueSlot(c, k); {
		case op.HasDraws:
			op.writeDraw(p, at, p.drawAugment(i, k))
		case op.HasPlan:
			op.writePlanRow(p, at, kernel.Copy, at, at, 0)
		}
	}
}

// markBlank marks the k-th frame of a part as absent, so that the device writes zeros.
func (op *DeviceOp) markBlank(p *Part, c *Column, k int) {
	switch at := p.ValueSlot(c, k); {
	case op.HasDraws:
		op.writeDraw(p, at, kernel.ImageDraw{Blank: 1})
	case op.HasPlan:
		p.TensorData(op.FirstExtra)[at] = byte(kernel.Zero)
	}
}

// writePairs writes the raw rows of a column that is resampled by time: for each row the two stored
// rows that it is interpolated between, and its plan.
func (p *Part) writePairs(c *Column, plan *kernel.Plan, src []byte) {
	dst, size := p.TensorData(c.Entry), c.RowBytes
	for i, k := range plan.Kind {
		at := p.ValueSlot(c, i)
		c.Deferred.writePlanRow(p, at, k, 2*at, 2*at+1, plan.Weight[i])
		first, second := dst[2*at*size:(2*at+1)*size], dst[(2*at+1)*size:2*(at+1)*size]
		// Clear what the row does not read, because the buffer holds an earlier batch.
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

// Epilogue returns the operations that finish the values of a raw column: scaling of pixels and
// normalization.
func (op *DeviceOp) Epilogue(c *Column) kernel.Epilogue {
	plane := 0
	if op.IsUnitRange {
		plane = c.Image().planeElements(op.Norm)
	}
	e := op.Norm.Epilogue(plane)
	e.Unit = op.IsUnitRange
	return e
}

// planeElements returns how many elements of a frame share one number of its statistics: those of
// one channel, or all.
func (c *ImageColumn) planeElements(norm *Affine) int {
	if norm != nil && len(norm.A) == 1 {
		return c.Elements
	}
	return c.Height * c.Width
}
