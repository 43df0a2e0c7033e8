package plan

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// Finish describes how raw batches of n samples become what Fields promise. Each buffer of
// Batch.Buffers is copied to the device once. Op and Images, if present, then run once each.
type Finish struct {
	Buffers []int // sizes in bytes
	Op      *kernel.ApplyOp
	Places  []Place         // of Op's tensors, in the order of Op.Tensors
	Images  *kernel.ImageOp // augments cameras; nil: none is augmented
	Drawn   []Place         // of Images' tensors, in their order
	Fields  []Place         // of the fields that are not texts, in their order
	Outputs []Output        // tensors that Op and Images write
}

// Place locates a tensor in a buffer or an output.
type Place struct {
	Output bool `json:"output,omitempty"`
	Index  int  `json:"index"` // of the buffer or output
	Offset int  `json:"offset"`
}

// Output is a tensor that Op or Images write.
type Output struct {
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"`
	Bytes int             `json:"bytes"`
}

// DescribeFinish returns the operations on raw batches of n samples of src.
func DescribeFinish(s *layout.Schema, src *Source, n int) *Finish {
	slots, shared := s.SlotsFor(n)
	out := &Finish{}
	buffer := make([]int, len(s.Tensors))
	if shared > 0 {
		out.Buffers = append(out.Buffers, shared)
	}
	for i := range s.Tensors {
		if slots[i].HasBuffer {
			buffer[i] = len(out.Buffers)
			out.Buffers = append(out.Buffers, n*s.Tensors[i].Bytes)
		}
	}
	placeOf := func(key string) Place {
		i := s.TensorIndex(key)
		return Place{Index: buffer[i], Offset: slots[i].Offset}
	}
	op, images := &kernel.ApplyOp{}, &kernel.ImageOp{}
	for i := range s.Fields {
		x := &s.Fields[i]
		c := src.Column(x.Key)
		switch {
		case x.Text():
			continue
		case c == nil || c.Deferred == nil || x.Mask || n == 0:
			out.Fields = append(out.Fields, placeOf(x.Key))
			continue
		}
		raw, rows := c.Deferred, n*c.Steps
		output := Place{Output: true, Index: len(out.Outputs)}
		var places []Place
		for _, t := range raw.ExtraTensors(c) {
			places = append(places, placeOf(t.Key))
		}
		var result kernel.Tensor
		if raw.HasDraws {
			frames := c.Image()
			p := kernel.ImagePart{Name: x.Key, ImageForm: frames.Augment.Form}
			p.Src = kernel.Tensor{
				DType: robocache.Uint8,
				Shape: []int{rows, 3, frames.Height, frames.Width},
			}
			p.Draws = kernel.Tensor{
				DType: robocache.Int32,
				Shape: []int{rows, kernel.ImageDrawWords},
			}
			p.Out = kernel.Tensor{
				DType: raw.OutDType,
				Shape: append([]int{rows}, frames.DeliveredShape()...),
			}
			result = p.Out
			images.Parts = append(images.Parts, p)
			out.Drawn = append(out.Drawn, placeOf(x.Key), places[0], output)
		} else {
			p := kernel.Part{Name: x.Key, Rule: raw.Rule, Epilogue: raw.Epilogue(c)}
			p.Src = kernel.Tensor{DType: c.OutDType, Shape: []int{rows, raw.Elements}}
			p.Out = kernel.Tensor{DType: raw.OutDType, Shape: []int{rows, raw.Elements}}
			if raw.HasPairs {
				p.Src.Shape[0] *= 2
			}
			if raw.HasPlan {
				for i, to := range []**kernel.Tensor{&p.Kind, &p.Left, &p.Right, &p.Weight} {
					*to = &kernel.Tensor{DType: column.Planned[i].Dtype, Shape: []int{rows}}
				}
			}
			result = p.Out
			op.Parts = append(op.Parts, p)
			out.Places = append(out.Places, placeOf(x.Key), output)
			out.Places = append(out.Places, places...)
		}
		out.Outputs = append(
			out.Outputs,
			Output{
				DType: raw.OutDType,
				Shape: append([]int{n}, x.Shape...),
				Bytes: result.Len() * raw.OutDType.Size(),
			},
		)
		out.Fields = append(out.Fields, output)
	}
	if len(op.Parts) > 0 {
		out.Op = op
	}
	if len(images.Parts) > 0 {
		out.Images = images
	}
	return out
}
