package plan

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

const defaultTolerance = 1e-4

// makeColumns adds the columns of the wanted keys: first the videos, then the other streams in the
// dataset's order. LeRobot's own items have the same order.
func (src *Source) makeColumns() error {
	info, cfg := src.Dataset.Info(), &src.Config
	src.known = options.FeatureKeys(info)
	known, extra := slices.Clone(src.known), src.generatedColumns()
	for _, c := range extra {
		known = append(known, c.Key)
	}
	for _, x := range cfg.DrawnKeys() {
		known, src.known = append(known, x.Key), append(src.known, x.Key)
	}
	vectors := cfg.Vectors.SplitParts()
	for _, k := range cfg.Keys {
		if !slices.Contains(known, k) && vectors.Of(k) == nil {
			return options.MissingKey(info, "keys", k, known)
		}
	}
	if err := cfg.CheckWithheld(info, known); err != nil {
		return err
	}
	wanted := func(k string) bool {
		return cfg.Keys == nil && !cfg.IsChoice(k) || slices.Contains(cfg.Keys, k) ||
			cfg.DrawnKey(k) != nil
	}
	if err := cfg.CheckWindows(info, known, wanted); err != nil {
		return err
	}
	src.Windows = []column.Window{{Offsets: []int{0}, Nanos: []int64{0}}}
	for pass := range 2 {
		for i := range info.Features {
			f := &info.Features[i]
			if (f.Kind == robocache.KindVideo) != (pass == 0) || !wanted(f.Key) ||
				vectors.Of(f.Key) != nil || cfg.DrawnKey(f.Key) != nil {
				continue
			}
			if f.Ragged() && src.Dataset.Capabilities().GatherRagged == nil ||
				f.Kind == robocache.KindPointCloud && !f.Ragged() {
				reason := "the format " + info.Format + " gives no rows of varying length"
				if cfg.Keys != nil {
					return robocache.Unsupported(
						"loader",
						robocache.Where{"stream": f.Key},
						"%s",
						reason,
					)
				}
				src.report.Warn(f.Key + " is left out: " + reason)
				src.undelivered = append(src.undelivered, NotDelivered{Key: f.Key, Reason: reason})
				continue
			}
			if err := src.addFeature(f); err != nil {
				return err
			}
		}
	}
	if err := src.addDrawn(); err != nil {
		return err
	}
	if err := src.addVectors(); err != nil {
		return err
	}
	if err := src.addConstants(); err != nil {
		return err
	}
	for _, c := range extra {
		if !wanted(c.Key) || cfg.DrawnKey(c.Key) != nil {
			continue
		}
		switch {
		case cfg.HasWindow(c.Key) && c.OutDType != robocache.String:
			return robocache.Misuse("loader", robocache.Where{"stream": c.Key},
				"a window of a number of the sample").
				WithHint("it is that of the sample's own time")
		case cfg.HasWindow(c.Key):
			return column.TextWindowError(c.Key)
		}
		if column.Is[*column.TextColumn](c) {
			var err error
			if c.Time, err = newTiming(src.Dataset, &src.Timebase, nil, c.Key, cfg); err != nil {
				return err
			}
		}
		src.appendColumn(c)
	}
	if len(src.Columns) == 0 {
		return options.Misuse("keys", "at least one key", "none")
	}
	return nil
}

// appendColumn adds a column to the source and numbers it.
func (src *Source) appendColumn(c *column.Column) {
	src.prepareColumn(c, len(src.Columns))
	src.Columns = append(src.Columns, c)
}

// prepareColumn sets the source and the number of a column.
func (src *Source) prepareColumn(c *column.Column, number int) {
	c.Source, c.Number = &src.DataSource, number
	c.MaskEntry, c.LengthsEntry = -1, -1
	c.Steps = max(c.Steps, 1)
}

// featureColumn returns the column of a feature under a key of the batch.
func (src *Source) featureColumn(f *robocache.Feature, key string) (_ *column.Column, err error) {
	cfg := &src.Config
	c := &column.Column{
		Key:      key,
		Feature:  f,
		Sampling: column.Sampling{Steps: 1},
		Value:    column.Value{StoredDType: f.DType, OutDType: f.DType, Unit: f.Unit},
	}
	if key != f.Key {
		c.Stream = f.Key
	}
	if c.Time, err = newTiming(src.Dataset, &src.Timebase, f, key, cfg); err != nil {
		return nil, err
	}
	if f.Kind == robocache.KindText || f.Kind == robocache.KindEvent {
		if cfg.HasWindow(key) {
			return nil, column.TextWindowError(key)
		}
		c.Kind, c.OutDType = &column.TextColumn{Column: c}, robocache.String
		if f.Kind == robocache.KindEvent {
			c.OutDType = robocache.JSON
		}
		return c, nil
	}
	if err := src.setWindow(c); err != nil {
		return nil, robocache.At(err, robocache.Where{"stream": key})
	}
	switch {
	case f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage:
		frames := &column.ImageColumn{Column: c, IsStill: f.Kind == robocache.KindImage}
		c.Kind = frames
		chooseFrame(frames, cfg)
	case f.Ragged():
		c.Kind = &column.CloudColumn{Column: c}
	case c.Span != nil:
		c.Kind = &column.SpanColumn{Column: c}
	default:
		rows := &column.TableColumn{Column: c}
		rows.PlanLeader = rows
		c.Kind = rows
	}
	if c.HasNumbers() {
		c.Elements = f.Elements()
		c.RowBytes = c.Elements * f.DType.Size()
		if c.StoredDType.Size() == 0 || c.Elements < 0 || c.Elements > math.MaxInt32 {
			return nil, robocache.Unsupported(
				"loader",
				robocache.Where{"stream": f.Key},
				"%s rows of %v in batches",
				f.DType,
				f.Shape,
			)
		}
		c.SetDType(f.DType)
		switch {
		case cfg.Compat == options.LeRobot:
			c.SetDType(referenceDType(f.DType))
		case cfg.DType == options.DTypeFloat32 && f.DType == robocache.Float64 &&
			(!c.IsBookkeeping() || src.Dataset.Info().Format == "lerobot"):
			// Bookkeeping columns stay float64: a time since the Unix epoch has steps of 128 s in
			// float32. LeRobot's timestamps count from the episode's start, so float32 suffices.
			c.SetDType(robocache.Float32)
		}
	}
	return c, nil
}

// addFeature adds the column of a feature. A feature with a span also gets a column with the times
// of its samples, unless a feature has that key.
func (src *Source) addFeature(f *robocache.Feature) error {
	c, err := src.featureColumn(f, f.Key)
	if err != nil {
		return err
	}
	src.appendColumn(c)
	if c.Span != nil && !src.isKnownKey(f.Key+layout.TimesSuffix) {
		times := &column.Column{
			Key:     f.Key + layout.TimesSuffix,
			Feature: f,
			Value:   column.Value{StoredDType: robocache.Int64, Elements: 1, RowBytes: 8},
			Sampling: column.Sampling{
				Steps: c.Steps,
				Axis:  c.Axis,
				Span:  c.Span,
				Time:  new(column.Timing),
			},
		}
		times.Kind = &column.TimesColumn{Column: times}
		times.SetDType(robocache.Int64)
		src.appendColumn(times)
	}
	return nil
}

// referenceDType returns the dtype that LeRobot's own items have for a stored dtype.
func referenceDType(d robocache.DType) robocache.DType {
	switch {
	case d.Float():
		return robocache.Float32
	case d.Integer():
		return robocache.Int64
	}
	return d
}

// isKnownKey reports whether a feature has the key.
func (src *Source) isKnownKey(key string) bool { return slices.Contains(src.known, key) }

// columnKeys returns the keys of the columns, in their order.
func (src *Source) columnKeys() []string {
	var out []string
	for _, c := range src.Columns {
		out = append(out, c.Key)
	}
	return out
}
