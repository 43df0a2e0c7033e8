package loader

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Finish says how the raw batches of n samples become what Fields promise: what is to be moved, and what is to be made of it. The buffers are
// those that Batch.Buffers gives: each is moved whole, once; then Op and Images, those that there are, run once each.
type Finish struct {
	Buffers []int // bytes of each
	Op      *kernel.ApplyOp
	Places  []Place         // of Op's tensors, in the order of Op.Tensors
	Images  *kernel.ImageOp // augmented cameras, if there are any; runs once too
	Drawn   []Place         // of Images' tensors, likewise
	Fields  []Place         // of the fields that are not texts, in their order
	Outputs []Output        // what Op and Images write
}

// Place is where a tensor lies: in a buffer, or in an output.
type Place struct {
	Output bool `json:"output,omitempty"`
	Index  int  `json:"index"` // of the buffer or output
	Offset int  `json:"offset"`
}

// Output is a tensor that a Finish makes.
type Output struct {
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"`
	Bytes int             `json:"bytes"`
}

// place is where an entry of a batch lies: in the buffer that small ones share (own false), or in one of its own.
type place struct {
	own    bool
	offset int
}

// places lays the tensors of a batch of n samples out: small ones share a buffer.
func (f *form) places(n int) (at []place, shared int) {
	at = make([]place, len(f.tensors))
	for i := range f.tensors {
		if size := n * f.tensors[i].bytes; size >= ownBuffer {
			at[i].own = true
		} else {
			at[i].offset = shared
			shared += roundUp(size, 64)
		}
	}
	return at, shared
}

// Buffers are the buffers of a batch, whole: what the small tensors share first, then the large ones in their order. They are the batch's:
// owner names a tensor each that keeps it.
func (b *Batch) Buffers() (buffers []Tensor, owner []int) {
	add := func(data []byte, i int) {
		buffers, owner = append(buffers, Tensor{Key: b.Tensors[i].Key, DType: robocache.Uint8, Shape: []int{len(data)}, Data: data}), append(owner, i)
	}
	for i := range b.Tensors {
		if size := len(b.Tensors[i].Data); size > 0 && size < ownBuffer {
			add(b.shared, i)
			break
		}
	}
	for i := range b.Tensors {
		if data := b.Tensors[i].Data; len(data) >= ownBuffer {
			add(data, i)
		}
	}
	return buffers, owner
}

// Finish describes what is left to do of raw batches of n samples, at most a whole batch.
func (l *Loader) Finish(n int) (*Finish, error) {
	if !l.cfg.Raw {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: "batches are finished: raw was not asked for"}
	}
	if n < 0 || n > l.cfg.BatchSize {
		return nil, misuse("finish", fmt.Sprintf("0 … %d samples", l.cfg.BatchSize), fmt.Sprint(n))
	}
	return l.a.form.finish(l.a.sources[0].layout, n), nil
}

func (f *form) finish(l *layout, n int) *Finish {
	at, shared := f.places(n)
	out := &Finish{}
	buffer := make([]int, len(f.tensors))
	if shared > 0 {
		out.Buffers = append(out.Buffers, shared)
	}
	for i := range f.tensors {
		if at[i].own {
			buffer[i] = len(out.Buffers)
			out.Buffers = append(out.Buffers, n*f.tensors[i].bytes)
		}
	}
	where := func(i int) Place { return Place{Index: buffer[i], Offset: at[i].offset} }
	index := func(key string) int {
		return slices.IndexFunc(f.tensors, func(t tensorPlan) bool { return t.key == key })
	}
	op, images := &kernel.ApplyOp{}, &kernel.ImageOp{}
	for i := range f.fields {
		x := &f.fields[i]
		if x.Text() {
			continue
		}
		own := index(x.Key)
		var raw *wired
		if c := l.column(x.Key); c != nil && !x.Mask {
			raw = c.raw
		}
		if raw == nil || n == 0 {
			out.Fields = append(out.Fields, where(own))
			continue
		}
		c := l.column(x.Key)
		rows := n * c.steps
		if c.aug != nil {
			p := kernel.ImagePart{Name: x.Key, Table: c.aug.table}
			p.Src = kernel.Tensor{DType: robocache.Uint8, Shape: []int{rows, 3, c.height, c.width}}
			p.Draws = kernel.Tensor{DType: robocache.Int32, Shape: []int{rows, kernel.ImageDrawWords}}
			p.Out = kernel.Tensor{DType: raw.out, Shape: []int{rows, 3, c.aug.h, c.aug.w}}
			o := Place{Output: true, Index: len(out.Outputs)}
			out.Outputs = append(out.Outputs, Output{DType: raw.out, Shape: append([]int{n}, x.Shape...), Bytes: p.Out.Len() * raw.out.Size()})
			out.Fields = append(out.Fields, o)
			images.Parts, out.Drawn = append(images.Parts, p), append(out.Drawn, where(own), where(index(l.tensors[raw.draws].key)), o)
			continue
		}
		p := kernel.Part{Name: x.Key, Rule: raw.rule, Epilogue: raw.epilogue(c)}
		p.Src = kernel.Tensor{DType: c.out, Shape: []int{rows, raw.elems}}
		p.Out = kernel.Tensor{DType: raw.out, Shape: []int{rows, raw.elems}}
		o := Place{Output: true, Index: len(out.Outputs)}
		places := []Place{where(own), o}
		if raw.pairs {
			p.Src.Shape[0] *= 2
		}
		if raw.plan != nil {
			for i, to := range []**kernel.Tensor{&p.Kind, &p.Left, &p.Right, &p.Weight} {
				*to = &kernel.Tensor{DType: planned[i].dtype, Shape: []int{rows}}
				places = append(places, where(index(l.tensors[raw.plan[i]].key)))
			}
		}
		out.Outputs = append(out.Outputs, Output{DType: raw.out, Shape: append([]int{n}, x.Shape...), Bytes: rows * raw.elems * raw.out.Size()})
		out.Fields = append(out.Fields, o)
		op.Parts, out.Places = append(op.Parts, p), append(out.Places, places...)
	}
	if len(op.Parts) > 0 {
		out.Op = op
	}
	if len(images.Parts) > 0 {
		out.Images = images
	}
	return out
}

// epilogue is what happens to the values of a raw column.
func (w *wired) epilogue(c *column) kernel.Epilogue {
	if !w.unit {
		return w.norm.epilogue(0)
	}
	e := w.norm.epilogue(c.plane(w.norm))
	e.Unit = true
	return e
}

// plane is how many elements of a frame share one number of its statistics: a channel's, or all.
func (c *column) plane(norm *affine) int {
	if norm != nil && len(norm.A) == 1 {
		return c.elems
	}
	return c.height * c.width
}
