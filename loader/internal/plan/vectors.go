package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
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
		if part.Input, err = src.inputOf(c, spec.Key, v.Offsets()); err != nil {
			return err
		}
		elements := c.Inputs[part.Input].Elements
		referenceElements := 0
		if key := spec.ReferenceKey(); key != "" {
			part.Reference, err = src.inputOf(c, key, []int{spec.ReferenceRow})
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
	made := c.PartsWidth()
	width := max(v.Width, made)
	if v.Width > 0 && v.Width < made {
		return options.Misuse("vectors: "+v.Key+": width",
			fmt.Sprintf("at least the %d numbers of the parts", made), fmt.Sprint(v.Width))
	}
	dtype := robocache.Float32
	if v.DType == "float64" {
		dtype = robocache.Float64
	}
	src.appendComputed(c.Column, dtype, width)
	if v.Mask == "" {
		return nil
	}
	m := &column.VectorMask{}
	m.Column = &column.Column{
		Key: v.Mask, Kind: m, Sampling: column.Sampling{Steps: steps, Axis: c.Axis},
	}
	for step := range steps {
		row := make([]byte, width)
		for k := range made {
			row[k] = boolByte(step < len(v.Offsets()))
		}
		m.Mask = append(m.Mask, row...)
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

// inputOf returns the position among the inputs of c of a stream's rows, and adds them if they are
// new.
func (src *Source) inputOf(c *column.VectorColumn, key string, offsets []int) (int, error) {
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
	if in.Time, err = newTiming(src.Dataset, &src.Timebase, f, &src.Config); err != nil {
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

// setVectorNorms sets the statistics of the parts that are normalized without numbers of their own.
func (src *Source) setVectorNorms(ctx context.Context) error {
	var missing []normalized
	for _, part := range src.partsWithoutNumbers() {
		n := part.Spec.Norm
		if part.Spec.Relative != vector.Absolute || part.Spec.Rotation != nil || n.PerStep ||
			n.Mode == "affine" {
			return robocache.Unsupported("loader", robocache.Where{"stream": part.Spec.Key},
				"vectors: the part %s is normalized without numbers, and the dataset has no "+
					"statistics of such values", part.Spec.Label()).
				WithHint(`Pass the numbers: norm={"mode": …, "low": […], "high": […]}.`)
		}
		mode := n.Mode
		if mode == "limits" {
			mode = "min_max"
		}
		c := *src.inputColumn(part.Spec.Key)
		missing = append(missing, normalized{&c, options.Norm{Mode: mode}})
	}
	if len(missing) == 0 {
		return nil
	}
	stats, err := src.findStatistics(ctx, missing)
	if err != nil {
		return err
	}
	for i, part := range src.partsWithoutNumbers() {
		c := &missing[i]
		low, high, err := normVectors(&c.norm, c.Column, stats[c.Key])
		if err != nil {
			return err
		}
		n := *part.Spec.Norm
		a, b := vector.Rows{part.Pick(low)}, vector.Rows{part.Pick(high)}
		if n.Mode == "mean_std" {
			n.Mean, n.Std = a, b
		} else {
			n.Low, n.High = a, b
		}
		if err := part.SetNorm(n, 1); err != nil {
			return err
		}
	}
	return nil
}

// partsWithoutNumbers returns the parts whose norm has no numbers, in the order of the vectors.
func (src *Source) partsWithoutNumbers() (parts []*vector.Part) {
	for _, c := range src.Columns {
		v, _ := c.Kind.(*column.VectorColumn)
		for i := 0; v != nil && i < len(v.Parts); i++ {
			if n := v.Parts[i].Spec.Norm; n != nil && !n.HasNumbers() {
				parts = append(parts, v.Parts[i].Part)
			}
		}
	}
	return parts
}

// inputColumn returns an input of a stream. The stream must be one of a vector's.
func (src *Source) inputColumn(key string) *column.Column {
	return src.inputs[slices.IndexFunc(src.inputs,
		func(c *column.Column) bool { return c.Key == key })]
}

// readColumns returns the columns of the batch that are streams, and the inputs of vectors.
func (src *Source) readColumns() []*column.Column {
	if len(src.inputs) == 0 {
		return src.Columns
	}
	columns := slices.DeleteFunc(slices.Clone(src.Columns), func(c *column.Column) bool {
		return column.Is[*column.VectorColumn](c) || column.Is[*column.VectorMask](c)
	})
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
