package plan

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// describeSchema builds the source's schema from its columns, which must be complete. The order of
// the fields is: streams, masks in the order of the options that name their keys, and texts that are
// no streams.
func (src *Source) describeSchema() {
	numeric := robocache.KindNumeric
	for _, c := range src.Columns {
		if c.Feature == nil {
			continue
		}
		x := layout.Field{
			Key:    c.Key,
			DType:  c.DeliveredDType(),
			Kind:   c.Feature.Kind,
			Unit:   c.Unit,
			Ragged: c.IsRagged(),
			Times:  column.Is[*column.TimesColumn](c),
		}
		var entry []int
		switch f := c.Feature; {
		case x.Text():
			x.Unit = ""
		case x.Times:
			x.Kind = numeric
		case c.Image() != nil:
			entry = c.Image().DeliveredShape()
		case c.IsComputed() && !column.Is[*column.GeneratedColumn](c):
			entry = f.Shape
		case column.Is[*column.CloudColumn](c):
			entry = f.Shape[1:]
		case !f.Scalar():
			entry = f.Shape
		}
		axis := c.Axis
		if src.Config.Compat == "lerobot" && c.IsVideo() && c.Steps == 1 {
			axis = nil // as the reference does: windows of one video frame have no axis
		}
		if x.Shape = slices.Concat(axis, entry); x.Ragged {
			x.Shape = append([]int{-1}, entry...)
		}
		c.Entry = src.Schema.Add(x)
		if c.IsOnDevice() {
			src.Tensors[c.Entry].IsOnDevice = true
		}
		if x.Ragged && !x.Times ||
			c.Image() != nil && c.Span != nil && !src.isKnownKey(c.Key+layout.LengthsSuffix) {
			var shape []int
			if x.Ragged {
				shape = c.Axis
			}
			c.LengthsEntry = src.Schema.Add(
				layout.Field{
					Key:     c.Key + layout.LengthsSuffix,
					DType:   robocache.Int64,
					Shape:   shape,
					Kind:    numeric,
					Lengths: true,
				},
			)
		}
	}
	addMask := func(c *column.Column) {
		if c != nil && c.MaskEntry < 0 && !column.Is[*column.SpanColumn](c) &&
			!column.Is[*column.TextColumn](c) {
			c.MaskEntry = src.Schema.Add(
				layout.Field{
					Key:   c.Key + layout.PadSuffix,
					DType: robocache.Bool,
					Shape: c.Axis,
					Kind:  numeric,
					Mask:  true,
				},
			)
		}
	}
	for _, d := range src.Config.Deltas {
		addMask(src.Column(d.Key))
	}
	for _, x := range src.Config.Indices {
		addMask(src.Column(x.Key))
	}
	for _, w := range src.Config.Native {
		addMask(src.Column(w.Key))
	}
	for _, c := range src.Columns {
		if column.Is[*column.VectorColumn](c) && c.Axis != nil {
			addMask(c)
		}
		// Even without a window, values that are not on rows of the timebase have a mask, and so do
		// rows that may hold no value.
		isMasked := slices.ContainsFunc(c.Alternatives(), func(c *column.Column) bool {
			return c.Feature != nil && (c.Time != nil || c.Feature.Masked)
		})
		if isMasked && !column.Is[*column.TimesColumn](c) {
			addMask(c)
		}
	}
	for _, c := range src.Columns {
		if c.Feature == nil {
			c.Entry = src.Schema.Add(
				layout.Field{Key: c.Key, DType: robocache.String, Kind: robocache.KindText},
			)
		}
	}
	for _, c := range src.Columns {
		if c.Deferred != nil {
			src.Tensors[c.Entry] = c.Deferred.RawTensor(c)
			c.Deferred.FirstExtra = len(src.Tensors)
			src.Tensors = append(src.Tensors, c.Deferred.ExtraTensors(c)...)
		}
		c.ShareOutputs()
	}
}

// newSchema joins the schemas of the sources. A key that a source lacks is an error, or with pad
// zeros under a mask.
func newSchema(sources []*Source, pad bool) (*layout.Schema, error) {
	first := sources[0]
	s := &layout.Schema{DatasetIndexTensor: -1}
	if len(sources) == 1 {
		*s = first.Schema
		s.DatasetIndexTensor = -1
	} else if err := joinSchemas(s, sources, pad); err != nil {
		return nil, err
	}
	for i, t := range s.Tensors {
		if t.IsRagged {
			s.Ragged = append(s.Ragged, i)
		}
	}
	for _, src := range sources {
		bindSource(s, src, len(sources) == 1)
	}
	if len(s.Ragged) > 0 && first.Config.Raw {
		return nil, robocache.Unsupported("loader",
			robocache.Where{"stream": s.Tensors[s.Ragged[0]].Key, "raw": true},
			"raw batches with rows of varying length").
			WithHint(
				"batches that are finished on the host, or %s without them",
				robocache.Option("keys"),
			)
	}
	return s, nil
}

// joinSchemas adds the fields of the sources in their order, dataset_index, the masks, and the
// task.
func joinSchemas(s *layout.Schema, sources []*Source, pad bool) error {
	owner, have := map[string]*Source{}, map[string]*layout.Field{}
	var fields, masks, dims, task []*layout.Field
	for _, src := range sources {
		for _, x := range src.Fields {
			x := src.widenField(x)
			if x.Key == layout.DatasetIndex {
				return mixError(
					src,
					x.Key,
					"a key that the mixture adds itself",
					robocache.Option("rename", layout.DatasetIndex, "NAME"),
				)
			}
			if owner[x.Key] != nil {
				if err := checkSameField(have[x.Key], &x, owner[x.Key], src); err != nil {
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
			if src.Column(x.BaseKey()) != nil {
				continue
			}
			lacks[x.Key] = true
			if !pad {
				return mixError(
					src,
					x.Key,
					"a source has no such key",
					fmt.Sprintf(
						"%s without it, %s, or %s (zeros under %s_is_pad)",
						robocache.Option("keys"),
						robocache.Option("rename"),
						robocache.Option("missing", "pad"),
						x.Key,
					),
				)
			}
		}
		if task != nil && src.Column("task") == nil && !pad {
			return mixError(src, "task", "a source has no tasks", robocache.Option("keys")+
				" without it, or "+robocache.Option("missing", "pad")+` ("")`)
		}
	}
	fields = append(
		fields,
		&layout.Field{
			Key:   layout.DatasetIndex,
			DType: robocache.Int64,
			Kind:  robocache.KindNumeric,
		},
	)
	mask := func(key string, shape ...int) *layout.Field {
		return &layout.Field{
			Key:   key,
			DType: robocache.Bool,
			Shape: shape,
			Kind:  robocache.KindNumeric,
			Mask:  true,
		}
	}
	for _, x := range fields {
		if lacks[x.Key] && have[x.Key+layout.PadSuffix] == nil && !x.Text() && !x.Lengths &&
			!x.Times {
			masks = append(masks, mask(x.Key+layout.PadSuffix))
		}
	}
	for _, x := range slices.Concat(fields, masks) {
		i := slices.IndexFunc(
			sources,
			func(src *Source) bool { return src.PaddedRows[x.Key] != nil },
		)
		if i < 0 {
			continue
		}
		key := x.Key + layout.DimsSuffix
		if have[key] != nil {
			return mixError(
				sources[i],
				key,
				"a key that the mixture adds itself",
				robocache.Option("rename", key, "NAME"),
			)
		}
		dims = append(dims, mask(key, sources[i].PaddedRows[x.Key].Width))
	}
	for _, x := range slices.Concat(fields, masks, dims, task) {
		if at := s.Add(*x); x.Key == layout.DatasetIndex {
			s.DatasetIndexTensor = at
		}
	}
	// A key is raw in all sources or in none.
	first := sources[0]
	for _, c := range first.Columns {
		if c.IsOnDevice() {
			s.Tensors[s.TensorIndex(c.Key)].IsOnDevice = true
		}
		if c.Deferred != nil {
			s.Tensors[s.TensorIndex(c.Key)] = first.Tensors[c.Entry]
			s.Tensors = append(
				s.Tensors,
				first.Tensors[c.Deferred.FirstExtra:][:len(c.Deferred.ExtraTensors(c))]...)
		}
	}
	return nil
}

// checkSameField rejects field x of a source if it differs from the field have, which another source
// gave the batch under that key.
func checkSameField(have, x *layout.Field, owner, src *Source) error {
	if have.DType == x.DType && slices.Equal(have.Shape, x.Shape) {
		return nil
	}
	either := fmt.Sprintf(
		"%s or %s of source %d or %d",
		robocache.Option("rename"),
		robocache.Option("keys"),
		owner.Index,
		src.Index,
	)
	hint := either
	if slices.Equal(have.Shape, x.Shape) && have.DType.Float() {
		hint = robocache.Option("align", "dtypes", x.Key, have.DType.String()) +
			fmt.Sprintf(" of source %d", src.Index)
	}
	if canPad(owner.Column(x.Key), src.Column(x.Key)) && !slices.Equal(have.Shape, x.Shape) {
		hint = "rows of different widths: " + robocache.Option("missing", "pad") +
			" pads them to the widest, with " + x.Key + layout.DimsSuffix + "; or " + either
	} else if n := len(x.Shape); n > 0 && n == len(have.Shape) && x.Shape[0] != have.Shape[0] &&
		slices.Equal(x.Shape[1:], have.Shape[1:]) {
		hint = "windows with offsets, or a span with a count, have one number of places in all"
	} else if x.Kind == robocache.KindVideo ||
		x.Kind == robocache.KindImage {
		hint = robocache.Option("image_size") + " brings all to one size; or " +
			robocache.Option("rename")
	}
	return src.WithPlace(
		robocache.Misuse("mixture", robocache.Where{"stream": x.Key},
			"two sources give this key in different forms").
			Expected(fmt.Sprintf("%s %v as in %s", have.DType, have.Shape, owner.Place),
				fmt.Sprintf("%s %v", x.DType, x.Shape)).
			WithHint("%s", hint),
	)
}

// canPad reports whether the rows of two columns differ only in their width, which missing=pad can
// make equal. A column is nil if its source has none for the field.
func canPad(a, b *column.Column) bool {
	return a != nil && b != nil && a.CanWiden() && b.CanWiden() && a.Elements != b.Elements &&
		slices.Equal(a.Axis, b.Axis)
}

// mixError returns the error of a key that does not fit into a mixture.
func mixError(src *Source, key, msg, hint string) error {
	return src.WithPlace(robocache.Misuse("mixture", robocache.Where{"stream": key}, "%s", msg).
		WithHint("%s", hint))
}

// bindSource maps the tensors and texts of a source to those of the batch, and lists the tensors
// that the source lacks. With alone, both have the same numbers.
func bindSource(s *layout.Schema, src *Source, alone bool) {
	src.BatchSchema = s
	own := map[string]bool{}
	for i, t := range src.Tensors {
		own[t.Key] = true
		if !alone {
			i = s.TensorIndex(t.Key)
		}
		src.TensorSlots = append(src.TensorSlots, i)
	}
	for i, t := range s.Tensors {
		if !own[t.Key] && i != s.DatasetIndexTensor {
			src.AbsentTensors = append(src.AbsentTensors, i)
		}
	}
	for i, t := range src.Schema.Texts {
		if !alone {
			i = slices.Index(s.Texts, t)
		}
		src.TextSlots = append(src.TextSlots, i)
	}
}

// widenRows finds the keys whose rows differ in width between the sources of a mixture. For each
// source, it sets the positions of the source's numbers in the widest row: those of Mix.Dims, or
// else the first ones. Values are normalized before they are widened, and padded numbers are 0.
func widenRows(sources []*Source, mix []options.Mix, pad bool) error {
	for i, src := range sources {
		if err := src.checkDims(&mix[i], len(sources), pad); err != nil {
			return err
		}
	}
	if !pad || len(sources) == 1 {
		return nil
	}
	type key struct {
		widths []int // numbers of a row in each source, and widths that Mix.Dims needs
		// a source has rows that cannot be widened; newSchema reports it if shapes differ
		isFixed  bool
		isChosen bool // Mix.Dims of a source names the key
	}
	keys := map[string]*key{}
	for i, src := range sources {
		for _, c := range src.Columns {
			k := keys[c.Key]
			if k == nil {
				k = &key{}
				keys[c.Key] = k
			}
			dims, isChosen := mix[i].Dims[c.Key]
			k.widths = append(k.widths, c.Elements)
			k.isFixed = k.isFixed || !c.CanWiden()
			k.isChosen = k.isChosen || isChosen
			if isChosen {
				k.widths = append(k.widths, slices.Max(dims)+1)
			}
		}
	}
	for i, src := range sources {
		for _, c := range src.Columns {
			k := keys[c.Key]
			width := slices.Max(k.widths)
			if k.isFixed || width == slices.Min(k.widths) && !k.isChosen {
				continue
			}
			p := &layout.PaddedRow{
				Width:  width,
				Places: mix[i].Dims[c.Key],
				Mask:   slices.Repeat([]byte{1}, width),
			}
			if p.Places == nil {
				for element := range c.Elements {
					p.Places = append(p.Places, element)
				}
			}
			for _, place := range p.Places {
				p.Mask[place] = 0
			}
			src.PaddedRows[c.Key] = p
		}
	}
	return nil
}

// maxWidth bounds the width that dims may request.
const maxWidth = 1 << 16

// checkDims rejects invalid positions of numbers.
func (src *Source) checkDims(m *options.Mix, sources int, pad bool) error {
	for _, key := range options.Keys(m.Dims) {
		dims := m.Dims[key]
		bad := func(msg, want, got, hint string) error {
			return src.WithPlace(
				robocache.Misuse("mixture", robocache.Where{"stream": key}, "dims: %s", msg).
					Expected(want, got).WithHint("%s", hint),
			)
		}
		sorted := slices.Sorted(slices.Values(dims))
		c := src.Column(key)
		switch {
		case sources == 1:
			return bad(
				"there is one source: nothing is padded",
				"",
				"",
				"give the loader several sources",
			)
		case !pad:
			return bad(
				"rows are padded where that is asked for",
				"",
				"",
				robocache.Option("missing", "pad"),
			)
		case c == nil:
			nearest := robocache.Nearest(key, src.columnKeys())
			return bad("the source gives no such key", "", "", nearest)
		case !c.CanWiden():
			return bad(
				"its rows are no list of numbers",
				"a numeric stream of one dimension",
				fmt.Sprint(c.Feature.Shape),
				"",
			)
		case len(dims) != c.Elements:
			return bad(
				"a place for each number of a row",
				fmt.Sprintf("%d places", c.Elements),
				fmt.Sprint(len(dims)),
				"",
			)
		case sorted[0] < 0 || sorted[len(sorted)-1] >= maxWidth ||
			len(slices.Compact(sorted)) < len(dims):
			return bad(
				"places of the padded row",
				fmt.Sprintf("each once, 0 to %d", maxWidth-1),
				fmt.Sprint(dims),
				"",
			)
		}
	}
	return nil
}

// widenField returns a field with the width of its padded rows.
func (src *Source) widenField(x layout.Field) layout.Field {
	p := src.PaddedRows[x.Key]
	if p == nil {
		return x
	}
	x.Shape = slices.Clone(x.Shape)
	if src.Column(x.Key).Feature.Scalar() {
		x.Shape = append(x.Shape, 0)
	}
	x.Shape[len(x.Shape)-1] = p.Width
	return x
}
