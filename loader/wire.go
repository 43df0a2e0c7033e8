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
	out    robocache.DType // of the field
	elems  int             // of a row of the field
	norm   *affine
	unit   bool // pictures: x/255
	rule   kernel.Rule
	pairs  bool // rows come as the two samples that they lie between
	kind   int  // tensor of the layout: kernel.Kind a row; -1: all rows are copied
	weight int  // tensor of the layout, under pairs: where between its samples a row lies
}

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
			if c == nil {
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
			own.norm = cols[k].norm
			src.layout.rewire(cols[k], &own)
		}
	}
}

// wire says how a column can be raw; nil where it cannot, or where nothing would be left to do.
func (c *column) wire() *wired {
	w := &wired{out: c.out, elems: c.elems, norm: c.norm, kind: -1, weight: -1}
	switch {
	case c.elems == 0:
		return nil
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
	w.rule = kernel.Rule{Mode: mode, Period: c.aligns.values.Period} // a loader has no Lo
	return w
}

// same says whether two sources' columns may share a launch: one normalisation and one rule for all rows.
func (w *wired) same(o *wired, c, d *column) bool {
	norms := w.norm == nil && o.norm == nil
	if w.norm != nil && o.norm != nil {
		norms = w.norm.clip == o.norm.clip && w.norm.Kind == o.norm.Kind && slices.Equal(w.norm.A, o.norm.A) && slices.Equal(w.norm.B, o.norm.B)
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
	if w.unit {
		c.spec.Pixel, c.out = video.RGB8, robocache.Uint8
	} else {
		c.out = c.stored
	}
	c.outBytes = c.elems * c.out.Size()
	t.dtype, t.bytes = c.out, c.steps*c.outBytes
	extra := func(what string, d robocache.DType) int {
		l.tensors = append(l.tensors, tensorPlan{key: c.key + "\x00" + what, dtype: d, shape: []int{c.steps}, bytes: c.steps * d.Size(), column: -1, of: -1})
		return len(l.tensors) - 1
	}
	if w.pairs {
		t.shape, t.bytes = []int{c.steps, 2, c.elems}, 2*t.bytes
		w.weight = extra("weight", robocache.Float64)
	}
	if c.aligns != nil {
		w.kind = extra("kind", robocache.Uint8)
	}
}

// normal is a column's normalisation, whoever does it.
func (c *column) normal() *affine {
	if c.raw != nil {
		return c.raw.norm
	}
	return c.norm
}

// kinds says of all pictures of a raw column that they are there; those that are not are told by blank.
func (p *part) kinds(c *column) {
	all := p.data(c.raw.kind)
	for i := range p.size() {
		at := p.slot(i) * c.steps
		for k := range c.steps {
			all[at+k] = byte(kernel.Copy)
		}
	}
}

// absent says of the k-th picture of a raw column that it is not there.
func (p *part) absent(c *column, k int) {
	if c.raw == nil || c.raw.kind < 0 {
		return
	}
	p.data(c.raw.kind)[p.slot(k/c.steps)*c.steps+k%c.steps] = byte(kernel.Zero)
}

// pair writes the raw rows of an aligned column: for each the two samples that it lies between, its kind and its weight.
func (p *part) pair(c *column, plan *kernel.Plan, src []byte) {
	dst, done := p.rowsInto(c.entry)
	defer done()
	kinds, kindsDone := p.rowsInto(c.raw.kind)
	defer kindsDone()
	weights, weightsDone := p.rowsInto(c.raw.weight)
	defer weightsDone()
	size := c.rowBytes
	for i, k := range plan.Kind {
		two := dst[2*i*size : 2*(i+1)*size]
		kinds[i] = byte(k)
		view[float64](weights)[i] = plan.Weight[i]
		switch k {
		case kernel.Copy:
			copy(two, src[int(plan.Left[i])*size:][:size])
			clear(two[size:])
		case kernel.Blend:
			copy(two, src[int(plan.Left[i])*size:][:size])
			copy(two[size:], src[int(plan.Right[i])*size:][:size])
		default:
			clear(two)
		}
	}
}
