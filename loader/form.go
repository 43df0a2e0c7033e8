package loader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// form is what a batch holds: the union of what its sources give.
type form struct {
	fields  []Field
	tensors []tensorPlan
	texts   []textPlan
	index   int   // tensor of dataset_index; -1 where there is one source
	ragged  []int // tensors that hold what there is
}

type textPlan struct {
	key   string
	dtype robocache.DType
}

// datasetIndex is the key that says which source of a mixture a sample is of.
const datasetIndex = "dataset_index"

// newForm joins the layouts of the sources. A key that a source lacks is an error, or with pad zeros under a mask.
func newForm(sources []*source, pad bool) (*form, error) {
	f, err := joinForms(sources, pad)
	if err != nil {
		return nil, err
	}
	for i := range f.tensors {
		if f.tensors[i].ragged {
			f.ragged = append(f.ragged, i)
		}
	}
	if len(f.ragged) > 0 && sources[0].cfg.Raw {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": f.tensors[f.ragged[0]].key, "raw": true},
			Msg: "raw batches with rows of varying length", Hint: "batches that are finished on the host, or keys= without them"}
	}
	return f, nil
}

func joinForms(sources []*source, pad bool) (*form, error) {
	f := &form{index: -1}
	first := sources[0].layout
	if len(sources) == 1 {
		f.fields, f.tensors = first.fields, first.tensors
		for i := range first.tensors {
			sources[0].tensors = append(sources[0].tensors, i)
		}
		for i, c := range first.texts {
			f.texts = append(f.texts, textPlan{first.columns[c].key, first.columns[c].out})
			sources[0].texts = append(sources[0].texts, i)
		}
		return f, nil
	}
	if err := f.join(sources, pad); err != nil {
		return nil, err
	}
	for _, src := range sources {
		f.bind(src)
	}
	return f, nil
}

// join makes the fields: those of the sources in their order, dataset_index, the masks, and the task.
func (f *form) join(sources []*source, pad bool) error {
	lacks := map[string]bool{}
	owner := map[string]*source{}
	var task *Field
	var masks []Field
	for _, src := range sources {
		for i := range src.layout.fields {
			x := src.widen(src.layout.fields[i])
			switch {
			case x.Key == datasetIndex:
				return mixError(src, x.Key, "a key that the mixture adds itself", "rename={\""+datasetIndex+"\": …}")
			case owner[x.Key] != nil:
				if err := same(f.field(x.Key, masks, task), &x, owner[x.Key], src); err != nil {
					return err
				}
				continue
			}
			owner[x.Key] = src
			switch {
			case x.Key == "task" && x.Text():
				task = &x
			case x.Mask:
				masks = append(masks, x)
			default:
				f.fields = append(f.fields, x)
			}
		}
	}
	for _, src := range sources {
		for i := range f.fields {
			x := &f.fields[i]
			if src.layout.has(x.of()) {
				continue
			}
			if !pad {
				return mixError(src, x.Key, "a source has no such key", `keys= without it, rename={…}, or missing="pad" (zeros under `+x.Key+"_is_pad)")
			}
			lacks[x.Key] = true
		}
		if task != nil && !src.layout.has("task") && !pad {
			return mixError(src, "task", "a source has no tasks", `keys= without it, or missing="pad" ("")`)
		}
	}
	f.index = len(f.fields)
	f.fields = append(f.fields, Field{Key: datasetIndex, DType: robocache.Int64, Shape: []int{}, Kind: robocache.KindNumeric})
	for i := range f.fields {
		key := f.fields[i].Key
		has := slices.ContainsFunc(masks, func(m Field) bool { return m.Key == key+"_is_pad" })
		if lacks[key] && !has && !f.fields[i].Text() && !f.fields[i].Lengths && !f.fields[i].Times {
			masks = append(masks, Field{Key: key + "_is_pad", DType: robocache.Bool, Shape: []int{}, Kind: robocache.KindNumeric, Mask: true})
		}
	}
	dims, err := dimMasks(append(slices.Clone(f.fields), masks...), sources)
	if err != nil {
		return err
	}
	f.fields = append(append(f.fields, masks...), dims...)
	if task != nil {
		f.fields = append(f.fields, *task)
	}
	index := f.index
	for i := range f.fields {
		x := &f.fields[i]
		if x.Text() {
			f.texts = append(f.texts, textPlan{x.Key, x.DType})
			continue
		}
		if i == index {
			f.index = len(f.tensors)
		}
		n := x.DType.Size()
		for _, d := range x.Shape {
			n *= d
		}
		if x.Ragged {
			n = 0
		}
		f.tensors = append(f.tensors, tensorPlan{key: x.Key, dtype: x.DType, shape: x.Shape, bytes: n, column: -1, of: -1, ragged: x.Ragged})
	}
	f.rewire(sources[0].layout)
	return nil
}

// rewire takes over what is raw. A key is raw in all sources, or in none.
func (f *form) rewire(l *layout) {
	for i := range l.columns {
		c := &l.columns[i]
		if c.raw == nil {
			continue
		}
		at := slices.IndexFunc(f.tensors, func(t tensorPlan) bool { return t.key == c.key })
		f.tensors[at] = l.tensors[c.entry]
		if c.aug != nil {
			f.tensors = append(f.tensors, l.tensors[c.raw.draws])
		}
		if c.raw.plan != nil {
			for _, k := range c.raw.plan {
				f.tensors = append(f.tensors, l.tensors[k])
			}
		}
	}
}

func (f *form) field(key string, masks []Field, task *Field) *Field {
	for i := range f.fields {
		if f.fields[i].Key == key {
			return &f.fields[i]
		}
	}
	for i := range masks {
		if masks[i].Key == key {
			return &masks[i]
		}
	}
	return task
}

// of is the key that a field belongs to: a ragged tensor's lengths and times are that key's.
func (f *Field) of() string {
	switch {
	case f.Lengths:
		return strings.TrimSuffix(f.Key, lengthsSuffix)
	case f.Times:
		return strings.TrimSuffix(f.Key, timesSuffix)
	}
	return f.Key
}

// same refuses a key that means two things.
func same(have, x *Field, owner, src *source) error {
	if have.DType == x.DType && slices.Equal(have.Shape, x.Shape) {
		return nil
	}
	hint := "rename={…} or keys=[…] of one of them"
	if slices.Equal(have.Shape, x.Shape) && have.DType.Float() {
		hint = `align={"dtypes": {"` + x.Key + `": "` + have.DType.String() + `"}} of the second`
	}
	a, b := owner.layout.column(x.Key), src.layout.column(x.Key)
	if a != nil && b != nil && !slices.Equal(have.Shape, x.Shape) && a.widens() && b.widens() && a.elems != b.elems && a.steps == b.steps && a.axis == b.axis {
		hint = `rows of different widths: missing="pad" pads them to the widest, with ` + x.Key + dimsSuffix + "; or rename={…} or keys=[…] of one of them"
	} else if n := len(x.Shape); n > 0 && n == len(have.Shape) && x.Shape[0] != have.Shape[0] && slices.Equal(x.Shape[1:], have.Shape[1:]) {
		hint = "windows with offsets, or a span with a count, have one number of places in all"
	} else if x.Kind == robocache.KindVideo || x.Kind == robocache.KindImage {
		hint = "image_size=[h, w] brings all to one size; or rename={…}"
	}
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "mixture", Where: robocache.Where{"stream": x.Key, "dataset": src.name}, Msg: "two sources give this key in different forms",
		Want: fmt.Sprintf("%s %v as in %s", have.DType, have.Shape, owner.name), Got: fmt.Sprintf("%s %v", x.DType, x.Shape), Hint: hint}
}

func mixError(src *source, key, msg, hint string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "mixture", Where: robocache.Where{"stream": key, "dataset": src.name}, Msg: msg, Hint: hint}
}

// bind tells a source where its tensors and texts go, and what it leaves empty.
func (f *form) bind(src *source) {
	l := src.layout
	src.tensors = make([]int, len(l.tensors))
	for i := range f.tensors {
		t := &f.tensors[i]
		own := slices.IndexFunc(l.tensors, func(x tensorPlan) bool { return x.key == t.key })
		switch {
		case own >= 0:
			src.tensors[own] = i
		case i != f.index:
			src.absent = append(src.absent, i)
		}
	}
	for _, c := range l.texts {
		key := l.columns[c].key
		src.texts = append(src.texts, slices.IndexFunc(f.texts, func(x textPlan) bool { return x.key == key }))
	}
}
