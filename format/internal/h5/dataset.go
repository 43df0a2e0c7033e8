package h5

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
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
	// Keep says that rows without filters are kept in the cache too. Else they are read where they are wanted, each time.
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
	chunks     int64
	chunkBytes int64
	whole      bool // a chunk holds whole rows, as they lie in memory
}

// Dataset opens an object as a data set. name is for errors.
func (o *Object) Dataset(ctx context.Context, name string) (*Dataset, error) {
	d, err := o.dataset(ctx, name)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"pointer": name})
	}
	return d, nil
}

func (o *Object) dataset(ctx context.Context, name string) (*Dataset, error) {
	f := o.f
	d := &Dataset{f: f, addr: o.addr, name: name}
	body := func(kind uint16) ([]byte, error) {
		m := o.find(kind)
		if m == nil {
			return nil, nil
		}
		return o.body(ctx, m)
	}
	b, err := body(msgSpace)
	if err != nil {
		return nil, err
	}
	s, err := f.space(o.addr, b)
	if err != nil {
		return nil, err
	}
	if b, err = body(msgType); err != nil {
		return nil, err
	}
	if d.Type, err = f.typeOf(ctx, o.addr, b); err != nil {
		return nil, err
	}
	if b, err = body(msgLayout); err != nil {
		return nil, err
	}
	if d.layout, err = f.layout(o.addr, b); err != nil {
		return nil, err
	}
	if b, err = body(msgFilters); err != nil {
		return nil, err
	} else if b != nil {
		if d.filters, err = f.filters(o.addr, b); err != nil {
			return nil, err
		}
	}
	for _, kind := range []uint16{msgOldFill, msgFill} {
		if b, err = body(kind); err != nil {
			return nil, err
		} else if b != nil && !(d.Type.scalar().Class == Varying) {
			if d.fill, err = f.fill(o.addr, kind, b, d.Type.Size); err != nil {
				return nil, err
			}
		}
	}
	d.external = o.find(msgExternal) != nil
	d.Null, d.Shape, d.max = s.null, s.shape, s.max
	return d, d.measure()
}

// bandBytes is how much of a data set without chunks is read and kept at once.
const bandBytes = 256 << 10

// measure checks the sizes that the header claims, and derives those of rows, chunks and bands.
func (d *Dataset) measure() error {
	f, l := d.f, d.layout
	total, ok := product(d.Shape)
	if d.Null {
		total, ok = 0, true
	}
	size := int64(d.Type.Size)
	if !ok || total > (1<<62)/size {
		return f.bad(d.addr, fmt.Sprintf("a data set of shape %v", d.Shape))
	}
	d.rows, d.rowBytes = 1, size
	if len(d.Shape) > 0 {
		d.rows = d.Shape[0]
		for _, n := range d.Shape[1:] {
			if n == 0 {
				d.rowBytes = 0
				break
			}
			if d.rowBytes > (1<<62)/n {
				return f.bad(d.addr, fmt.Sprintf("a data set of shape %v", d.Shape))
			}
			d.rowBytes *= n
		}
	}
	if d.Null {
		d.rows = 0
	}
	if t := d.Type.scalar(); t.Big && t.DType.Size() > 1 {
		d.swap = t.DType.Size()
	}
	bytes := uint64(total * size)
	d.bandRows = max(1, bandBytes/max(d.rowBytes, 1))
	switch l.class {
	case layoutCompact:
		if uint64(len(l.data)) < bytes {
			return f.bad(d.addr, fmt.Sprintf("a compact data set of shape %v in %d bytes", d.Shape, len(l.data)))
		}
	case layoutContiguous:
		if l.size == undefined {
			l.size = bytes
		}
		if l.addr == undefined || d.external {
			break
		}
		if l.size < bytes {
			return f.bad(d.addr, fmt.Sprintf("%d elements of %d bytes in a place of %d", total, size, l.size))
		}
		if _, ok := f.place(l.addr, bytes); !ok {
			return f.outside(l.addr, bytes, "the data")
		}
	case layoutChunked:
		if len(l.chunk) != len(d.Shape) || len(d.Shape) == 0 {
			return f.bad(d.addr, fmt.Sprintf("chunks %v for the shape %v", l.chunk, d.Shape))
		}
		if l.element != size {
			return f.bad(d.addr, fmt.Sprintf("elements of %d bytes in chunks of such of %d", size, l.element))
		}
		d.grid = make([]int64, len(d.Shape))
		for i, n := range d.Shape {
			d.grid[i] = ceil(n, l.chunk[i])
		}
		n, ok := product(l.chunk)
		if d.chunks, _ = product(d.grid); !ok || n > (1<<62)/size {
			return f.bad(d.addr, fmt.Sprintf("chunks %v", l.chunk))
		}
		d.chunkBytes = n * size
		d.bandRows = l.chunk[0]
		d.whole = true
		for i := 1; i < len(d.Shape); i++ {
			d.whole = d.whole && l.chunk[i] == d.Shape[i]
		}
	}
	return nil
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

// Together is how many bytes are decoded and kept together for one row, those of a row of chunks; 0 where rows are read as they lie.
func (d *Dataset) Together() int64 {
	if d.layout.class != layoutChunked {
		return 0
	}
	return d.bandRows*d.rowBytes + entry
}

// Readable says whether elements can be read: the error names what cannot.
func (d *Dataset) Readable() error {
	if d.external {
		return d.at(d.f.unsupported(d.addr, "a data set whose bytes lie in other files (external storage)", "copy it in with h5repack"))
	}
	for i := range d.filters {
		if p := &d.filters[i]; !p.known() {
			return d.at(d.f.unsupported(d.addr, "filter "+p.String(), "read are deflate, shuffle, fletcher32 and lzf: h5repack -f GZIP=4 writes such a file"))
		}
	}
	return nil
}

func (d *Dataset) at(err error) error {
	return robocache.At(err, robocache.Where{"pointer": d.name})
}

// Claim checks that the file could hold what the data set claims: a header of a few bytes may say 2^60 rows, all of them fill value.
func (d *Dataset) Claim() error {
	most := int64(64<<20) + int64(min(d.f.size, 1<<50))*maxRatio
	if d.rowBytes > 0 && d.rows > most/d.rowBytes {
		return d.at(&robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": d.f.name, "offset": d.addr}, Msg: "a data set larger than its file can hold",
			Want: fmt.Sprintf("at most %d bytes from a file of %d", most, d.f.size), Got: fmt.Sprintf("shape %v of %s", d.Shape, d.Type)})
	}
	return nil
}
