package h5

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// A band is a run of rows that is read, decoded and kept as a whole: the rows of a row of chunks, or of a data set without chunks as
// many as fit bandBytes.

// span is the rows [first, first+n) of band i.
func (d *Dataset) span(i int64) (first, n int64) {
	first = i * d.bandRows
	return first, min(d.bandRows, d.rows-first)
}

// band gives the rows of band i, little-endian. They must not be changed.
func (d *Dataset) band(ctx context.Context, i int64) ([]byte, error) {
	if b, ok := d.held(i); ok {
		return b, nil
	}
	k := key{d.f.id, kindBand, d.addr, i}
	v, err := d.f.cache.get(ctx, k, func() (any, int64, error) {
		b, err := d.load(ctx, i)
		return b, int64(len(b)), err
	})
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": d.f.name, "pointer": d.name})
	}
	return v.([]byte), nil
}

// kept says that a band is in the cache.
func (d *Dataset) kept(i int64) bool {
	_, ok := d.held(i)
	return ok
}

// maxHot bounds how many bands of a data set are found without asking the cache.
const maxHot = 1 << 12

// Hold makes the data set remember its bands beside the cache, to find them in a few ns: for sets that fit into the cache as a whole, whose
// bands it lets go of for nobody. It says how much memory that takes. No read may run meanwhile.
func (d *Dataset) Hold() int64 {
	n := (d.rows + max(d.bandRows, 1) - 1) / max(d.bandRows, 1)
	if n > maxHot || d.hot != nil {
		return 0
	}
	d.hot = make([]atomic.Pointer[[]byte], n)
	return n * 32
}

// held gives a band that is there.
func (d *Dataset) held(i int64) ([]byte, bool) {
	if d.hot != nil {
		if b := d.hot[i].Load(); b != nil {
			return *b, true
		}
	}
	v, ok := d.f.cache.peek(key{d.f.id, kindBand, d.addr, i})
	if !ok {
		return nil, false
	}
	b := v.([]byte)
	if d.hot != nil {
		d.hot[i].Store(&b)
	}
	return b, true
}

func (d *Dataset) load(ctx context.Context, i int64) ([]byte, error) {
	first, n := d.span(i)
	if err := d.Readable(); err != nil {
		return nil, err
	}
	// What the cache could not keep would be decoded again for each of its rows.
	most := max(min(maxChunk, d.f.cache.Budget()-entry), 0)
	if d.rowBytes > 0 && n > most/d.rowBytes {
		return nil, d.tooLarge(fmt.Sprintf("%d rows of %d bytes that are stored as one", n, d.rowBytes), uint64(n*d.rowBytes), most)
	}
	if d.layout.class == layoutChunked && d.chunkBytes > most {
		return nil, d.tooLarge(fmt.Sprintf("a chunk of %v elements", d.layout.chunk), uint64(d.chunkBytes), most)
	}
	out := make([]byte, n*d.rowBytes)
	var err error
	switch d.layout.class {
	case layoutCompact:
		copy(out, d.layout.data[first*d.rowBytes:])
	case layoutContiguous:
		err = d.plain(ctx, first, out)
	case layoutChunked:
		err = d.assemble(ctx, i, first, n, out)
	}
	if err != nil {
		return nil, err
	}
	d.native(out)
	return out, nil
}

// tooLarge refuses rows that can only be decoded together.
func (d *Dataset) tooLarge(what string, got uint64, most int64) error {
	e := d.f.limit(d.addr, what, got, uint64(most))
	if e.Hint = "write the file with smaller chunks: h5repack -l CHUNK=…"; most < maxChunk && got <= maxChunk {
		e.Hint = "raise the memory budget, or write the file with smaller chunks: h5repack -l CHUNK=…"
	}
	return e
}

// plain reads rows of a contiguous data set.
func (d *Dataset) plain(ctx context.Context, first int64, out []byte) error {
	if d.layout.addr == undefined {
		d.blank(out)
		return nil
	}
	at, ok := d.f.place(d.layout.addr+uint64(first*d.rowBytes), uint64(len(out)))
	if !ok {
		return d.f.outside(d.layout.addr, uint64(len(out)), "the data")
	}
	return d.f.r.ReadAt(ctx, out, at)
}

// blank writes the fill value.
func (d *Dataset) blank(out []byte) {
	if d.fill == nil {
		clear(out)
		return
	}
	n := copy(out, d.fill)
	for n < len(out) {
		n += copy(out[n:], out[:n])
	}
}

// native turns big-endian elements round.
func (d *Dataset) native(b []byte) { swap(b, d.swap) }

// swap reverses the bytes of each element of size bytes.
func swap(b []byte, size int) {
	switch size {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.LittleEndian.PutUint32(b, binary.BigEndian.Uint32(b))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, binary.BigEndian.Uint64(b))
		}
	}
}

// assemble decodes the chunks of a band into its rows, as many at once as there are cores.
func (d *Dataset) assemble(ctx context.Context, i, first, n int64, out []byte) error {
	index, err := d.chunkIndex(ctx)
	if err != nil {
		return err
	}
	across := int64(1)
	for _, g := range d.grid[1:] {
		across *= g
	}
	if d.whole {
		ref, ok := index.find(i)
		switch {
		case !ok:
			d.blank(out)
			return nil
		case int64(len(out)) == d.chunkBytes:
			return d.chunk(ctx, i, ref, out)
		case len(d.filters) == 0 || d.layout.rawEdges:
			return d.stored(ctx, ref, out)
		}
	}
	one := func(ctx context.Context, k int64) error {
		number := i*across + k
		ref, ok := index.find(number)
		s := scratches.Get().(*scratch)
		defer s.free()
		var buf []byte
		if ok {
			// Not of the pool: the scratch of the filters comes from there too.
			buf = make([]byte, d.chunkBytes)
			if err := d.chunk(ctx, number, ref, buf); err != nil {
				return err
			}
		}
		d.place(k, n, out, buf)
		return nil
	}
	if across == 1 {
		return one(ctx, 0)
	}
	stopped := ctx
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for k := range across {
		// Where nothing was written, fill values: a data set of a few bytes may have millions of such chunks.
		if _, ok := index.find(i*across + k); !ok {
			if k&0xfff == 0 && ctx.Err() != nil {
				break
			}
			d.place(k, n, out, nil)
			continue
		}
		g.Go(func() (err error) {
			defer guard.Malformed("hdf5", &err)
			return one(ctx, k)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return stopped.Err()
}

// place copies the k-th chunk of a band's row of chunks to where it belongs; nil is the fill value.
func (d *Dataset) place(k, n int64, out, chunk []byte) {
	size := int64(d.Type.Size)
	rank := len(d.Shape)
	// Where the chunk begins in each dimension but the first, and how much of it is inside.
	var begin, inside, at [maxRank]int64
	for i := rank - 1; i > 0; i-- {
		begin[i] = k % d.grid[i] * d.layout.chunk[i]
		inside[i] = min(d.layout.chunk[i], d.Shape[i]-begin[i])
		k /= d.grid[i]
	}
	inside[0] = n
	line := inside[rank-1] * size
	for {
		from, to := at[0], at[0]
		for i := 1; i < rank; i++ {
			from = from*d.layout.chunk[i] + at[i]
			to = to*d.Shape[i] + begin[i] + at[i]
		}
		dst := out[to*size : to*size+line]
		if chunk == nil {
			d.blank(dst)
		} else {
			copy(dst, chunk[from*size:from*size+line])
		}
		i := rank - 2
		for ; i >= 0; i-- {
			if at[i]++; at[i] < inside[i] {
				break
			}
			at[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

// stored reads the first bytes of a chunk without filters.
func (d *Dataset) stored(ctx context.Context, ref chunkRef, out []byte) error {
	at, ok := d.f.place(ref.addr, uint64(len(out)))
	if !ok {
		return d.f.outside(ref.addr, uint64(len(out)), "a chunk")
	}
	return d.f.r.ReadAt(ctx, out, at)
}

// chunk reads and decodes a chunk into out, which is as large as one.
func (d *Dataset) chunk(ctx context.Context, number int64, ref chunkRef, out []byte) error {
	if len(d.filters) == 0 || d.layout.rawEdges && d.edge(number) {
		return d.stored(ctx, ref, out)
	}
	at, ok := d.f.place(ref.addr, uint64(ref.size))
	if !ok {
		return d.f.outside(ref.addr, uint64(ref.size), fmt.Sprintf("chunk %d", number))
	}
	if int64(ref.size)*maxRatio+maxRatio < d.chunkBytes {
		return d.f.bad(ref.addr, fmt.Sprintf("chunk %d has %d bytes and claims to hold %d", number, ref.size, d.chunkBytes))
	}
	if int64(ref.size) > d.chunkBytes+d.chunkBytes/8+4096 {
		return d.f.bad(ref.addr, fmt.Sprintf("chunk %d has %d bytes for %d of data", number, ref.size, d.chunkBytes))
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	stored := room(&s.stored, int(ref.size))
	if err := d.f.r.ReadAt(ctx, stored, at); err != nil {
		return err
	}
	if err := undo(d.filters, ref.mask, stored, out, s); err != nil {
		if errors.Is(err, context.Canceled) {
			return err
		}
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"file": d.f.name, "offset": ref.addr, "chunk": number}, Msg: "a chunk cannot be decoded", Err: err}
	}
	return nil
}

// edge says that a chunk reaches over the data set's extent.
func (d *Dataset) edge(number int64) bool {
	for i := len(d.grid) - 1; i >= 0; i-- {
		at := number % d.grid[i]
		if (at+1)*d.layout.chunk[i] > d.Shape[i] {
			return true
		}
		number /= d.grid[i]
	}
	return false
}
