package h5

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Spec says what a data set holds.
type Spec struct {
	DType robocache.DType // of numbers; String is text of varying length
	Fixed int             // > 0: text of so many bytes, whatever DType
	Shape []int64         // rows first; [] is one element
	// ChunkRows is the rows of a chunk; 0 writes the rows one after the other, unpacked.
	ChunkRows int64
	Deflate   int  // level 1 to 9; 0 = none
	Shuffle   bool // bytes of the same rank stand together before they are deflated
	Names     int  // that the data set will have in all (GroupWriter.Link); 0 = one
}

// DatasetWriter is a data set in the making: its rows come in order.
type DatasetWriter struct {
	w      *Writer
	parent *GroupWriter
	name   string
	spec   Spec
	kind   []byte // datatype message
	size   int64  // bytes of an element
	row    int64  // bytes of a row
	rows   int64
	done   int64 // bytes that came
	at     int64 // where the rows begin, of a data set without chunks
	attrs  messages
	chunks *chunkWriter
	closed bool
	addr   uint64 // once closed
}

// Dataset begins a data set below g. Its space is reserved at once where it has no chunks: several
// may be filled in turn.
func (g *GroupWriter) Dataset(name string, spec Spec) (*DatasetWriter, error) {
	d := &DatasetWriter{w: g.w, parent: g, name: name, spec: spec, rows: 1}
	switch {
	case spec.Fixed > 0:
		d.kind, d.size = fixedTextType(spec.Fixed), int64(spec.Fixed)
	case spec.DType == robocache.String || spec.DType == robocache.JSON:
		d.kind, d.size = textType(), referenceSize
	default:
		d.kind, d.size = numericType(spec.DType), int64(spec.DType.Size())
	}
	if d.kind == nil || d.size > math.MaxInt32 {
		return nil, robocache.Unsupported(
			"write hdf5",
			robocache.Where{"pointer": name},
			"elements of %s",
			spec.DType.String(),
		)
	}
	d.row = d.size
	room := math.MaxInt64 / 4 / d.size
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
			d.row *= n
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
		if d.spec.ChunkRows > math.MaxUint32/d.row {
			return nil, writeMisuse(
				"chunks of %d rows of %d bytes: 4 GB are the most",
				d.spec.ChunkRows,
				d.row,
			)
		}
	}
	if err := g.claim(name); err != nil {
		return nil, err
	}
	if d.spec.ChunkRows > 0 {
		d.chunks = newChunkWriter(d)
	} else if d.rows > 0 {
		d.at = g.w.take(d.rows * d.row)
	}
	return d, nil
}

// Attribute gives the data set an attribute.
func (d *DatasetWriter) Attribute(name string, value any) error {
	return d.w.attribute(&d.attrs, name, value)
}

// Write takes the next rows, whole ones: C order, little-endian. p may be used again.
func (d *DatasetWriter) Write(p []byte) error {
	switch {
	case d.w.err != nil:
		return d.w.err
	case d.closed:
		return writeMisuse("the data set %q is closed", d.name)
	case int64(len(p))%d.row != 0 || int64(len(p)) > d.rows*d.row-d.done:
		return writeMisuse(
			"%d bytes for the data set %q: rows of %d bytes, %d are missing",
			len(p),
			d.name,
			d.row,
			d.rows*d.row-d.done,
		)
	}
	if d.chunks != nil {
		d.chunks.add(p)
	} else {
		d.w.writeAt(p, d.at+d.done)
	}
	d.done += int64(len(p))
	return d.w.err
}

// WriteTexts takes the next elements of a data set of text. Of fixed length they may not be longer
// than that.
func (d *DatasetWriter) WriteTexts(texts []string) error {
	var b []byte
	for _, s := range texts {
		switch {
		case d.spec.Fixed > 0 && len(s) > d.spec.Fixed:
			return writeMisuse("%q does not fit into %d bytes", s, d.spec.Fixed)
		case d.spec.Fixed > 0:
			b = append(append(b, s...), make([]byte, d.spec.Fixed-len(s))...)
		case d.size == referenceSize && d.spec.DType.Size() == 0:
			b = append(b, d.w.reference(s)...)
		default:
			return writeMisuse("the data set %q holds no text", d.name)
		}
	}
	return d.Write(b)
}

// Close ends the data set. All its rows must have come.
func (d *DatasetWriter) Close() error {
	switch {
	case d.w.err != nil:
		return d.w.err
	case d.closed:
		return writeMisuse("the data set %q is closed", d.name)
	case d.done != d.rows*d.row:
		return writeMisuse("%d of %d bytes of the data set %q came", d.done, d.rows*d.row, d.name)
	}
	d.closed = true
	var m messages
	rank := len(d.spec.Shape)
	m.add(msgSpace, u8(2), u8(rank), u8(0), u8(min(rank, 1)), d.spec.Shape) // scalar or simple
	m.add(msgType, d.kind)
	if d.chunks != nil {
		m.add(msgFill, u8(3), u8(0x0b)) // space by the chunk; filled where a value is set
		layout := d.chunks.end()
		if f := d.filters(); f != nil {
			m.add(msgFilters, f)
		}
		m.add(msgLayout, layout)
	} else {
		at := uint64(d.at)
		if d.rows == 0 {
			at = undefined
		}
		m.add(msgFill, u8(3), u8(0x0a)) // late
		m.add(msgLayout, u8(3), u8(1), at, d.rows*d.row)
	}
	if d.spec.Names > 1 {
		m.add(msgReferences, u8(0), u32(d.spec.Names))
	}
	d.addr = d.w.header(slices.Concat(m, d.attrs))
	d.parent.link(d.name, d.addr)
	return d.w.err
}

// filters is the message of the filters; nil where there are none.
func (d *DatasetWriter) filters() []byte {
	var list []byte
	// may be left out of a chunk; one value
	one := func(id uint16, value uint32) { list = append(list, pack(id, u16(1), u16(1), value)...) }
	if d.spec.Shuffle {
		one(filterShuffle, u32(d.size))
	}
	if d.spec.Deflate > 0 {
		one(filterDeflate, u32(d.spec.Deflate))
	}
	if list == nil {
		return nil
	}
	return pack(u8(2), u8(len(list)/10), list)
}
