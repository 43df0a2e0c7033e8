package column

import (
	"github.com/goatnote-inc/robocache"
)

// Column is one key of a batch: what all kinds of columns have. What one kind alone has, and how it makes its
// part of a batch, is in its kind.
type Column struct {
	Source  *DataSource
	Key     string
	Feature *robocache.Feature // nil for the task text and the episode's id
	Number  int                // among the source's columns
	Sampling
	Value
	outputs
	Kind     kind
	Deferred *DeviceOp // its batches are raw; nil: they are as the field says
}

// Sampling states which rows of a stream a sample holds.
type Sampling struct {
	Steps  int       // T, 1 without a window
	Axis   []int     // the T axis: {steps} with a window
	Window int       // index of its rows in source.windows
	Span   *[2]int64 // it holds all samples of this span, in ns after the sample
	Time   *Timing   // nil: it goes by the rows of the timebase
}

// Value states what a row or frame is, as stored and in the tensor.
type Value struct {
	StoredDType, OutDType robocache.DType
	Elements              int     // of a row
	RowBytes              int     // as stored
	OutBytes              int     // a row or frame in the tensor
	Unit                  string  // of the values as they are given
	Norm                  *Affine // nil: not normalised
}

// SetDType chooses the dtype of the tensor.
func (v *Value) SetDType(to robocache.DType) { v.OutDType, v.OutBytes = to, v.Elements*to.Size() }

// outputs states where a column's values go in a batch.
type outputs struct {
	Entry        int // index in Batch.Tensors or Batch.Texts
	LengthsEntry int // index in Batch.Tensors of its lengths; -1
	MaskEntry    int // index in Batch.Tensors of its is_pad; -1
}

// kind is what a column is made of.
type kind interface {
	// waits returns how many things a batch waits for, of a part of n samples.
	Waits(n int) int
}

// A filler writes a column's part of a batch, as one of the things that the batch waits for. What no filler writes
// comes otherwise: frames through the store of frames (worker.locate), ragged columns in one job a batch for all its
// sources (worker.ragged).
type Filler interface {
	Fill(w *Reader, p *Part) error
}

// Is reports whether a column is of a kind.
func Is[K kind](c *Column) bool {
	_, ok := c.Kind.(K)
	return ok
}

// Image returns the column as one of frames; nil if it is of another kind.
func (c *Column) Image() *ImageColumn {
	i, _ := c.Kind.(*ImageColumn)
	return i
}

// Table returns the column as rows of numbers of one length; nil if it is of another kind.
func (c *Column) Table() *TableColumn {
	t, _ := c.Kind.(*TableColumn)
	return t
}

// IsVideo reports whether the column is frames of video files.
func (c *Column) IsVideo() bool {
	i := c.Image()
	return i != nil && !i.IsStill
}

// HasNumbers reports whether the column's rows are numbers, a point cloud's too, and no frames.
func (c *Column) HasNumbers() bool {
	return Is[*TableColumn](c) || Is[*SpanColumn](c) || Is[*CloudColumn](c) || Is[*TimesColumn](c)
}

// IsNumericStream reports whether the column is of a stream of plain numbers.
func (c *Column) IsNumericStream() bool { return Is[*TableColumn](c) || Is[*SpanColumn](c) }

// IsRagged reports whether its tensor holds what there is, and `<key>_lengths` how much of each sample.
func (c *Column) IsRagged() bool {
	return Is[*CloudColumn](c) || Is[*SpanColumn](c) || Is[*TimesColumn](c) && c.Axis == nil
}

// DeliveredDType returns the dtype that the user gets.
func (c *Column) DeliveredDType() robocache.DType {
	if c.Deferred != nil {
		return c.Deferred.OutDType
	}
	return c.OutDType
}

// CanWiden says whether a column's rows are a list of numbers that may be widened.
func (c *Column) CanWiden() bool {
	return c.Table() != nil && len(c.Feature.Shape) <= 1 && c.Elements > 0
}
