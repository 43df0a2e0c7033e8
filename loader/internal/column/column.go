package column

import (
	"github.com/goatnote-inc/robocache"
)

// Column is one key of a batch. It holds the state that all kinds of columns share; Kind holds the
// rest and fills the column.
type Column struct {
	Source  *DataSource
	Key     string
	Stream  string             // key of the stream that it reads; "": Key
	Feature *robocache.Feature // nil for the task text and the episode id
	Number  int                // index in the source's columns
	Sampling
	Value
	outputs
	Kind     columnKind
	Draw     *Draw     // what is read at random; nil: nothing
	Deferred *DeviceOp // operations that a device applies to a raw batch; nil: the batch is not raw
}

// Sampling states which rows of a stream a sample holds.
type Sampling struct {
	Steps  int   // rows per sample; 1 without a window
	Axis   []int // {Steps} with a window, else empty
	Window int   // index in DataSource.Windows
	// bounds in ns after the sample, if all samples in between are delivered; else nil
	Span *[2]int64
	Time *Timing // rule by which rows are found by time; nil: by row of the timebase
}

// Value states the dtype and size of a row or frame, as stored and in the tensor.
type Value struct {
	StoredDType, OutDType robocache.DType
	Elements              int     // of a row
	RowBytes              int     // stored size of a row
	OutBytes              int     // size of a row or frame in the tensor
	Unit                  string  // of the delivered values
	Norm                  *Affine // nil: not normalized
}

// SetDType sets the dtype of the tensor.
func (v *Value) SetDType(to robocache.DType) { v.OutDType, v.OutBytes = to, v.Elements*to.Size() }

// outputs locates a column's values in a batch. Indices are those of the source's schema.
type outputs struct {
	Entry        int // index of its tensor or text column
	LengthsEntry int // index of its lengths tensor; -1: none
	MaskEntry    int // index of its is_pad tensor; -1: none
}

// columnKind is the specific part of a column.
type columnKind interface {
	// Waits returns the number of completions that a batch waits for in a part of n samples.
	Waits(n int) int
}

// A Filler is a columnKind that writes its part of a batch in one job. Other columns are filled
// differently: frames by the frame store (Reader.LocateFrames), ragged columns by one job per batch
// for all sources (Reader.ReadRagged).
type Filler interface {
	// Fill writes the column of p. It records errors of the data as bad episodes and returns other
	// errors. Safe for concurrent use with different Readers.
	Fill(w *Reader, p *Part) error
}

// Is reports whether a column is of a kind.
func Is[K columnKind](c *Column) bool {
	_, ok := c.Kind.(K)
	return ok
}

// Image returns the column as an ImageColumn, or nil if it is of another kind.
func (c *Column) Image() *ImageColumn {
	i, _ := c.Kind.(*ImageColumn)
	return i
}

// Table returns the column as a TableColumn, or nil if it is of another kind.
func (c *Column) Table() *TableColumn {
	t, _ := c.Kind.(*TableColumn)
	return t
}

// IsVideo reports whether the column holds frames of video files.
func (c *Column) IsVideo() bool {
	i := c.Image()
	return i != nil && !i.IsStill
}

// HasNumbers reports whether the column's rows are numbers, including point clouds, and not frames.
func (c *Column) HasNumbers() bool {
	return Is[*TableColumn](c) || Is[*SpanColumn](c) || Is[*CloudColumn](c) || Is[*TimesColumn](c)
}

// IsNumericStream reports whether the column is of a stream of dense numeric rows.
func (c *Column) IsNumericStream() bool { return Is[*TableColumn](c) || Is[*SpanColumn](c) }

// IsRagged reports whether the column's tensor has a varying number of entries per sample, which
// `<key>_lengths` holds.
func (c *Column) IsRagged() bool {
	return Is[*CloudColumn](c) || Is[*SpanColumn](c) || Is[*TimesColumn](c) && c.Axis == nil
}

// DeliveredDType returns the dtype of the finished values. A raw batch stores another dtype.
func (c *Column) DeliveredDType() robocache.DType {
	if c.Deferred != nil {
		return c.Deferred.OutDType
	}
	return c.OutDType
}

// CanWiden reports whether rows of the column are vectors that a mixture may pad to a wider source.
func (c *Column) CanWiden() bool {
	return c.Table() != nil && len(c.Feature.Shape) <= 1 && c.Elements > 0
}
