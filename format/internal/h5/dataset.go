package h5

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Dataset is a data set of the file: an array of elements.
type Dataset struct {
	f    *File
	addr uint64
	name string

	// Shape is the extent; nil of a scalar.
	Shape []int64
	// Null says that there are no elements and no extent.
	Null bool
	Type *Type
	// Keep says that rows without filters are kept in the cache too. Else they are read where they
	// are wanted, each time.
	Keep bool

	max      []int64
	layout   *layout
	filters  []filter
	fill     []byte // of one element; nil is zeros
	external bool

	// Of its rows: the first dimension; a scalar is one row.
	rows     int64
	rowBytes int64
	swap     int // bytes of what is swapped; 0: nothing
	bandRows int64
	hot      []atomic.Pointer[[]byte] // by band; nil: Hold was not called

	// Of its chunks.
	grid       []int64 // how many along each dimension
	chunkBytes int64
	whole      bool // a chunk holds whole rows, as they lie in memory
}

// Dataset opens an object as a data set. name is for errors.
func (o *Object) Dataset(ctx context.Context, name string) (_ *Dataset, err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("pointer", name)
	f := o.f
	body := func(kind uint16) []byte { return o.body(ctx, o.find(kind)) }
	s := f.space(o.addr, body(msgSpace))
	d := &Dataset{
		f:        f,
		addr:     o.addr,
		name:     name,
		Null:     s.null,
		Shape:    s.shape,
		max:      s.max,
		external: o.find(msgExternal) != nil,
	}
	d.Type = f.typeOf(o.addr, body(msgType))
	d.layout = f.layout(o.addr, body(msgLayout))
	if b := body(msgFilters); b != nil {
		d.filters = f.filters(o.addr, b)
	}
	for _, kind := range []uint16{msgOldFill, msgFill} {
		if b := body(kind); b != nil && d.Type.scalar().Class != Varying {
			d.fill = f.fill(o.addr, kind, b, d.Type.Size)
		}
	}
	d.measure()
	return d, nil
}

// bandBytes is how much of a data set without chunks is read and kept at once.
const bandBytes = 256 << 10

// measure checks the sizes that the header claims, and derives those of rows, chunks and bands.
func (d *Dataset) measure() {
	f, l := d.f, d.layout
	size := int64(d.Type.Size)
	times := func(n int64, ok bool) int64 {
		if !ok || n > (1<<62)/size {
			f.bad(d.addr, "a data set of shape %v", d.Shape)
		}
		return n * size
	}
	bytes := uint64(times((&space{d.Null, d.Shape, nil}).elements()))
	d.rows, d.rowBytes = 1, size
	if len(d.Shape) > 0 {
		d.rows, d.rowBytes = d.Shape[0], times(product(d.Shape[1:]))
	}
	if d.Null {
		d.rows = 0
	}
	if t := d.Type.scalar(); t.Big && t.DType.Size() > 1 {
		d.swap = t.DType.Size()
	}
	d.bandRows = max(1, bandBytes/max(d.rowBytes, 1))
	switch l.class {
	case layoutCompact:
		if uint64(len(l.data)) < bytes {
			f.bad(d.addr, "a compact data set of shape %v in %d bytes", d.Shape, len(l.data))
		}
	case layoutContiguous:
		if l.size == undefined {
			l.size = bytes
		}
		if l.addr == undefined || d.external {
			break
		}
		if l.size < bytes {
			f.bad(d.addr, "%d bytes of elements in a place of %d", bytes, l.size)
		}
		f.place(l.addr, bytes, "the data")
	case layoutChunked:
		if len(l.chunk) != len(d.Shape) || len(d.Shape) == 0 {
			f.bad(d.addr, "chunks %v for the shape %v", l.chunk, d.Shape)
		}
		if l.element != size {
			f.bad(d.addr, "elements of %d bytes in chunks of such of %d", size, l.element)
		}
		d.grid = make([]int64, len(d.Shape))
		for i, n := range d.Shape {
			d.grid[i] = ceil(n, l.chunk[i])
		}
		d.chunkBytes = times(product(l.chunk))
		d.bandRows = l.chunk[0]
		d.whole = slices.Equal(l.chunk[1:], d.Shape[1:])
	}
}

// Name is the path that it was opened by.
func (d *Dataset) Name() string { return d.name }

// Address tells data sets of a file apart.
func (d *Dataset) Address() uint64 { return d.addr }

// Rows is the length of the first dimension; 1 of a scalar, 0 of a null space.
func (d *Dataset) Rows() int64 { return d.rows }

// RowBytes is the size of a row as it is read.
func (d *Dataset) RowBytes() int64 { return d.rowBytes }

// Chunk gives the dimensions of its chunks; nil where it has none.
func (d *Dataset) Chunk() []int64 { return d.layout.chunk }

// Filtered says that reading costs more than copying.
func (d *Dataset) Filtered() bool { return len(d.filters) > 0 }

// Together is how many bytes are decoded and kept together for one row, those of a row of chunks; 0
// where rows are read as they lie.
func (d *Dataset) Together() int64 {
	if d.layout.class != layoutChunked {
		return 0
	}
	return d.bandRows*d.rowBytes + entry
}

// Readable says whether elements can be read: the error names what cannot.
func (d *Dataset) Readable() (err error) {
	defer guard.Recover("hdf5", &err)
	defer guard.In("pointer", d.name)
	if d.external {
		d.f.unsupported(
			d.addr,
			"a data set whose bytes lie in other files (external storage)",
			"copy it in with h5repack",
		)
	}
	for i := range d.filters {
		if p := &d.filters[i]; !p.known() {
			d.f.unsupported(
				d.addr,
				"filter "+p.String(),
				"read are deflate, shuffle, fletcher32 and lzf: h5repack -f GZIP=4 writes such a file",
			)
		}
	}
	return nil
}

// Claim checks that the file could hold what the data set claims: a header of a few bytes may say
// 2^60 rows, all of them fill value.
func (d *Dataset) Claim() error {
	most := int64(64<<20) + int64(min(d.f.size, 1<<50))*maxRatio
	if d.rowBytes > 0 && d.rows > most/d.rowBytes {
		e := d.f.error(robocache.ErrMalformed, d.addr, "a data set larger than its file can hold")
		e.Want, e.Got = fmt.Sprintf(
			"at most %d bytes from a file of %d",
			most,
			d.f.size,
		), fmt.Sprintf(
			"shape %v of %s",
			d.Shape,
			d.Type,
		)
		return robocache.At(e, robocache.Where{"pointer": d.name})
	}
	return nil
}
