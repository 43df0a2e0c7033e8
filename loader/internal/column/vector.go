package column

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/vector"
)

// VectorColumn holds numbers of several streams, computed by package vector.
type VectorColumn struct {
	*Column
	Options options.Vector
	Parts   []VectorPart
	Inputs  []*TableColumn // columns of the streams that it reads; a batch does not hold them
	// number of the random draws of Dropout (KeyNumber)
	DrawNumber uint32
}

// VectorPart is a part and the positions of its streams in VectorColumn.Inputs.
type VectorPart struct {
	*vector.Part
	Input     int
	Reference int // -1: absolute
}

// vectorInput holds the rows of one input of a batch.
type vectorInput struct {
	values  []float64
	outside []byte // 1 for each row outside the episode or without a value
	raw     []byte
}

func (*VectorColumn) Waits(int) int { return 1 }

// PartsWidth returns the number of numbers of all parts.
func (c *VectorColumn) PartsWidth() (n int) {
	for _, p := range c.Parts {
		n += p.Width()
	}
	return n
}

// Fill reads the inputs and writes the parts of each row.
func (c *VectorColumn) Fill(w *Reader, p *Part) error {
	for len(w.inputs) < len(c.Inputs) {
		w.inputs = append(w.inputs, vectorInput{})
	}
	for i, in := range c.Inputs {
		if ok, err := w.readInput(p, in, &w.inputs[i]); err != nil || !ok {
			return robocache.At(err, robocache.Where{"stream": in.Key})
		}
	}
	dst, done := p.stageEntry(c.Entry)
	defer done()
	mask, maskDone := p.stageEntry(c.MaskEntry)
	defer maskDone()
	clear(dst)
	steps := len(c.Options.Offsets())
	c.writeMask(w, mask, p.sampleCount(), steps)
	width := c.PartsWidth()
	row := make([]float64, width)
	scratch := make([]float64, 2*width)
	for i := range p.sampleCount() {
		if c.Options.Dropout > 0 && c.isDropped(p, i) {
			continue
		}
		for step := range steps {
			c.computeRow(w, i, step, row, scratch)
			at := (i*c.Steps + step) * c.Elements
			if c.OutDType == robocache.Float64 {
				copy(AsSlice[float64](dst)[at:], row)
				continue
			}
			out := Floats32(dst)[at:]
			for k, x := range row {
				out[k] = float32(x)
			}
		}
	}
	return nil
}

// computeRow writes the numbers of all parts for one step of sample i to row.
func (c *VectorColumn) computeRow(w *Reader, i, step int, row, scratch []float64) {
	for k := range c.Parts {
		part := &c.Parts[k]
		at := i*c.Inputs[part.Input].Steps + step
		in := &w.inputs[part.Input]
		elements := c.Inputs[part.Input].Elements
		var reference []float64
		if part.Reference >= 0 {
			n := c.Inputs[part.Reference].Elements
			reference = w.inputs[part.Reference].values[i*n : (i+1)*n]
		}
		part.Write(row, in.values[at*elements:(at+1)*elements], reference, step,
			in.outside[at] != 0, scratch)
		row = row[part.Width():]
	}
}

// writeMask writes 1 for each row that pads the vector, or for which a part has no row inside the
// episode.
func (c *VectorColumn) writeMask(w *Reader, mask []byte, samples, steps int) {
	if mask == nil {
		return
	}
	for i := range samples {
		sampleMask := mask[i*c.Steps : (i+1)*c.Steps]
		for step := range sampleMask {
			if step >= steps {
				sampleMask[step] = 1
				continue
			}
			sampleMask[step] = 0
			for k := range c.Parts {
				input := &w.inputs[c.Parts[k].Input]
				sampleMask[step] |= input.outside[i*steps+step]
			}
		}
	}
}

// isDropped reports whether Dropout sets the vector of sample i to zeros.
func (c *VectorColumn) isDropped(p *Part, i int) bool {
	draw := kernel.DrawUniform(uint64(p.Source.Seed), p.sampleEpoch(i), c.DrawNumber,
		sampleNumber(p.anchors[i]))
	return draw < c.Options.Dropout
}

// readInput reads the rows of an input as float64. It returns false if it failed the batch or
// recorded a bad episode.
func (w *Reader) readInput(p *Part, in *TableColumn, to *vectorInput) (bool, error) {
	if !w.checkFinite(p, in.Column) {
		return false, nil
	}
	n := p.sampleCount() * in.Steps
	to.outside = slices.Grow(to.outside[:0], n)[:n]
	to.values = slices.Grow(to.values[:0], n*in.Elements)[:n*in.Elements]
	stored := in.StoredDType
	if stored == robocache.Bool {
		stored = robocache.Uint8
	}
	if in.Time != nil {
		return w.resampleInput(p, in, to)
	}
	rows, err := w.RowsOf(p, in.Column, to.outside)
	if err != nil {
		return false, err
	}
	to.raw = slices.Grow(to.raw[:0], len(rows)*in.RowBytes)[:len(rows)*in.RowBytes]
	if !w.readRows(p, in.Column, rows, to.raw) {
		return false, nil
	}
	err = Convert(AsBytes(to.values), robocache.Float64, to.raw, stored, in.Elements, nil)
	if err != nil || !in.Feature.Masked {
		return err == nil, err
	}
	valid, err := robocache.Validity(w.Ctx(), p.Source.Dataset, in.Feature, rows)
	for i, v := range valid {
		to.outside[i] |= 1 - v
	}
	return err == nil, err
}

// resampleInput is readInput for an input that is read by time.
func (w *Reader) resampleInput(p *Part, in *TableColumn, to *vectorInput) (bool, error) {
	plan, rows, err := w.planSamples(p, in.Column)
	if err != nil {
		return false, err
	}
	to.raw = slices.Grow(to.raw[:0], len(rows)*in.RowBytes)[:len(rows)*in.RowBytes]
	if !w.readRows(p, in.Column, rows, to.raw) {
		return false, nil
	}
	err = resample(AsBytes(to.values), robocache.Float64, to.raw, in.Column, plan,
		kernel.Epilogue{}, to.outside)
	writePadMask(to.outside, to.outside)
	return err == nil, err
}

// ConstantColumn holds the same value for each sample: a constant of a source, or Vector.Mask.
type ConstantColumn struct {
	*Column
	Row []byte // of a sample, not empty
}

func (*ConstantColumn) Waits(int) int { return 1 }

func (c *ConstantColumn) Fill(_ *Reader, p *Part) error {
	dst, done := p.stageEntry(c.Entry)
	defer done()
	for len(dst) > 0 {
		dst = dst[copy(dst, c.Row):]
	}
	return nil
}

// IsComputed reports whether the column is no stream of the dataset.
func (c *Column) IsComputed() bool {
	return Is[*GeneratedColumn](c) || Is[*VectorColumn](c) || Is[*ConstantColumn](c)
}
