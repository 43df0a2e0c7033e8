package h5

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// A band is a run of rows that is read, decoded and kept as a whole: the rows of a row of chunks,
// or of a data set without chunks as many as fit bandBytes.

// span is the rows [first, first+n) of band i.
func (d *Dataset) span(i int64) (first, n int64) {
	first = i * d.bandRows
	return first, min(d.bandRows, d.rows-first)
}

// band gives the rows of band i, little-endian. They must not be changed.
func (d *Dataset) band(ctx context.Context, i int64) (_ []byte, err error) {
	if b, ok := d.held(i); ok {
		return b, nil
	}
	defer guard.Recover("hdf5", &err)
	defer guard.In("file", d.f.name)
	defer guard.In("pointer", d.name)
	return cached(ctx, d.f, key{d.f.id, kindBand, d.addr, i}, func() ([]byte, int64) {
		b := d.load(ctx, i)
		return b, int64(len(b))
	}), nil
}

// maxHot bounds how many bands of a data set are found without asking the cache.
const maxHot = 1 << 12

// Hold makes the data set remember its bands beside the cache, to find them in a few ns: for sets
// that fit into the cache as a whole, whose bands it lets go of for nobody. It says how much memory
// that takes. No read may run meanwhile.
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
	v, ok := d.f.cache.things.Peek(key{d.f.id, kindBand, d.addr, i})
	if !ok {
		return nil, false
	}
	b := v.([]byte)
	if d.hot != nil {
		d.hot[i].Store(&b)
	}
	return b, true
}

func (d *Dataset) load(ctx context.Context, i int64) []byte {
	first, n := d.span(i)
	guard.Check(d.Readable())
	// What the cache could not keep would be decoded again for each of its rows.
	most := max(min(maxChunk, d.f.cache.Budget()-entry), 0)
	if d.rowBytes > 0 && n > most/d.rowBytes {
		d.tooLarge(
			fmt.Sprintf("%d rows of %d bytes that are stored as one", n, d.rowBytes),
			uint64(n*d.rowBytes),
			most,
		)
	}
	if d.layout.class == layoutChunked && d.chunkBytes > most {
		d.tooLarge(
			fmt.Sprintf("a chunk of %v elements", d.layout.chunk),
			uint64(d.chunkBytes),
			most,
		)
	}
	out := make([]byte, n*d.rowBytes)
	switch d.layout.class {
	case layoutCompact:
		copy(out, d.layout.data[first*d.rowBytes:])
	case layoutContiguous:
		d.plain(ctx, first, out)
	case layoutChunked:
		d.assemble(ctx, i, first, n, out)
	}
	d.native(out)
	return out
}

// tooLarge refuses rows that can only be decoded together.
func (d *Dataset) tooLarge(what string, got uint64, most int64) {
	e := d.f.above(d.addr, what, got, uint64(most))
	if e.Hint = "write the file with smaller chunks: h5repack -l CHUNK=…"; most < maxChunk &&
		got <= maxChunk {
		e.Hint = "raise the memory budget, or write the file with smaller chunks: h5repack -l CHUNK=…"
	}
	guard.Fail(e)
}

// plain reads rows of a contiguous data set.
func (d *Dataset) plain(ctx context.Context, first int64, out []byte) {
	if d.layout.addr == undefined {
		d.blank(out)
		return
	}
	d.stored(ctx, d.layout.addr+uint64(first*d.rowBytes), out)
}

// stored reads bytes that lie as they are: of a data set without chunks, or the first ones of a
// chunk without filters.
func (d *Dataset) stored(ctx context.Context, addr uint64, out []byte) {
	guard.Check(d.f.r.ReadAt(ctx, out, d.f.place(addr, uint64(len(out)), "the data")))
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
func (d *Dataset) native(b []byte) { elements.Swap(b, b, d.swap) }

// assemble decodes the chunks of a band into its rows, as many at once as there are cores.
func (d *Dataset) assemble(ctx context.Context, i, first, n int64, out []byte) {
	index, across := d.chunkIndex(ctx), d.across()
	if d.whole {
		ref, ok := index.find(i)
		switch {
		case !ok:
			d.blank(out)
			return
		case int64(len(out)) == d.chunkBytes:
			d.chunk(ctx, ref, out)
			return
		case len(d.filters) == 0 || d.layout.rawEdges:
			d.stored(ctx, ref.addr, out)
			return
		}
	}
	var stored []chunkRef
	for k := range across {
		// Where nothing was written, fill values: a data set of a few bytes may have millions of
		// such chunks.
		if ref, ok := index.find(i*across + k); ok {
			stored = append(stored, ref)
			continue
		}
		if k&0xfff == 0 {
			guard.Check(ctx.Err())
		}
		d.place(k, n, out, nil)
	}
	guard.Check(each(ctx, d.workers(), len(stored), func(ctx context.Context, k int) error {
		buf := make([]byte, d.chunkBytes)
		d.chunk(ctx, stored[k], buf)
		d.place(stored[k].number-i*across, n, out, buf)
		return nil
	}))
}

// across is how many chunks a band has.
func (d *Dataset) across() int64 {
	n, _ := product(d.grid[1:])
	return n
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

// chunk reads and decodes a chunk into out, which is as large as one.
func (d *Dataset) chunk(ctx context.Context, ref chunkRef, out []byte) {
	if len(d.filters) == 0 || d.layout.rawEdges && d.edge(ref.number) {
		d.stored(ctx, ref.addr, out)
		return
	}
	at := d.f.place(ref.addr, uint64(ref.size), "a chunk")
	if size := int64(
		ref.size,
	); size*maxRatio+maxRatio < d.chunkBytes ||
		size > d.chunkBytes+d.chunkBytes/8+4096 {
		d.f.bad(
			ref.addr,
			"chunk %d has %d bytes and claims to hold %d",
			ref.number,
			size,
			d.chunkBytes,
		)
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	stored := room(&s.stored, int(ref.size))
	guard.Check(d.f.r.ReadAt(ctx, stored, at))
	if err := undo(d.filters, ref.mask, stored, out, s); err != nil {
		e := d.f.error(robocache.ErrMalformed, ref.addr, "a chunk cannot be decoded")
		e.Where["chunk"], e.Err = ref.number, err
		guard.Fail(e)
	}
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
