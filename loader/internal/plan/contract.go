package plan

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/vector"
)

// Contract returns the contract of the observations of the plan's batches. Labels, bookkeeping
// columns, goals and augmentation are not part of it. A key of Choose is its first stream. It rejects an alignment that is not causal.
func (p *Plan) Contract() (*contract.Contract, error) {
	if len(p.Sources) > 1 {
		return nil, robocache.Unsupported("contract", nil, "the contract of a mixture").
			WithHint("Take the contract of a loader of the source whose robot will run the policy.")
	}
	src := p.Sources[0]
	vectors := src.observedVectors()
	observed := src.observedColumns(vectors)
	read := src.columnsReadBy(observed)
	for _, c := range read {
		if err := src.checkObservable(c); err != nil {
			return nil, err
		}
	}
	o, err := src.observationOptions(observed, read, vectors)
	if err != nil {
		return nil, err
	}
	o.Normalize = p.SettledNormalize()[0]
	o.Normalize.Keys = options.Only(o.Normalize.Keys,
		func(k string) bool { return slices.Contains(o.Keys, k) })
	out := &contract.Contract{Options: o, Robot: src.Dataset.Info().Robot}
	for _, c := range read {
		out.Streams = append(out.Streams, src.contractStream(c))
	}
	for _, c := range observed {
		for _, f := range p.Schema.Fields {
			if f.BaseKey() == c.Key && !f.Mask {
				out.Outputs = append(out.Outputs, contract.Output{
					Key: f.Key, DType: f.DType, Shape: f.Shape, Kind: f.Kind, Unit: f.Unit,
				})
			}
		}
	}
	if err := out.Seal(); err != nil {
		return nil, err
	}
	return out, out.Validate()
}

// isLabel reports whether a key is a label, which a robot does not have at a tick.
func (src *Source) isLabel(key string) bool {
	causal := align.Config{CausalOptions: align.CausalOptions{Causal: true}}
	if src.Config.Align != nil {
		causal.Targets = src.Config.Align.Targets
	}
	return !causal.IsCausal(key)
}

// observedVectors returns the vectors that a robot can compute at a tick. They read no labels and no
// rows after the tick. Their parts contain the statistics that normalize them.
func (src *Source) observedVectors() (out options.Vectors) {
	for _, v := range src.Config.Vectors {
		looksAhead := slices.Max(v.Offsets()) > 0 || slices.ContainsFunc(v.Parts,
			func(p vector.PartSpec) bool { return p.ReferenceKey() != "" && p.ReferenceRow > 0 })
		if looksAhead || src.isLabel(v.Key) || slices.ContainsFunc(v.Needs(), src.isLabel) {
			continue
		}
		v.Parts, v.Dropout = nil, 0
		for _, c := range src.Columns {
			if x, _ := c.Kind.(*column.VectorColumn); x != nil && x.Options.DrawKey() == v.Key {
				for _, part := range x.Parts {
					v.Parts = append(v.Parts, part.Spec)
				}
			}
		}
		out = append(out, v)
	}
	return out
}

// observedColumns returns the columns that a robot has at a tick: streams, the task, and the given
// vectors with their masks.
func (src *Source) observedColumns(vectors options.Vectors) (out []*column.Column) {
	for _, c := range src.Columns {
		isObserved := c.StreamKey() == "task" || c.Feature != nil && !c.IsBookkeeping() &&
			!src.isLabel(c.StreamKey()) && !column.Is[*column.TimesColumn](c) && !c.IsComputed()
		if v, isVector := c.Kind.(*column.VectorColumn); isVector {
			isObserved = vectors.Of(v.Options.DrawKey()) != nil
		} else if column.Is[*column.ConstantColumn](c) {
			isObserved = slices.ContainsFunc(vectors,
				func(v options.Vector) bool { return v.Mask == c.Key })
		}
		if isObserved && !isGoal(c) {
			out = append(out, c)
		}
	}
	return out
}

// isGoal reports whether the column holds later rows, which a robot does not have. The user of a
// policy states its goal.
func isGoal(c *column.Column) bool { return c.Draw != nil && c.Draw.IsGoal }

// columnsReadBy returns the columns of the streams from which columns of the batch are made, each
// once.
func (src *Source) columnsReadBy(columns []*column.Column) (out []*column.Column) {
	add := func(c *column.Column) {
		isSame := func(o *column.Column) bool { return o.StreamKey() == c.StreamKey() }
		if !slices.ContainsFunc(out, isSame) {
			out = append(out, c)
		}
	}
	for _, c := range columns {
		if !c.IsComputed() {
			add(c)
		}
	}
	for _, c := range columns {
		if v, isVector := c.Kind.(*column.VectorColumn); isVector {
			for _, in := range v.Inputs {
				add(in.Column)
			}
		}
	}
	return out
}

// checkObservable rejects a column whose rows a robot cannot have at the tick, or whose values a
// robot cannot make.
func (src *Source) checkObservable(c *column.Column) error {
	if c.Feature == nil {
		return nil
	}
	where := robocache.Where{"stream": c.StreamKey()}
	a := src.Config.Align
	isCausal := a != nil && a.Causal
	looksAhead := c.Time != nil || align.HasArrivalTimes(src.Dataset, c.Feature.Key)
	rule := src.beyondRule(c)
	switch i := c.Image(); {
	case c.Table() != nil && c.Axis != nil &&
		(rule == options.BeyondZero || rule == options.BeyondNeutral):
		return robocache.Unsupported("contract", where, "beyond %q of a window", rule).
			WithHint("Take the contract of a loader with beyond \"repeat\".")
	case !isCausal && looksAhead:
		return robocache.Misuse("contract", where,
			"the alignment is not causal: a robot has no such observations at the tick").
			WithHint("Train with %s, and take the contract of that loader.",
				robocache.Option("align", "causal"))
	case a != nil && !a.Drift[c.StreamKey()].IsZero():
		return robocache.Unsupported("contract", where,
			"a drift correction: it is known only after the recording")
	case i != nil && i.Augment != nil && src.Config.Augment != nil &&
		src.Config.Augment.Crop != nil &&
		(i.Augment.OutHeight != i.Height || i.Augment.OutWidth != i.Width):
		return robocache.Unsupported("contract", where, "frames that are cropped at random").
			WithHint("Take the contract of a loader without the crop, with the size that the policy "+
				"expects (%s).", robocache.Option("image_size"))
	}
	return nil
}

// observationOptions returns options under which a robot's streams become the observed columns. They
// name the mode of each stream in read, so that they do not depend on defaults.
func (src *Source) observationOptions(
	observed, read []*column.Column, vectors options.Vectors,
) (options.Config, error) {
	cfg := &src.Config
	var o options.Config
	o.Windows, o.Images = cfg.Windows, cfg.Images.Evaluation()
	o.Anchor, o.Tolerance, o.Missing, o.Hz = "", nil, "", nil
	// Before its first tick a robot repeats the first row, even if training drops such samples.
	o.Beyond = nil
	o.OnNaN, o.Vectors = cfg.OnNaN, vectors
	o.Keys, o.Choose, o.Goal = []string{}, nil, nil
	for _, x := range cfg.Choose {
		if src.Column(x.Key) != nil && slices.Contains(observed, src.Column(x.Key)) {
			x.Streams = x.Streams[:1]
			o.Choose = append(o.Choose, x)
		}
	}
	a := align.Config{}
	if cfg.Align != nil {
		a = *cfg.Align
	}
	if a.HZ.Zero() {
		a.HZ = src.rowRate()
	}
	if a.HZ.Zero() {
		return o, robocache.Misuse("contract", nil, "the rate of the ticks is not known").
			WithHint("Pass %s.", robocache.Option("hz"))
	}
	a.Causal, a.Extent, a.Targets = true, "", nil
	a.ArrivalDelay = align.PerKey[align.Nanos]{} // a robot has arrivals, and no need of assumptions
	a.Clock, a.Relative = nil, nil
	if !a.MaxAge.Says("") {
		a.MaxAge.All = align.DefaultMaxAge
	}
	modes := map[string]align.Mode{}
	for _, c := range observed {
		if !column.Is[*column.ConstantColumn](c) {
			o.Keys = append(o.Keys, c.Key)
		}
	}
	streams := map[string]bool{}
	for _, c := range read {
		key := c.StreamKey()
		streams[key] = true
		if c.Feature == nil {
			continue
		}
		switch {
		case c.Time == nil:
			modes[key] = align.Previous
		case !c.Time.Options.Hold: // A chosen mode would end the hold of a latched stream.
			modes[key] = c.Time.Options.Mode
		}
	}
	a.Modes = modes
	o.Align = &a
	o.KeepKeys(func(k string) bool { return streams[k] || o.DrawnKey(k) != nil })
	for k, l := range o.Align.Latency {
		l.Draw = align.AgeDraw{}
		o.Align.Latency[k] = l
		if l.Fixed == 0 {
			delete(o.Align.Latency, k)
		}
	}
	return o, nil
}

// rowRate returns the rate of the rows that are the samples, or zero if it is not known.
func (src *Source) rowRate() robocache.Rate {
	if f := src.Dataset.Info().Feature(src.Timebase.Key); f != nil && !f.FPS.Zero() {
		return f.FPS
	}
	return src.Dataset.Info().FPS
}

// contractStream returns the description of a column's stream.
func (src *Source) contractStream(c *column.Column) contract.Stream {
	if c.Feature == nil {
		return contract.Stream{Feature: robocache.Feature{
			Key: c.StreamKey(), Kind: robocache.KindText, DType: robocache.String, Shape: []int{1},
		}}
	}
	f := *c.Feature
	f.Clock, f.FPS, f.Codec, f.Default, f.OnlyAsked = "", robocache.Rate{}, "", false, false
	f.Relative, f.RelativeReason, f.Unsummable = nil, "", nil
	if i := c.Image(); i != nil && i.Spec.Width == 0 {
		f.Height, f.Width = i.SourceHeight, i.SourceWidth
	}
	stream := contract.Stream{Feature: f}
	if key := c.StreamKey(); key != "task" { // the user of a policy sets it
		stream.Message = robocache.MessageOf(src.Dataset, key)
	}
	return stream
}
