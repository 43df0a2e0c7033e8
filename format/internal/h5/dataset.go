package h5

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Dataset is a data set of the file, an array of elements.
type Dataset struct {
	f    *File
	addr uint64
	name string

	// Shape is the extent. It is nil for a scalar.
	Shape []int64
	// Null reports that the data set has neither elements nor an extent.
	Null bool
	Type *Type
	// Keep also caches rows that are stored without filters. If Keep is false, each read fetches
	// such rows from the file.
	Keep bool

	max      []int64
	layout   *layout
	filters  []filter
	fill     []byte // bytes of one element; nil means zeros
	external bool

	// rows is the length of the first dimension. A scalar has one row.
	rows     int64
	rowBytes int64
	swap     int // size of the elements whose bytes are swapped; 0 means none
	bandRows int64
	hotBands []atomic.Pointer[[]byte] // indexed by band; nil until Hold is called

	// The fields below describe the chunks.
	grid           []int64 // number of chunks in each dimension
	chunkBytes     int64
	wholeRowChunks bool // a chunk holds whole rows in memory order
}

// Dataset opens the object as a data set. Errors mention name.
func (o *Object) Dataset(ctx context.Context, name string) (_ *Dataset, err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("pointer", name)
	f := o.f
	body := func(kind uint16) []byte { return o.messageBody(ctx, o.findMessage(kind)) }
	s := f.parseSpace(o.addr, body(msgSpace))
	d := &Dataset{
		f:        f,
		addr:     o.addr,
		name:     name,
		Null:     s.null,
		Shape:    s.shape,
		max:      s.max,
		external: o.findMessage(msgExternal) != nil,
	}
	d.Type = f.typeOf(o.addr, body(msgType))
	d.layout = f.parseLayout(o.addr, body(msgLayout))
	if b := body(msgFilters); b != nil {
		d.filters = f.parseFilters(o.addr, b)
	}
	for _, kind := range []uint16{msgOldFill, msgFill} {
		if b := body(kind); b != nil && d.Type.scalarType().Class != Varying {
			d.fill = f.parseFillValue(o.addr, kind, b, d.Type.Size)
		}
	}
	d.deriveSizes()
	return d, nil
}

// bandBytes is how much of a data set without chunks is read and cached at once.
const bandBytes = 256 << 10

// deriveSizes checks the sizes in the header and computes the sizes of rows, chunks and bands.
func (d *Dataset) deriveSizes() {
	f, l := d.f, d.layout
	size := int64(d.Type.Size)
	times := func(n int64, ok bool) int64 {
		if !ok || n > (1<<62)/size {
			f.failMalformed(d.addr, "a data set of shape %v", d.Shape)
		}
		return n * size
	}
	bytes := uint64(times((&space{d.Null, d.Shape, nil}).elementCount()))
	d.rows, d.rowBytes = 1, size
	if len(d.Shape) > 0 {
		d.rows, d.rowBytes = d.Shape[0], times(dimProduct(d.Shape[1:]))
	}
	if d.Null {
		d.rows = 0
	}
	if t := d.Type.scalarType(); t.Big && t.DType.Size() > 1 {
		d.swap = t.DType.Size()
	}
	d.bandRows = max(1, bandBytes/max(d.rowBytes, 1))
	switch l.class {
	case layoutCompact:
		if uint64(len(l.data)) < bytes {
			f.failMalformed(
				d.addr,
				"a compact data set of shape %v in %d bytes",
				d.Shape,
				len(l.data),
			)
		}
	case layoutContiguous:
		if l.size == undefined {
			l.size = bytes
		}
		if l.addr == undefined || d.external {
			break
		}
		if l.size < bytes {
			f.failMalformed(d.addr, "%d bytes of elements in a place of %d", bytes, l.size)
		}
		f.fileOffset(l.addr, bytes, "the data")
	case layoutChunked:
		if len(l.chunk) != len(d.Shape) || len(d.Shape) == 0 {
			f.failMalformed(d.addr, "chunks %v for the shape %v", l.chunk, d.Shape)
		}
		if l.element != size {
			f.failMalformed(d.addr, "elements of %d bytes in chunks of such of %d", size, l.element)
		}
		d.grid = make([]int64, len(d.Shape))
		for i, n := range d.Shape {
			d.grid[i] = ceilDiv(n, l.chunk[i])
		}
		d.chunkBytes = times(dimProduct(l.chunk))
		d.bandRows = l.chunk[0]
		d.wholeRowChunks = slices.Equal(l.chunk[1:], d.Shape[1:])
	}
}

// Name returns the path by which the data set was opened.
func (d *Dataset) Name() string { return d.name }

// Address returns a number that is unique for each data set of a file.
func (d *Dataset) Address() uint64 { return d.addr }

// Rows returns the length of the first dimension. It is 1 for a scalar and 0 for a null space.
func (d *Dataset) Rows() int64 { return d.rows }

// RowBytes returns the size of a row after decoding.
func (d *Dataset) RowBytes() int64 { return d.rowBytes }

// Chunk returns the dimensions of a chunk, or nil if the data set is not chunked.
func (d *Dataset) Chunk() []int64 { return d.layout.chunk }

// Filtered reports whether a read costs more than a copy.
func (d *Dataset) Filtered() bool { return len(d.filters) > 0 }

// Together returns the number of bytes that are decoded and cached together for one row, which are
// those of a row of chunks. It returns 0 if rows are read without decoding.
func (d *Dataset) Together() int64 {
	if d.layout.class != layoutChunked {
		return 0
	}
	return d.bandRows*d.rowBytes + entryOverhead
}

// Readable returns nil if the elements can be read. Otherwise the error names the unsupported
// feature.
func (d *Dataset) Readable() (err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("pointer", d.name)
	if d.external {
		d.f.failUnsupported(
			d.addr,
			"a data set whose bytes lie in other files (external storage)",
			"copy it in with h5repack",
		)
	}
	for i := range d.filters {
		if p := &d.filters[i]; !p.isSupported() {
			d.f.failUnsupported(
				d.addr,
				"filter "+p.String(),
				"Rewrite the file with h5repack -f GZIP=4. Supported are deflate, shuffle, "+
					"fletcher32 and lzf.",
			)
		}
	}
	return nil
}

// Claim checks that the file could hold as many rows as the data set declares. Without this check,
// a header of a few bytes could declare 2^60 rows of fill value.
func (d *Dataset) Claim() error {
	most := int64(64<<20) + int64(min(d.f.size, 1<<50))*maxRatio
	if d.rowBytes > 0 && d.rows > most/d.rowBytes {
		e := d.f.newError(
			robocache.ErrMalformed,
			d.addr,
			"a data set larger than its file can hold",
		)
		e.Want = fmt.Sprintf("at most %d bytes from a file of %d", most, d.f.size)
		e.Got = fmt.Sprintf("shape %v of %s", d.Shape, d.Type)
		return robocache.At(e, robocache.Where{"pointer": d.name})
	}
	return nil
}
