package loader

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// deviceOp says what is left to do of a column whose batches are raw: its tensor holds what was stored, and a device makes of it what the
// field promises, for all columns in one launch (Finish).
type deviceOp struct {
	out   robocache.DType // of the field
	elems int             // of a row of the field
	norm  *affine
	unit  bool // frames: x/255
	rule  kernel.Rule
	pairs bool // rows come as the two samples that they lie between
	draws bool // of augmented frames: what was drawn for each comes beside them
	plan  bool // the plan of the rows comes beside them; else all are copied
	extra int  // the first tensor of what comes beside them
}

// The tensors of a plan: kernel.Plan's arrays.
var planned = [4]struct {
	name  string
	dtype robocache.DType
}{{"kind", robocache.Uint8}, {"left", robocache.Int32}, {"right", robocache.Int32}, {"weight", robocache.Float64}}

// deferOps makes columns raw, where that is asked and where it means the same in every source that a batch is made of.
func deferOps(sources []*source) {
	if !sources[0].cfg.Raw {
		return
	}
	for _, first := range sources[0].columns {
		op := deferredOp(first)
		columns := make([]*column, len(sources))
		for k, src := range sources {
			c := src.column(first.key)
			if c == nil || op == nil || src.pads[c.key] != nil || !op.same(deferredOp(c), first, c) {
				op = nil
				break
			}
			columns[k] = c
		}
		if op == nil {
			continue
		}
		for _, c := range columns {
			own := *op
			own.norm = c.normal()
			c.raw, c.norm = &own, nil
			if i := c.image(); i != nil {
				i.keepBytes()
			} else {
				c.cast(c.stored)
			}
		}
	}
}

// deferredOp returns how a column can be raw; nil if it cannot, or if nothing would be left to do.
func deferredOp(c *column) *deviceOp {
	op := &deviceOp{out: c.out, elems: c.elems, norm: c.normal(), plan: c.time != nil}
	if i := c.image(); i != nil {
		op.draws, op.unit = i.aug != nil, i.aug == nil
		op.plan = op.plan && op.unit
		if c.elems == 0 || op.unit && i.spec.Pixel != video.RGBFloat32 {
			return nil
		}
		return op
	}
	rows := c.table()
	switch {
	case c.elems == 0 || rows != nil && (rows.mirror != nil || rows.noise > 0):
		return nil
	case !c.listed() || !c.stored.Float() || !c.out.Float():
		return nil
	}
	nothing := c.norm == nil && c.stored == c.out
	if c.time == nil {
		if nothing {
			return nil
		}
		return op
	}
	// Rows of mean and sum have any number of samples, and slerp decides by its values whether they are valid: the host does these.
	mode := c.time.opt.Mode
	if mode == kernel.Mean || mode == kernel.ModeSum || mode == kernel.Slerp || !mode.Computes() && nothing {
		return nil
	}
	op.pairs, op.rule = true, c.time.rule
	return op
}

// same says whether two sources' columns may share a launch: one normalisation and one rule for all rows.
func (op *deviceOp) same(o *deviceOp, c, d *column) bool {
	if o == nil || op.draws != o.draws || (op.norm == nil) != (o.norm == nil) {
		return false
	}
	if op.draws && (c.image().width != d.image().width || c.image().height != d.image().height) {
		return false
	}
	if a, b := op.norm, o.norm; a != nil && (a.clip != b.clip || a.Kind != b.Kind || !slices.Equal(a.A, b.A) || !slices.Equal(a.B, b.B)) {
		return false
	}
	return op.out == o.out && op.elems == o.elems && op.unit == o.unit && op.pairs == o.pairs && op.rule.Mode == o.rule.Mode && op.rule.Period == o.rule.Period && c.stored == d.stored && (c.time == nil) == (d.time == nil)
}

// tensor is the raw tensor in place of that of the field. The fields stay what the user gets.
func (op *deviceOp) tensor(c *column) tensorPlan {
	t := c.src.tensors[c.entry]
	t.shape = slices.Clone(t.shape)
	t.dtype, t.bytes = c.out, c.steps*c.outBytes
	switch n := len(t.shape); {
	case op.draws:
		t.shape[n-2], t.shape[n-1] = c.image().height, c.image().width
	case op.pairs:
		t.shape, t.bytes = []int{c.steps, 2, c.elems}, 2*t.bytes
	}
	return t
}

// extras are the tensors of what comes beside the raw one.
func (op *deviceOp) extras(c *column) (out []tensorPlan) {
	switch {
	case op.draws:
		out = append(out, newTensor(c.key+"\x00draws", robocache.Int32, c.steps, kernel.ImageDrawWords))
	case op.plan:
		for _, x := range planned {
			out = append(out, newTensor(c.key+"\x00"+x.name, x.dtype, c.steps))
		}
	}
	return out
}

// normal is a column's normalisation, whoever does it.
func (c *column) normal() *affine {
	if c.raw != nil {
		return c.raw.norm
	}
	if i := c.image(); i != nil && i.aug != nil {
		return i.aug.norm
	}
	return c.norm
}

// planRow is a row of the plan that comes beside a raw column.
func (op *deviceOp) planRow(p *part, at int, kind kernel.Kind, left, right int, weight float64) {
	p.data(op.extra)[at] = byte(kind)
	view[int32](p.data(op.extra + 1))[at], view[int32](p.data(op.extra + 2))[at] = int32(left), int32(right)
	view[float64](p.data(op.extra + 3))[at] = weight
}

func (op *deviceOp) draw(p *part, at int, d kernel.ImageDraw) {
	at *= 4 * kernel.ImageDrawWords
	d.Append(p.data(op.extra)[at:at])
}

// begin draws for the frames of a part, or writes their plan: each is there, until blank says that it is not.
func (op *deviceOp) begin(p *part, c *column) {
	i := c.image()
	if i == nil {
		return
	}
	for k := range p.size() * c.steps {
		switch at := p.at(c, k); {
		case op.draws:
			op.draw(p, at, p.draw(i, k))
		case op.plan:
			op.planRow(p, at, kernel.Copy, at, at, 0)
		}
	}
}

// blank says of the k-th frame of a part that it is not there.
func (op *deviceOp) blank(p *part, c *column, k int) {
	switch at := p.at(c, k); {
	case op.draws:
		op.draw(p, at, kernel.ImageDraw{Blank: 1})
	case op.plan:
		p.data(op.extra)[at] = byte(kernel.Zero)
	}
}

// pair writes the raw rows of a column that goes by time: for each the two samples that it lies between, and its plan.
func (p *part) pair(c *column, plan *kernel.Plan, src []byte) {
	dst, size := p.data(c.entry), c.rowBytes
	for i, k := range plan.Kind {
		at := p.at(c, i)
		c.raw.planRow(p, at, k, 2*at, 2*at+1, plan.Weight[i])
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

// Finish describes what is left to do of raw batches of n samples, at most a whole batch.
func (l *Loader) Finish(n int) (*Finish, error) {
	if !l.cfg.Raw {
		return nil, robocache.Misuse("loader", nil, "batches are finished: raw was not asked for")
	}
	if n < 0 || n > l.cfg.BatchSize {
		return nil, options.Misuse("finish", fmt.Sprintf("0 … %d samples", l.cfg.BatchSize), fmt.Sprint(n))
	}
	return finishOf(l.a.schema, l.a.sources[0], n), nil
}

func finishOf(s *schema, src *source, n int) *Finish {
	at, shared := s.layOut(n)
	out := &Finish{}
	buffer := make([]int, len(s.tensors))
	if shared > 0 {
		out.Buffers = append(out.Buffers, shared)
	}
	for i := range s.tensors {
		if at[i].own {
			buffer[i] = len(out.Buffers)
			out.Buffers = append(out.Buffers, n*s.tensors[i].bytes)
		}
	}
	where := func(key string) Place {
		i := s.tensor(key)
		return Place{Index: buffer[i], Offset: at[i].offset}
	}
	op, images := &kernel.ApplyOp{}, &kernel.ImageOp{}
	for i := range s.fields {
		x := &s.fields[i]
		c := src.column(x.Key)
		switch {
		case x.Text():
			continue
		case c == nil || c.raw == nil || x.Mask || n == 0:
			out.Fields = append(out.Fields, where(x.Key))
			continue
		}
		raw, rows := c.raw, n*c.steps
		made := Place{Output: true, Index: len(out.Outputs)}
		var places []Place
		for _, t := range raw.extras(c) {
			places = append(places, where(t.key))
		}
		var result kernel.Tensor
		if raw.draws {
			frames := c.image()
			p := kernel.ImagePart{Name: x.Key, Table: frames.aug.table}
			p.Src = kernel.Tensor{DType: robocache.Uint8, Shape: []int{rows, 3, frames.height, frames.width}}
			p.Draws = kernel.Tensor{DType: robocache.Int32, Shape: []int{rows, kernel.ImageDrawWords}}
			p.Out = kernel.Tensor{DType: raw.out, Shape: append([]int{rows}, frames.delivered()...)}
			result = p.Out
			images.Parts, out.Drawn = append(images.Parts, p), append(out.Drawn, where(x.Key), places[0], made)
		} else {
			p := kernel.Part{Name: x.Key, Rule: raw.rule, Epilogue: raw.epilogue(c)}
			p.Src = kernel.Tensor{DType: c.out, Shape: []int{rows, raw.elems}}
			p.Out = kernel.Tensor{DType: raw.out, Shape: []int{rows, raw.elems}}
			if raw.pairs {
				p.Src.Shape[0] *= 2
			}
			if raw.plan {
				for i, to := range []**kernel.Tensor{&p.Kind, &p.Left, &p.Right, &p.Weight} {
					*to = &kernel.Tensor{DType: planned[i].dtype, Shape: []int{rows}}
				}
			}
			result = p.Out
			op.Parts, out.Places = append(op.Parts, p), append(append(out.Places, where(x.Key), made), places...)
		}
		out.Outputs = append(out.Outputs, Output{DType: raw.out, Shape: append([]int{n}, x.Shape...), Bytes: result.Len() * raw.out.Size()})
		out.Fields = append(out.Fields, made)
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
func (op *deviceOp) epilogue(c *column) kernel.Epilogue {
	plane := 0
	if op.unit {
		plane = c.image().plane(op.norm)
	}
	e := op.norm.epilogue(plane)
	e.Unit = op.unit
	return e
}

// plane is how many elements of a frame share one number of its statistics: a channel's, or all.
func (c *imageColumn) plane(norm *affine) int {
	if norm != nil && len(norm.A) == 1 {
		return c.elems
	}
	return c.height * c.width
}
