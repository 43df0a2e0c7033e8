package h5

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Spec describes a data set to be written.
type Spec struct {
	DType robocache.DType // type of numbers; String is text of variable length
	Fixed int             // if positive, elements are texts of Fixed bytes and DType is ignored
	Shape []int64         // rows first; [] is one element
	// ChunkRows is the number of rows in a chunk. 0 writes the rows contiguously without
	// compression.
	ChunkRows int64
	Deflate   int  // level 1 to 9; 0 means none
	Shuffle   bool // groups bytes of the same significance before compression
	// total number of names that the data set will have (GroupWriter.Link); 0 means one
	Names int
}

// DatasetWriter writes the rows of one data set in order.
type DatasetWriter struct {
	w            *Writer
	parent       *GroupWriter
	name         string
	spec         Spec
	typeMessage  []byte // datatype message
	elementBytes int64  // bytes of an element
	rowBytes     int64  // bytes of a row
	rows         int64
	bytesWritten int64 // bytes written so far
	dataOffset   int64 // offset of the rows of a data set without chunks
	attrs        messages
	chunks       *chunkWriter
	closed       bool
	addr         uint64 // set by Close
}

// Dataset begins a data set below g. Without chunks, its space is reserved immediately, so several
// data sets may be filled in turn.
func (g *GroupWriter) Dataset(name string, spec Spec) (*DatasetWriter, error) {
	d := &DatasetWriter{w: g.w, parent: g, name: name, spec: spec, rows: 1}
	switch {
	case spec.Fixed > 0:
		d.typeMessage, d.elementBytes = fixedTextType(spec.Fixed), int64(spec.Fixed)
	case spec.DType == robocache.String || spec.DType == robocache.JSON:
		d.typeMessage, d.elementBytes = textType(), referenceSize
	default:
		d.typeMessage, d.elementBytes = numericType(spec.DType), int64(spec.DType.Size())
	}
	if d.typeMessage == nil || d.elementBytes > math.MaxInt32 {
		return nil, robocache.Unsupported(
			"write hdf5",
			robocache.Where{"pointer": name},
			"elements of %s",
			spec.DType.String(),
		)
	}
	d.rowBytes = d.elementBytes
	room := math.MaxInt64 / 4 / d.elementBytes
	for i, n := range spec.Shape {
		if n < 0 || i > 0 && n == 0 || len(spec.Shape) > maxRank {
			return nil, writeMisuse("the shape %v", spec.Shape)
		}
		if room /= max(n, 1); room == 0 {
			return nil, robocache.ResourceLimit("write hdf5", nil, "the shape %v", spec.Shape)
		}
		if i == 0 {
			d.rows = n
		} else {
			d.rowBytes *= n
		}
	}
	if spec.Deflate < 0 || spec.Deflate > 9 || spec.ChunkRows < 0 ||
		spec.ChunkRows == 0 && (spec.Deflate > 0 || spec.Shuffle) ||
		spec.ChunkRows > 0 && len(spec.Shape) == 0 {
		return nil, writeMisuse(
			"%d rows a chunk, deflate %d, shuffle %v, shape %v",
			spec.ChunkRows,
			spec.Deflate,
			spec.Shuffle,
			spec.Shape,
		)
	}
	if spec.ChunkRows > 0 {
		d.spec.ChunkRows = min(spec.ChunkRows, max(d.rows, 1))
		if d.spec.ChunkRows > math.MaxUint32/d.rowBytes {
			return nil, writeMisuse(
				"chunks of %d rows of %d bytes: 4 GB are the most",
				d.spec.ChunkRows,
				d.rowBytes,
			)
		}
	}
	if err := g.claimName(name); err != nil {
		return nil, err
	}
	if d.spec.ChunkRows > 0 {
		d.chunks = newChunkWriter(d)
	} else if d.rows > 0 {
		d.dataOffset = g.w.reserveBytes(d.rows * d.rowBytes)
	}
	return d, nil
}

// Attribute adds an attribute to the data set.
func (d *DatasetWriter) Attribute(name string, value any) error {
	return d.w.writeAttribute(&d.attrs, name, value)
}

// Write appends whole rows in C order, little-endian. The caller may reuse p.
func (d *DatasetWriter) Write(p []byte) error {
	switch {
	case d.w.err != nil:
		return d.w.err
	case d.closed:
		return writeMisuse("the data set %q is closed", d.name)
	case int64(len(p))%d.rowBytes != 0 || int64(len(p)) > d.rows*d.rowBytes-d.bytesWritten:
		return writeMisuse(
			"%d bytes for the data set %q: rows of %d bytes, %d are missing",
			len(p),
			d.name,
			d.rowBytes,
			d.rows*d.rowBytes-d.bytesWritten,
		)
	}
	if d.chunks != nil {
		d.chunks.addRows(p)
	} else {
		d.w.writeAt(p, d.dataOffset+d.bytesWritten)
	}
	d.bytesWritten += int64(len(p))
	return d.w.err
}

// WriteTexts appends elements to a data set of text. A text must not be longer than the fixed
// length, if there is one.
func (d *DatasetWriter) WriteTexts(texts []string) error {
	var b []byte
	for _, s := range texts {
		switch {
		case d.spec.Fixed > 0 && len(s) > d.spec.Fixed:
			return writeMisuse("%q does not fit into %d bytes", s, d.spec.Fixed)
		case d.spec.Fixed > 0:
			b = append(append(b, s...), make([]byte, d.spec.Fixed-len(s))...)
		case d.elementBytes == referenceSize && d.spec.DType.Size() == 0:
			b = append(b, d.w.textReference(s)...)
		default:
			return writeMisuse("the data set %q holds no text", d.name)
		}
	}
	return d.Write(b)
}

// Close completes the data set. It returns an error if rows are missing.
func (d *DatasetWriter) Close() error {
	switch {
	case d.w.err != nil:
		return d.w.err
	case d.closed:
		return writeMisuse("the data set %q is closed", d.name)
	case d.bytesWritten != d.rows*d.rowBytes:
		return writeMisuse(
			"the data set %q received %d of %d bytes",
			d.name,
			d.bytesWritten,
			d.rows*d.rowBytes,
		)
	}
	d.closed = true
	var m messages
	rank := len(d.spec.Shape)
	m.addMessage(
		msgSpace,
		u8(2),
		u8(rank),
		u8(0),
		u8(min(rank, 1)),
		d.spec.Shape,
	) // scalar or simple
	m.addMessage(msgType, d.typeMessage)
	if d.chunks != nil {
		m.addMessage(msgFill, u8(3), u8(0x0b)) // allocated per chunk; filled if a value is set
		layout := d.chunks.writeIndex()
		if f := d.filterMessage(); f != nil {
			m.addMessage(msgFilters, f)
		}
		m.addMessage(msgLayout, layout)
	} else {
		at := uint64(d.dataOffset)
		if d.rows == 0 {
			at = undefined
		}
		m.addMessage(msgFill, u8(3), u8(0x0a)) // allocated late
		m.addMessage(msgLayout, u8(3), u8(1), at, d.rows*d.rowBytes)
	}
	if d.spec.Names > 1 {
		m.addMessage(msgReferences, u8(0), u32(d.spec.Names))
	}
	d.addr = d.w.writeHeader(slices.Concat(m, d.attrs))
	d.parent.addLink(d.name, d.addr)
	return d.w.err
}

// filterMessage returns the message that describes the filters, or nil if there are none.
func (d *DatasetWriter) filterMessage() []byte {
	var list []byte
	// flags 1: the filter may be skipped for a chunk; it has one value
	one := func(id uint16, value uint32) {
		list = append(
			list,
			packMetadata(id, u16(1), u16(1), value)...,
		)
	}
	if d.spec.Shuffle {
		one(filterShuffle, u32(d.elementBytes))
	}
	if d.spec.Deflate > 0 {
		one(filterDeflate, u32(d.spec.Deflate))
	}
	if list == nil {
		return nil
	}
	return packMetadata(u8(2), u8(len(list)/10), list)
}
