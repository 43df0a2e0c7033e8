package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/vector"
)

// addVectors adds the columns of the vectors, of their masks, and the inputs that they read.
func (src *Source) addVectors() error {
	for _, v := range src.Config.Vectors.SplitParts() {
		where := robocache.Where{"vector": v.Key}
		if err := src.addVector(v); err != nil {
			return robocache.At(err, where)
		}
	}
	return nil
}

// addVector adds the column of one vector.
func (src *Source) addVector(v options.Vector) error {
	steps := max(v.Length, len(v.Offsets()))
	c := &column.VectorColumn{Options: v, DrawNumber: column.KeyNumber(v.DrawKey())}
	c.Column = &column.Column{Key: v.Key, Kind: c, Sampling: column.Sampling{Steps: steps}}
	if v.Rows != nil {
		c.Axis = []int{steps}
	}
	for _, spec := range v.Parts {
		part := column.VectorPart{Reference: -1}
		var err error
		if part.Input, err = src.addInput(c, spec.Key, v.Offsets()); err != nil {
			return err
		}
		elements := c.Inputs[part.Input].Elements
		referenceElements := 0
		if key := spec.ReferenceKey(); key != "" {
			part.Reference, err = src.addInput(c, key, []int{spec.ReferenceRow})
			if err != nil {
				return err
			}
			referenceElements = c.Inputs[part.Reference].Elements
		}
		if part.Part, err = spec.Compile(
			elements,
			referenceElements,
			len(v.Offsets()),
		); err != nil {
			return err
		}
		c.Parts = append(c.Parts, part)
	}
	partsWidth := c.PartsWidth()
	width := max(v.Width, partsWidth)
	if v.Width > 0 && v.Width < partsWidth {
		return options.Misuse("vectors: "+v.Key+": width",
			fmt.Sprintf("at least the %d numbers of the parts", partsWidth), fmt.Sprint(v.Width))
	}
	dtype := robocache.Float32
	if v.DType == "float64" {
		dtype = robocache.Float64
	}
	src.appendComputed(c.Column, dtype, width)
	if v.Mask == "" {
		return nil
	}
	m := &column.ConstantColumn{}
	m.Column = &column.Column{
		Key: v.Mask, Kind: m, Sampling: column.Sampling{Steps: steps, Axis: c.Axis},
	}
	for step := range steps {
		row := make([]byte, width)
		for k := range partsWidth {
			row[k] = boolByte(step < len(v.Offsets()))
		}
		m.Row = append(m.Row, row...)
	}
	src.appendComputed(m.Column, robocache.Bool, width)
	return nil
}

// boolByte returns 1 for true and 0 for false.
func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendComputed adds a column whose rows have width numbers that no stream of the dataset has.
func (src *Source) appendComputed(c *column.Column, dtype robocache.DType, width int) {
	c.Feature = &robocache.Feature{
		Key: c.Key, Kind: robocache.KindNumeric, DType: dtype, Shape: []int{width}, Default: true,
	}
	c.StoredDType, c.Elements, c.RowBytes = dtype, width, width*dtype.Size()
	c.SetDType(dtype)
	src.appendColumn(c)
}

// addInput returns the position of a stream with a window of offsets among the inputs of c. It adds
// the input if c does not have it yet.
func (src *Source) addInput(c *column.VectorColumn, key string, offsets []int) (int, error) {
	f := src.Dataset.Info().Feature(key)
	switch {
	case f == nil:
		return 0, options.MissingKey(src.Dataset.Info(), "vectors", key, src.known)
	case f.Kind != robocache.KindNumeric || f.Ragged() || f.DType.Size() == 0 || f.Elements() < 1:
		return 0, robocache.Misuse("loader", robocache.Where{"stream": key},
			"vectors: the stream has no rows of numbers of one length")
	}
	in := &column.TableColumn{Column: &column.Column{
		Source: &src.DataSource, Key: key, Feature: f,
		Value: column.Value{
			StoredDType: f.DType, Elements: f.Elements(), RowBytes: f.RowBytes(), Unit: f.Unit,
		},
	}}
	in.Kind, in.PlanLeader, in.Steps = in, in, len(offsets)
	in.MaskEntry, in.LengthsEntry, in.Entry = -1, -1, -1
	in.SetDType(robocache.Float64)
	var err error
	if in.Time, err = newTiming(src.Dataset, &src.Timebase, f, key, &src.Config); err != nil {
		return 0, err
	}
	w, err := rowWindow(offsets, &src.Config, in.Time != nil)
	if err != nil {
		return 0, err
	}
	in.Window = src.windowNumber(w)
	for i, other := range c.Inputs {
		if other.Key == key && other.Window == in.Window {
			return i, nil
		}
	}
	c.Inputs = append(c.Inputs, in)
	src.inputs = append(src.inputs, in.Column)
	return len(c.Inputs) - 1, nil
}

// setVectorNorms sets the statistics of the parts whose norm option contains no numbers. A part that
// delivers a column as stored gets the statistics of the dataset. Other parts get statistics of their
// values, computed over all windows.
func (src *Source) setVectorNorms(ctx context.Context) error {
	var stored []normalized
	var storedParts []*vector.Part
	for _, x := range src.partsWithoutNumbers() {
		n := x.part.Spec.Norm
		if n.Mode == "affine" {
			return options.Misuse("vectors: "+x.column.Key+": norm", "scale and offset", "none")
		}
		norm := options.Norm{Mode: n.Mode}
		if n.Mode == "limits" {
			norm.Mode = "min_max"
		}
		if x.part.Spec.Relative != vector.Absolute || x.part.Spec.Rotation != nil || n.PerStep {
			if err := src.setWindowStatistics(ctx, x, &norm); err != nil {
				return robocache.At(err, robocache.Where{"vector": x.column.Key})
			}
			continue
		}
		c := *src.inputColumn(x.part.Spec.Key)
		stored = append(stored, normalized{&c, norm})
		storedParts = append(storedParts, x.part)
	}
	if len(stored) == 0 {
		return nil
	}
	found, err := src.findStatistics(ctx, stored)
	if err != nil {
		return err
	}
	for i, part := range storedParts {
		c := &stored[i]
		low, high, err := normVectors(&c.norm, c.Column, found[c.Key])
		if err != nil {
			return err
		}
		err = setPartStatistics(part, vector.Rows{part.Pick(low)}, vector.Rows{part.Pick(high)}, 1)
		if err != nil {
			return err
		}
	}
	return nil
}

// setPartStatistics sets the statistics of a part. low and high are its mean and standard deviation
// if the mode is "mean_std", and otherwise the two ends of its range.
func setPartStatistics(part *vector.Part, low, high vector.Rows, steps int) error {
	n := *part.Spec.Norm
	if n.Mode == "mean_std" {
		n.Mean, n.Std = low, high
	} else {
		n.Low, n.High = low, high
	}
	return part.SetNorm(n, steps)
}

// setWindowStatistics computes and sets the statistics of a part, over all windows of the selected
// episodes.
func (src *Source) setWindowStatistics(
	ctx context.Context,
	x vectorPart,
	norm *options.Norm,
) error {
	part, spec := x.part, vector.Spec{
		Parts: []vector.PartSpec{x.part.Spec},
		Rows:  x.column.Options.Rows,
	}
	if err := src.checkWindowPass(ctx, part, &spec); err != nil {
		return err
	}
	windows, err := stats.VectorWindows(src.Dataset, &spec)
	if err != nil {
		return err
	}
	windows.PerStep = part.Spec.Norm.PerStep
	rows, err := src.selectRows()
	if err != nil {
		return err
	}
	windows.DropFirst, windows.DropLast = max(rows.First, 0), max(rows.Last, 0)
	opt := stats.WindowOptions{
		Threads: src.Config.Threads,
		Budget:  min(256<<20, int64(src.Config.MemoryBudget)/8),
	}
	for i := range src.Table.Len() {
		opt.Episodes = append(opt.Episodes, src.Table.Episode(i))
	}
	label := part.Spec.Label()
	found, err := stats.Windows(
		ctx,
		src.Dataset,
		map[string]*stats.WindowVector{label: windows},
		opt,
	)
	if err != nil {
		return err
	}
	low, high := norm.Of(found[label])
	width := part.ValueWidth()
	split := func(flat []float64) vector.Rows { return slices.Collect(slices.Chunk(flat, width)) }
	return setPartStatistics(part, split(low), split(high), len(spec.Offsets()))
}

// checkWindowPass rejects statistics of a part over windows that are not supported, or that the
// options do not request although they are expensive. Otherwise it reports the pass. spec is the
// vector of only that part.
func (src *Source) checkWindowPass(
	ctx context.Context, part *vector.Part, spec *vector.Spec,
) error {
	where := robocache.Where{"stream": part.Spec.Key}
	var inputs []normalized
	for _, key := range spec.Needs() {
		c := src.inputColumn(key)
		if c.Time != nil {
			return robocache.Unsupported("loader", where,
				"vectors: statistics of windows on another clock than the samples").
				WithHint(`Pass the numbers: norm={"mode": …, "low": […], "high": […]}.`)
		}
		inputs = append(inputs, normalized{Column: c})
	}
	files := src.filesOf(ctx)
	bytes, reason, err := src.passCost(ctx, inputs, &files)
	if err != nil {
		return err
	}
	if reason != "" && !src.Config.ComputeStats {
		return robocache.Misuse("loader", where,
			"vectors: the statistics of the part %s are computed over windows, and %s",
			part.Spec.Label(), reason).
			WithHint("Pass %s, or the numbers.", robocache.Option("stats", "compute"))
	}
	src.logProgress("vectors: statistics of %s over the windows of %d episodes (%s of values)",
		part.Spec.Label(), src.Table.Len(), sizeText(bytes))
	return nil
}

// vectorPart is a part of a vector, with the column of the vector.
type vectorPart struct {
	column *column.VectorColumn
	part   *vector.Part
}

// partsWithoutNumbers returns the parts whose norm has no numbers, in the order of the vectors.
func (src *Source) partsWithoutNumbers() (parts []vectorPart) {
	for _, c := range src.Columns {
		v, _ := c.Kind.(*column.VectorColumn)
		for i := 0; v != nil && i < len(v.Parts); i++ {
			if n := v.Parts[i].Spec.Norm; n != nil && !n.HasNumbers() {
				parts = append(parts, vectorPart{v, v.Parts[i].Part})
			}
		}
	}
	return parts
}

// inputColumn returns the first input of vectors that reads a stream. There must be one.
func (src *Source) inputColumn(key string) *column.Column {
	return src.inputs[slices.IndexFunc(src.inputs,
		func(c *column.Column) bool { return c.Key == key })]
}

// readColumns returns the columns that read streams of the dataset: columns of the batch with their
// alternatives, and the inputs of vectors.
func (src *Source) readColumns() (columns []*column.Column) {
	for _, c := range src.Columns {
		if !column.Is[*column.VectorColumn](c) && !column.Is[*column.ConstantColumn](c) {
			columns = append(columns, c.Alternatives()...)
		}
	}
	return append(columns, src.inputs...)
}

// checkVectorAugment rejects augmentation that would change a stream and not the vector of it.
func (src *Source) checkVectorAugment(a *options.Augment) error {
	for _, key := range src.Config.Vectors.Needs() {
		isNoisy := a.Noise != nil && a.Noise.Std[key] > 0
		isFlipped := a.Flip != nil && a.Flip.P > 0 && !slices.Contains(a.Flip.Keep, key)
		if isNoisy || isFlipped {
			return robocache.Unsupported("loader", robocache.Where{"stream": key},
				"augment: hflip and noise of a stream that a vector reads").
				WithHint("Pass keep for the stream, or leave the vector out.")
		}
	}
	return nil
}
