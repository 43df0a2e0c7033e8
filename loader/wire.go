package loader

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/video"
)

// wired says what is left to do of a column whose batches are raw: its tensor holds what was stored, and a device makes of it what the
// field promises, for all columns in one launch (Finish).
type wired struct {
	out   robocache.DType // of the field
	elems int             // of a row of the field
	norm  *affine
	unit  bool // frames: x/255
	rule  kernel.Rule
	pairs bool    // rows come as the two samples that they lie between
	draws int     // of augmented frames: the tensor of what was drawn for each
	plan  *[4]int // tensors of the layout: kind, left, right and weight of each row; nil: all rows are copied
}

// The tensors of a plan: kernel.Plan's arrays.
var planned = [4]struct {
	name  string
	dtype robocache.DType
}{{"kind", robocache.Uint8}, {"left", robocache.Int32}, {"right", robocache.Int32}, {"weight", robocache.Float64}}

// wire makes columns raw, where that is asked and where it means the same in every source that a batch is made of.
func wire(sources []*source) {
	if !sources[0].cfg.Raw {
		return
	}
	first := sources[0].layout
	for i := range first.columns {
		key := first.columns[i].key
		cols := make([]*column, len(sources))
		var plan *wired
		for k, src := range sources {
			c := src.layout.column(key)
			if c == nil || src.pads[key] != nil {
				plan = nil
				break
			}
			own := c.wire()
			if own == nil || k > 0 && !plan.same(own, cols[0], c) {
				plan = nil
				break
			}
			cols[k], plan = c, own
		}
		if plan == nil {
			continue
		}
		for k, src := range sources {
			own := *plan
			own.norm = cols[k].normal()
			src.layout.rewire(cols[k], &own)
		}
	}
}

// wire says how a column can be raw; nil where it cannot, or where nothing would be left to do.
func (c *column) wire() *wired {
	w := &wired{out: c.out, elems: c.elems, norm: c.norm}
	switch {
	case c.elems == 0 || c.mirror != nil || c.noise > 0:
		return nil
	case c.aug != nil:
		w.norm = c.aug.norm
		return w
	case c.source == fromVideo || c.source == fromStills:
		w.unit = true
		if c.spec.Pixel != video.RGBFloat32 {
			return nil
		}
		return w
	case c.source != fromTable || !c.stored.Float() || !c.out.Float():
		return nil
	case c.aligns == nil:
		if c.norm == nil && c.stored == c.out {
			return nil
		}
		return w
	}
	// Windows of mean have any number of samples, and slerp says of its values whether they are valid: the host does both.
	mode := c.aligns.opt.Mode
	if mode == kernel.Mean || mode == kernel.Slerp || !mode.Computes() && c.norm == nil && c.stored == c.out {
		return nil
	}
	w.pairs = true
	w.rule = c.aligns.rule
	return w
}

// same says whether two sources' columns may share a launch: one normalisation and one rule for all rows.
func (w *wired) same(o *wired, c, d *column) bool {
	norms := w.norm == nil && o.norm == nil
	if w.norm != nil && o.norm != nil {
		norms = w.norm.clip == o.norm.clip && w.norm.Kind == o.norm.Kind && slices.Equal(w.norm.A, o.norm.A) && slices.Equal(w.norm.B, o.norm.B)
	}
	if (c.aug == nil) != (d.aug == nil) || c.aug != nil && (c.width != d.width || c.height != d.height) {
		return false
	}
	return norms && w.out == o.out && w.elems == o.elems && w.unit == o.unit && w.pairs == o.pairs && w.rule.Mode == o.rule.Mode && w.rule.Period == o.rule.Period && c.stored == d.stored && (c.aligns == nil) == (d.aligns == nil)
}

func (l *layout) column(key string) *column {
	for i := range l.columns {
		if l.columns[i].key == key {
			return &l.columns[i]
		}
	}
	return nil
}

// rewire makes a column's tensor raw. The fields stay what the user gets.
func (l *layout) rewire(c *column, w *wired) {
	c.raw, c.norm = w, nil
	t := &l.tensors[c.entry]
	t.shape = slices.Clone(t.shape) // no more shared with the field
	if c.aug != nil {
		n := len(t.shape)
		t.shape[n-2], t.shape[n-1], c.out = c.height, c.width, robocache.Uint8
		c.outBytes = c.frameSize()
		t.dtype, t.bytes = c.out, c.steps*c.outBytes
		w.draws = len(l.tensors)
		l.tensors = append(l.tensors, tensorPlan{key: c.key + "\x00draws", dtype: robocache.Int32, shape: []int{c.steps, kernel.ImageDrawWords}, bytes: 4 * c.steps * kernel.ImageDrawWords, column: -1, of: -1})
		return
	}
	if w.unit {
		c.spec.Pixel, c.out = video.RGB8, robocache.Uint8
	} else {
		c.out = c.stored
	}
	c.outBytes = c.elems * c.out.Size()
	t.dtype, t.bytes = c.out, c.steps*c.outBytes
	if w.pairs {
		t.shape, t.bytes = []int{c.steps, 2, c.elems}, 2*t.bytes
	}
	if c.aligns == nil {
		return
	}
	w.plan = new([4]int)
	for i, x := range planned {
		w.plan[i] = len(l.tensors)
		l.tensors = append(l.tensors, tensorPlan{key: c.key + "\x00" + x.name, dtype: x.dtype, shape: []int{c.steps}, bytes: c.steps * x.dtype.Size(), column: -1, of: -1})
	}
}

// normal is a column's normalisation, whoever does it.
func (c *column) normal() *affine {
	switch {
	case c.raw != nil:
		return c.raw.norm
	case c.aug != nil:
		return c.aug.norm
	}
	return c.norm
}

// drawRows draws for the frames of a raw column.
func (p *part) drawRows(c *column) {
	draws := p.data(c.raw.draws)
	for k := range p.size() * c.steps {
		d := p.draw(c, k)
		at := 4 * kernel.ImageDrawWords * (p.slot(k/c.steps)*c.steps + k%c.steps)
		d.Append(draws[at:at])
	}
}

// planRows writes the plan of a raw column of frames: each is there, until absent says that it is not.
func (p *part) planRows(c *column) {
	kinds, left, right, weights := p.data(c.raw.plan[0]), view[int32](p.data(c.raw.plan[1])), view[int32](p.data(c.raw.plan[2])), view[float64](p.data(c.raw.plan[3]))
	for i := range p.size() {
		for at := p.slot(i) * c.steps; at < (p.slot(i)+1)*c.steps; at++ {
			kinds[at], left[at], right[at], weights[at] = byte(kernel.Copy), int32(at), int32(at), 0
		}
	}
}

// absent says of the k-th frame of a raw column that it is not there.
func (p *part) absent(c *column, k int) {
	if c.raw != nil && c.aug != nil {
		at := 4 * kernel.ImageDrawWords * (p.slot(k/c.steps)*c.steps + k%c.steps)
		d := kernel.ImageDraw{Blank: 1}
		d.Append(p.data(c.raw.draws)[at:at])
		return
	}
	if c.raw != nil && c.raw.plan != nil {
		p.data(c.raw.plan[0])[p.slot(k/c.steps)*c.steps+k%c.steps] = byte(kernel.Zero)
	}
}

// pair writes the raw rows of an aligned column: for each the two samples that it lies between, and its plan.
func (p *part) pair(c *column, plan *kernel.Plan, src []byte) {
	dst := p.data(c.entry)
	kinds, left, right, weights := p.data(c.raw.plan[0]), view[int32](p.data(c.raw.plan[1])), view[int32](p.data(c.raw.plan[2])), view[float64](p.data(c.raw.plan[3]))
	size := c.rowBytes
	for i, k := range plan.Kind {
		at := p.slot(i/c.steps)*c.steps + i%c.steps
		kinds[at], left[at], right[at], weights[at] = byte(k), int32(2*at), int32(2*at+1), plan.Weight[i]
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
