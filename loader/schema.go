package loader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// schema is what a batch holds: the union of what its sources give.
type schema struct {
	fields  []Field
	tensors []tensorPlan
	texts   []textPlan
	index   int   // tensor of dataset_index; -1 where there is one source
	ragged  []int // tensors that hold what there is
}

type tensorPlan struct {
	key    string
	dtype  robocache.DType
	shape  []int // of a sample; of a ragged one -1 and the shape of an entry
	bytes  int   // a sample; 0 of a ragged one
	ragged bool
	there  bool // on the device that decodes
}

type textPlan struct {
	key   string
	dtype robocache.DType
}

func newTensor(key string, dtype robocache.DType, shape ...int) tensorPlan {
	t := tensorPlan{key: key, dtype: dtype, shape: shape, bytes: dtype.Size(), ragged: len(shape) > 0 && shape[0] == -1}
	for _, d := range shape {
		t.bytes *= d
	}
	if t.ragged {
		t.bytes = 0
	}
	return t
}

// datasetIndex is the key that says which source of a mixture a sample is of.
const datasetIndex = "dataset_index"

// add adds a field with its tensor or texts, and gives the place of that.
func (s *schema) add(x Field) int {
	if x.Shape == nil {
		x.Shape = []int{}
	}
	s.fields = append(s.fields, x)
	if x.Text() {
		s.texts = append(s.texts, textPlan{x.Key, x.DType})
		return len(s.texts) - 1
	}
	s.tensors = append(s.tensors, newTensor(x.Key, x.DType, x.Shape...))
	return len(s.tensors) - 1
}

// describe makes the source's schema of its columns, when all that decides about them is settled: the columns, the masks in the order of the options that
// name their keys, and the texts that are no features.
func (src *source) describe() {
	numeric := robocache.KindNumeric
	for _, c := range src.columns {
		if c.feature == nil {
			continue
		}
		x := Field{Key: c.key, DType: c.given(), Kind: c.feature.Kind, Unit: c.unit, Ragged: c.ragged(), Times: is[*timesColumn](c)}
		var entry []int
		switch f := c.feature; {
		case x.Text():
			x.Unit = ""
		case x.Times:
			x.Kind = numeric
		case c.image() != nil:
			entry = c.image().delivered()
		case is[*cloudColumn](c):
			entry = f.Shape[1:]
		case !f.Scalar():
			entry = f.Shape
		}
		axis := c.axis
		if src.cfg.Compat == "lerobot" && c.isVideo() && c.steps == 1 {
			axis = nil // the reference squeezes one-frame windows of video, and of nothing else
		}
		if x.Shape = slices.Concat(axis, entry); x.Ragged {
			x.Shape = append([]int{-1}, entry...)
		}
		c.entry = src.schema.add(x)
		if c.onDevice() {
			src.tensors[c.entry].there = true
		}
		if x.Ragged && !x.Times || c.image() != nil && c.span != nil && src.free(c.key+lengthsSuffix) {
			var shape []int
			if x.Ragged {
				shape = c.axis
			}
			c.count = src.schema.add(Field{Key: c.key + lengthsSuffix, DType: robocache.Int64, Shape: shape, Kind: numeric, Lengths: true})
		}
	}
	mask := func(c *column) {
		if c != nil && c.mask < 0 && !is[*spanColumn](c) && !is[*textColumn](c) {
			c.mask = src.schema.add(Field{Key: c.key + padSuffix, DType: robocache.Bool, Shape: c.axis, Kind: numeric, Mask: true})
		}
	}
	for _, d := range src.cfg.Deltas {
		mask(src.column(d.Key))
	}
	for _, x := range src.cfg.Indices {
		mask(src.column(x.Key))
	}
	for _, w := range src.cfg.Native {
		mask(src.column(w.Key))
	}
	for _, c := range src.columns {
		// Off the rows of the timebase every value has a mask, window or not; and so have rows that may hold none.
		if f := c.feature; f != nil && (c.time != nil || f.Masked) && !is[*timesColumn](c) {
			mask(c)
		}
	}
	for _, c := range src.columns {
		if c.feature == nil {
			c.entry = src.schema.add(Field{Key: c.key, DType: robocache.String, Kind: robocache.KindText})
		}
	}
	for _, c := range src.columns {
		if c.raw != nil {
			src.tensors[c.entry] = c.raw.tensor(c)
			c.raw.extra = len(src.tensors)
			src.tensors = append(src.tensors, c.raw.extras(c)...)
		}
	}
}

// newSchema joins the schemas of the sources. A key that a source lacks is an error, or with pad zeros under a mask.
func newSchema(sources []*source, pad bool) (*schema, error) {
	first := sources[0]
	s := &schema{index: -1}
	if len(sources) == 1 {
		*s = first.schema
		s.index = -1
	} else if err := joinSchemas(s, sources, pad); err != nil {
		return nil, err
	}
	for i, t := range s.tensors {
		if t.ragged {
			s.ragged = append(s.ragged, i)
		}
	}
	for _, src := range sources {
		bindSource(s, src, len(sources) == 1)
	}
	if len(s.ragged) > 0 && first.cfg.Raw {
		return nil, robocache.Unsupported("loader", robocache.Where{"stream": s.tensors[s.ragged[0]].key, "raw": true}, "raw batches with rows of varying length").
			WithHint("batches that are finished on the host, or %s without them", robocache.Option("keys"))
	}
	return s, nil
}

// joinSchemas makes the fields: those of the sources in their order, dataset_index, the masks, and the task.
func joinSchemas(s *schema, sources []*source, pad bool) error {
	owner, have := map[string]*source{}, map[string]*Field{}
	var fields, masks, dims, task []*Field
	for _, src := range sources {
		for _, x := range src.fields {
			x := src.widen(x)
			if x.Key == datasetIndex {
				return mixError(src, x.Key, "a key that the mixture adds itself", robocache.Option("rename", datasetIndex, "NAME"))
			}
			if owner[x.Key] != nil {
				if err := same(have[x.Key], &x, owner[x.Key], src); err != nil {
					return err
				}
				continue
			}
			owner[x.Key], have[x.Key] = src, &x
			switch {
			case x.Key == "task" && x.Text():
				task = append(task, &x)
			case x.Mask:
				masks = append(masks, &x)
			default:
				fields = append(fields, &x)
			}
		}
	}
	lacks := map[string]bool{}
	for _, src := range sources {
		for _, x := range fields {
			if src.column(x.of()) != nil {
				continue
			}
			if lacks[x.Key] = true; !pad {
				return mixError(src, x.Key, "a source has no such key", fmt.Sprintf("%s without it, %s, or %s (zeros under %s_is_pad)", robocache.Option("keys"), robocache.Option("rename"), robocache.Option("missing", "pad"), x.Key))
			}
		}
		if task != nil && src.column("task") == nil && !pad {
			return mixError(src, "task", "a source has no tasks", robocache.Option("keys")+" without it, or "+robocache.Option("missing", "pad")+` ("")`)
		}
	}
	fields = append(fields, &Field{Key: datasetIndex, DType: robocache.Int64, Kind: robocache.KindNumeric})
	mask := func(key string, shape ...int) *Field {
		return &Field{Key: key, DType: robocache.Bool, Shape: shape, Kind: robocache.KindNumeric, Mask: true}
	}
	for _, x := range fields {
		if lacks[x.Key] && have[x.Key+padSuffix] == nil && !x.Text() && !x.Lengths && !x.Times {
			masks = append(masks, mask(x.Key+padSuffix))
		}
	}
	for _, x := range slices.Concat(fields, masks) {
		i := slices.IndexFunc(sources, func(src *source) bool { return src.pads[x.Key] != nil })
		if i < 0 {
			continue
		}
		key := x.Key + dimsSuffix
		if have[key] != nil {
			return mixError(sources[i], key, "a key that the mixture adds itself", robocache.Option("rename", key, "NAME"))
		}
		dims = append(dims, mask(key, sources[i].pads[x.Key].width))
	}
	for _, x := range slices.Concat(fields, masks, dims, task) {
		if at := s.add(*x); x.Key == datasetIndex {
			s.index = at
		}
	}
	// A key is raw in all sources, or in none.
	first := sources[0]
	for _, c := range first.columns {
		if c.onDevice() {
			s.tensors[s.tensor(c.key)].there = true
		}
		if c.raw != nil {
			s.tensors[s.tensor(c.key)] = first.tensors[c.entry]
			s.tensors = append(s.tensors, first.tensors[c.raw.extra:][:len(c.raw.extras(c))]...)
		}
	}
	return nil
}

// tensor is the place of a key's tensor; -1 where it has none.
func (s *schema) tensor(key string) int {
	return slices.IndexFunc(s.tensors, func(t tensorPlan) bool { return t.key == key })
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
	either := fmt.Sprintf("%s or %s of source %d or %d", robocache.Option("rename"), robocache.Option("keys"), owner.index, src.index)
	hint := either
	if slices.Equal(have.Shape, x.Shape) && have.DType.Float() {
		hint = robocache.Option("align", "dtypes", x.Key, have.DType.String()) + fmt.Sprintf(" of source %d", src.index)
	}
	a, b := owner.column(x.Key), src.column(x.Key)
	if a != nil && b != nil && !slices.Equal(have.Shape, x.Shape) && a.widens() && b.widens() && a.elems != b.elems && slices.Equal(a.axis, b.axis) {
		hint = "rows of different widths: " + robocache.Option("missing", "pad") + " pads them to the widest, with " + x.Key + dimsSuffix + "; or " + either
	} else if n := len(x.Shape); n > 0 && n == len(have.Shape) && x.Shape[0] != have.Shape[0] && slices.Equal(x.Shape[1:], have.Shape[1:]) {
		hint = "windows with offsets, or a span with a count, have one number of places in all"
	} else if x.Kind == robocache.KindVideo || x.Kind == robocache.KindImage {
		hint = robocache.Option("image_size") + " brings all to one size; or " + robocache.Option("rename")
	}
	return src.withPlace(robocache.Misuse("mixture", robocache.Where{"stream": x.Key}, "two sources give this key in different forms").
		Expected(fmt.Sprintf("%s %v as in %s", have.DType, have.Shape, owner.place), fmt.Sprintf("%s %v", x.DType, x.Shape)).
		WithHint("%s", hint))
}

func mixError(src *source, key, msg, hint string) error {
	return src.withPlace(robocache.Misuse("mixture", robocache.Where{"stream": key}, "%s", msg).
		WithHint("%s", hint))
}

// bindSource tells a source where its tensors and texts go, and what it leaves empty. Alone, a source has the batch's.
func bindSource(s *schema, src *source, alone bool) {
	src.whole = s
	own := map[string]bool{}
	for i, t := range src.tensors {
		own[t.key] = true
		if !alone {
			i = s.tensor(t.key)
		}
		src.slots = append(src.slots, i)
	}
	for i, t := range s.tensors {
		if !own[t.key] && i != s.index {
			src.absent = append(src.absent, i)
		}
	}
	for i, t := range src.schema.texts {
		if !alone {
			i = slices.Index(s.texts, t)
		}
		src.texts = append(src.texts, i)
	}
}

// dimsSuffix ends the key of the mask that says which numbers of a row are padding.
const dimsSuffix = "_dim_is_pad"

// padded is a numeric key whose rows are widened to those of a mixture's widest source. It is the key's in one source.
type padded struct {
	width int   // of the batch's rows
	dims  []int // where the source's own numbers stand
	mask  []byte
}

// widths finds the keys whose rows sources of a mixture give in different widths, and says where each source's numbers go: its own are
// the leading ones, or stand where Mix.Dims says. Values are normalised before they are widened; what is added is 0.
func widths(sources []*source, mix []Mix, pad bool) error {
	for i, src := range sources {
		if err := src.checkDims(&mix[i], len(sources), pad); err != nil {
			return err
		}
	}
	if !pad || len(sources) == 1 {
		return nil
	}
	type key struct {
		widths []int // of its sources
		other  bool  // some source gives it in another form: newSchema says so
		chosen bool
	}
	keys := map[string]*key{}
	for i, src := range sources {
		for _, c := range src.columns {
			k := keys[c.key]
			if k == nil {
				k = &key{}
				keys[c.key] = k
			}
			dims, chosen := mix[i].Dims[c.key]
			k.widths, k.other, k.chosen = append(k.widths, c.elems), k.other || !c.widens(), k.chosen || chosen
			if chosen {
				k.widths = append(k.widths, slices.Max(dims)+1)
			}
		}
	}
	for i, src := range sources {
		for _, c := range src.columns {
			k := keys[c.key]
			width := slices.Max(k.widths)
			if k.other || width == slices.Min(k.widths) && !k.chosen {
				continue
			}
			p := &padded{width: width, dims: mix[i].Dims[c.key], mask: slices.Repeat([]byte{1}, width)}
			if p.dims == nil {
				for k := range c.elems {
					p.dims = append(p.dims, k)
				}
			}
			for _, k := range p.dims {
				p.mask[k] = 0
			}
			src.pads[c.key] = p
		}
	}
	return nil
}

// widens says whether a column's rows are a list of numbers that may be widened.
func (c *column) widens() bool { return c.table() != nil && len(c.feature.Shape) <= 1 && c.elems > 0 }

// maxWidth bounds what dims may ask for.
const maxWidth = 1 << 16

// checkDims refuses places of numbers that there are not.
func (src *source) checkDims(m *Mix, sources int, pad bool) error {
	for _, key := range options.Keys(m.Dims) {
		dims := m.Dims[key]
		bad := func(msg, want, got, hint string) error {
			return src.withPlace(robocache.Misuse("mixture", robocache.Where{"stream": key}, "dims: %s", msg).
				Expected(want, got).WithHint("%s", hint))
		}
		sorted := slices.Sorted(slices.Values(dims))
		c := src.column(key)
		switch {
		case sources == 1:
			return bad("there is one source: nothing is padded", "", "", "give the loader several sources")
		case !pad:
			return bad("rows are padded where that is asked for", "", "", robocache.Option("missing", "pad"))
		case c == nil:
			return bad("the source gives no such key", "", "", robocache.Nearest(key, src.keys()))
		case !c.widens():
			return bad("its rows are no list of numbers", "a numeric stream of one dimension", fmt.Sprint(c.feature.Shape), "")
		case len(dims) != c.elems:
			return bad("a place for each number of a row", fmt.Sprintf("%d places", c.elems), fmt.Sprint(len(dims)), "")
		case sorted[0] < 0 || sorted[len(sorted)-1] >= maxWidth || len(slices.Compact(sorted)) < len(dims):
			return bad("places of the padded row", fmt.Sprintf("each once, 0 to %d", maxWidth-1), fmt.Sprint(dims), "")
		}
	}
	return nil
}

// widen is a field as wide as its padded rows.
func (src *source) widen(x Field) Field {
	p := src.pads[x.Key]
	if p == nil {
		return x
	}
	x.Shape = slices.Clone(x.Shape)
	if src.column(x.Key).feature.Scalar() {
		x.Shape = append(x.Shape, 0)
	}
	x.Shape[len(x.Shape)-1] = p.width
	return x
}

// place writes rows of a source into the padded rows of a batch.
func (p *padded) place(dst, src []byte, size int) {
	clear(dst)
	own := len(p.dims) * size
	for ; len(src) > 0; src, dst = src[own:], dst[p.width*size:] {
		for k, d := range p.dims {
			copy(dst[d*size:(d+1)*size], src[k*size:])
		}
	}
}

// clear writes what a source has nothing for: zeros, and masks that say so. A mask of a key that the source does have says that it is there.
func (p *part) clear() {
	s := p.src.whole
	for _, i := range p.src.absent {
		t, data := &s.tensors[i], p.u.batch.Tensors[i].Data
		row := make([]byte, t.bytes)
		mask := slices.ContainsFunc(s.fields, func(x Field) bool { return x.Mask && x.Key == t.key })
		dims, isDims := strings.CutSuffix(t.key, dimsSuffix)
		switch pad := p.src.pads[dims]; {
		case !mask:
		case isDims && pad != nil:
			copy(row, pad.mask)
		case isDims || p.src.column(strings.TrimSuffix(t.key, padSuffix)) == nil:
			row = slices.Repeat([]byte{1}, t.bytes)
		}
		for _, slot := range p.slots {
			copy(data[int(slot)*t.bytes:], row)
		}
	}
}
