package h5set

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/video"
)

// How is the way in which the rows of a stream are stored.
type How uint8

// The values of How.
const (
	Numbers How = iota // rows of numbers
	Pixels             // rows of pixels
	Padded             // rows of JPEG or PNG bytes, padded with zeros
	Encoded            // rows of JPEG or PNG bytes of variable length
	Words              // text
)

// Stream is a feature, and the data set that stores it in each episode.
type Stream struct {
	robocache.Feature
	Path string // relative to the episode's group
	How  How
	BGR  bool // the first three channels are blue, green, red
	// after means that the data sets have one row more than the episode: the state after the last
	// action.
	after bool
	// constant means that the data sets have one row, which holds for all rows of the episode.
	constant bool
	// times is the path of the stream's timestamps below the episode, or "".
	times string
	share float64 // rows of a stream with its own clock divided by the episode's rows; otherwise 0
	// absent lists the positions of the episodes that lack the stream, in ascending order.
	absent []int32
	// For a field of a compound: its name and position in an element.
	field       string
	offset, len int
}

// matchDataset returns an error that names the difference if the rows of a data set do not match
// the stream.
func (s *Stream) matchDataset(d *h5.Dataset) error {
	t, dims := elementOf(d)
	if s.field != "" {
		for _, m := range d.Type.Fields {
			if m.Name != s.field || m.Offset != s.offset || m.Type.Size != s.len ||
				len(d.Shape) != 1 {
				continue
			}
			if t, more, _ := m.Type.Numeric(); t == s.DType && slices.Equal(orOne(more), s.Shape) {
				return nil
			}
		}
		return fmt.Errorf("no field %q as in most episodes", s.field)
	}
	switch s.How {
	case Words, Encoded:
		if !d.Type.IsText && d.Type.Class != h5.Text && d.Type.Class != h5.Varying {
			return fmt.Errorf("%s, in most episodes text or images", d.Type)
		}
		if len(d.Shape) != 1 {
			return fmt.Errorf("%s of shape %v, in most episodes one a row", d.Type, d.Shape)
		}
		return nil
	case Padded:
		if t != robocache.Uint8 || len(dims) != 1 {
			return fmt.Errorf(
				"%s of shape %v, in most episodes rows of encoded images",
				d.Type,
				d.Shape,
			)
		}
		return nil
	}
	if dims = orOne(dims); s.How == Pixels && len(dims) == 2 {
		dims = append(dims, 1)
	}
	if t != s.DType || !slices.Equal(dims, s.Shape) {
		return fmt.Errorf(
			"%s of shape %v, in most episodes %s of shape %v",
			t,
			dims,
			s.DType,
			s.Shape,
		)
	}
	return nil
}

// checkFit checks that a data set has the stream's type and shape, and the expected number of rows.
func (s *Stream) checkFit(d *h5.Dataset, length int64) error {
	bad := func(want, got string) error {
		return robocache.Malformed("hdf5", robocache.Where{"pointer": d.Name()}, "").
			Expected(want, got)
	}
	if err := d.Readable(); err != nil {
		return err
	}
	if err := s.matchDataset(d); err != nil {
		if err := bad("rows as in most episodes", err.Error()); err != nil {
			return err
		}
	}
	if s.after {
		length++
	}
	if s.constant {
		length = 1
	}
	if d.Rows() == length {
		return nil
	}
	whose := "the episode"
	if s.times != "" {
		whose = s.times
	}
	return bad(fmt.Sprintf("%d rows, as %s has", length, whose), fmt.Sprint(d.Rows()))
}

// elementOf returns the number type of a data set and the dimensions of a row.
func elementOf(d *h5.Dataset) (robocache.DType, []int) {
	t, more, _ := d.Type.Numeric()
	var dims []int
	for i := 1; i < len(d.Shape); i++ {
		dims = append(dims, int(d.Shape[i]))
	}
	return t, append(dims, more...)
}

// maxRow limits the bytes of one row.
const maxRow = 1 << 30

// describeDataset returns the streams of a data set whose first dimension is time: one stream, or
// one per field of a compound. If there are none, why contains the reason.
func describeDataset(
	ctx context.Context,
	d *h5.Dataset,
	key, path string,
) (out []Stream, why string, err error) {
	s := Stream{Path: path}
	s.Key = key
	if len(d.Shape) == 0 || d.Null {
		return nil, "it has no rows", nil
	}
	if err := d.Readable(); err != nil {
		return out, why, err
	}
	if err := d.Claim(); err != nil {
		return out, why, err
	}
	if d.RowBytes() > maxRow {
		return nil, fmt.Sprintf("a row has %d bytes", d.RowBytes()), nil
	}
	t, dims := elementOf(d)
	switch {
	case t == robocache.InvalidDType && d.Type.Class == h5.Compound:
		out, why := fieldStreams(d, key, path, dims)
		return out, why, nil
	case d.Type.Class == h5.Varying && !d.Type.IsText &&
		d.Type.Base.DType == robocache.Uint8 && len(dims) == 0:
		s.How = Encoded
		isEncoded, err := s.detectEncoded(ctx, d)
		if err != nil {
			return out, why, err
		}
		if isEncoded {
			return []Stream{s}, "", nil
		}
		return nil, "sequences of variable length that are not images", nil
	case (d.Type.Class == h5.Text || d.Type.IsText) && len(dims) == 0:
		s.Kind, s.DType, s.Shape, s.How = robocache.KindText, robocache.String, []int{1}, Words
		return []Stream{s}, "", nil
	case t == robocache.InvalidDType:
		return nil, "its elements are " + d.Type.String(), nil
	case slices.Contains(dims, 0):
		return nil, "its rows are empty", nil
	}
	s.How = Padded
	if t == robocache.Uint8 && len(dims) == 1 && dims[0] >= leastPadded {
		isEncoded, err := s.detectEncoded(ctx, d)
		if err != nil {
			return out, why, err
		}
		if isEncoded {
			return []Stream{s}, "", nil
		}
	}
	s.DType, s.Shape = t, orOne(dims)
	s.Kind, s.How = robocache.KindNumeric, Numbers
	s.detectPixels(path)
	return []Stream{s}, "", nil
}

// orOne returns the shape of a row of numbers. A single number has shape [1].
func orOne(dims []int) []int {
	if len(dims) == 0 {
		return []int{1}
	}
	return dims
}

// leastImageSide is the minimum side of an array that counts as an image.
const leastImageSide = 8

// detectPixels makes the stream an image if its rows are height × width × channels, or depth.
func (s *Stream) detectPixels(path string) {
	dims := s.Shape
	depth := s.DType == robocache.Uint16 || s.DType == robocache.Float32
	switch {
	case len(dims) == 3 && min(dims[0], dims[1]) >= leastImageSide &&
		(s.DType == robocache.Uint8 && (dims[2] == 1 || dims[2] == 3 || dims[2] == 4) ||
			depth && dims[2] == 1):
	case len(dims) == 2 && min(dims[0], dims[1]) >= leastImageSide && depth &&
		strings.Contains(strings.ToLower(path), "depth"):
		s.Shape = append(slices.Clone(dims), 1)
	default:
		return
	}
	s.How = Pixels
	s.setImage(s.Shape[0], s.Shape[1], s.Shape[2])
	s.StateDepth()
}

func (s *Stream) setImage(height, width, channels int) {
	s.Kind, s.Shape = robocache.KindImage, []int{height, width, channels}
	s.Height, s.Width, s.Channels = height, width, channels
	s.Names = json.RawMessage(`["height","width","channels"]`)
}

// detectEncoded reports whether rows of bytes are encoded images. It looks at the first row.
func (s *Stream) detectEncoded(ctx context.Context, d *h5.Dataset) (bool, error) {
	if d.Rows() == 0 {
		return false, nil
	}
	var b []byte
	if s.How == Encoded {
		bytes, err := d.Bytes(ctx, 0, 1)
		if err != nil {
			return false, err
		}
		b = bytes[0]
	} else {
		row, _, err := d.View(ctx, 0, 1)
		if err != nil {
			return false, err
		}
		b = Trim(row)
	}
	info, err := video.StillSize(b)
	if err != nil {
		return false, nil
	}
	s.DType = robocache.Uint8
	s.setImage(info.Height, info.Width, 3)
	return true, nil
}

// fieldStreams returns a stream for each numeric field of a compound.
func fieldStreams(d *h5.Dataset, key, path string, dims []int) (out []Stream, why string) {
	if len(dims) > 0 {
		return nil, "rows of several compound elements"
	}
	for _, m := range d.Type.Fields {
		t, more, ok := m.Type.Numeric()
		if !ok {
			continue
		}
		s := Stream{Path: path, field: m.Name, offset: m.Offset, len: m.Type.Size}
		s.Key, s.Kind, s.DType, s.Shape = key+"."+m.Name, robocache.KindNumeric, t, orOne(more)
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, "a compound without numeric fields"
	}
	return out, ""
}
