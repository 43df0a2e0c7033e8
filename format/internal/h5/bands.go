package h5

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// A band is a run of rows that is read, decoded and cached as a whole. In a chunked data set, a
// band is the rows of one row of chunks. Otherwise it has as many rows as fit into bandBytes.

// bandSpan returns the rows [first, first+n) of band i.
func (d *Dataset) bandSpan(i int64) (first, n int64) {
	first = i * d.bandRows
	return first, min(d.bandRows, d.rows-first)
}

// decodedBand returns the rows of band i in little-endian order. The caller must not modify them.
func (d *Dataset) decodedBand(ctx context.Context, i int64) (_ []byte, err error) {
	if b, ok := d.cachedBand(i); ok {
		return b, nil
	}
	defer guard.Recover("hdf5", &err)
	defer guard.In("file", d.f.name)
	defer guard.In("pointer", d.name)
	return loadCached(ctx, d.f, key{d.f.id, kindBand, d.addr, i}, func() ([]byte, int64) {
		b := d.readBand(ctx, i)
		return b, int64(len(b))
	}), nil
}

// maxHotBands limits how many bands of a data set are found without asking the cache.
const maxHotBands = 1 << 12

// Hold makes the data set keep its own pointers to its bands, so that a band is found in a few
// nanoseconds. Use Hold only for data sets that fit into the cache as a whole, because these bands
// are never evicted. Hold returns the memory that the pointers take. Caller must ensure that no
// read is running.
func (d *Dataset) Hold() int64 {
	n := (d.rows + max(d.bandRows, 1) - 1) / max(d.bandRows, 1)
	if n > maxHotBands || d.hotBands != nil {
		return 0
	}
	d.hotBands = make([]atomic.Pointer[[]byte], n)
	return n * 32
}

// cachedBand returns band i if it is in memory.
func (d *Dataset) cachedBand(i int64) ([]byte, bool) {
	if d.hotBands != nil {
		if b := d.hotBands[i].Load(); b != nil {
			return *b, true
		}
	}
	v, ok := d.f.cache.entries.Peek(key{d.f.id, kindBand, d.addr, i})
	if !ok {
		return nil, false
	}
	b := v.([]byte)
	if d.hotBands != nil {
		d.hotBands[i].Store(&b)
	}
	return b, true
}

func (d *Dataset) readBand(ctx context.Context, i int64) []byte {
	first, n := d.bandSpan(i)
	guard.Check(d.Readable())
	// A band that does not fit into the cache would be decoded again for each of its rows.
	most := max(min(maxChunk, d.f.cache.Budget()-entryOverhead), 0)
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
		d.readContiguous(ctx, first, out)
	case layoutChunked:
		d.assembleChunks(ctx, i, first, n, out)
	}
	d.toLittleEndian(out)
	return out
}

// tooLarge rejects rows that can only be decoded together.
func (d *Dataset) tooLarge(what string, got uint64, most int64) {
	e := d.f.limitError(d.addr, what, got, uint64(most))
	if e.Hint = "write the file with smaller chunks: h5repack -l CHUNK=…"; most < maxChunk &&
		got <= maxChunk {
		e.Hint = "raise the memory budget, or write the file with smaller chunks: h5repack -l " +
			"CHUNK=…"
	}
	guard.Fail(e)
}

// readContiguous reads rows of a contiguous data set.
func (d *Dataset) readContiguous(ctx context.Context, first int64, out []byte) {
	if d.layout.addr == undefined {
		d.fillBlank(out)
		return
	}
	d.readUnfiltered(ctx, d.layout.addr+uint64(first*d.rowBytes), out)
}

// readUnfiltered reads bytes that are stored without filters: rows of a data set without chunks, or
// the first bytes of an unfiltered chunk.
func (d *Dataset) readUnfiltered(ctx context.Context, addr uint64, out []byte) {
	guard.Check(d.f.r.ReadAt(ctx, out, d.f.fileOffset(addr, uint64(len(out)), "the data")))
}

// fillBlank fills out with the fill value.
func (d *Dataset) fillBlank(out []byte) {
	if d.fill == nil {
		clear(out)
		return
	}
	n := copy(out, d.fill)
	for n < len(out) {
		n += copy(out[n:], out[:n])
	}
}

// toLittleEndian swaps the bytes of big-endian elements in place.
func (d *Dataset) toLittleEndian(b []byte) { elements.Swap(b, b, d.swap) }

// assembleChunks decodes the chunks of a band into its rows, one chunk per core at a time.
func (d *Dataset) assembleChunks(ctx context.Context, i, first, n int64, out []byte) {
	index, across := d.loadChunkIndex(ctx), d.chunksPerBand()
	if d.wholeRowChunks {
		ref, ok := index.findChunk(i)
		switch {
		case !ok:
			d.fillBlank(out)
			return
		case int64(len(out)) == d.chunkBytes:
			d.readChunk(ctx, ref, out)
			return
		case len(d.filters) == 0 || d.layout.rawEdges:
			d.readUnfiltered(ctx, ref.addr, out)
			return
		}
	}
	var stored []chunkRef
	for k := range across {
		// Chunks that were never written get the fill value. A data set of a few bytes may have
		// millions of such chunks.
		if ref, ok := index.findChunk(i*across + k); ok {
			stored = append(stored, ref)
			continue
		}
		if k&0xfff == 0 {
			guard.Check(ctx.Err())
		}
		d.placeChunk(k, n, out, nil)
	}
	guard.Check(
		runParallel(ctx, d.workerCount(), len(stored), func(ctx context.Context, k int) error {
			buf := make([]byte, d.chunkBytes)
			d.readChunk(ctx, stored[k], buf)
			d.placeChunk(stored[k].number-i*across, n, out, buf)
			return nil
		}),
	)
}

// chunksPerBand returns the number of chunks in a band.
func (d *Dataset) chunksPerBand() int64 {
	n, _ := dimProduct(d.grid[1:])
	return n
}

// placeChunk copies the k-th chunk of a band to its position in out. A nil chunk stands for the
// fill value.
func (d *Dataset) placeChunk(k, n int64, out, chunk []byte) {
	size := int64(d.Type.Size)
	rank := len(d.Shape)
	// begin is where the chunk begins in each dimension except the first. inside is how much of the
	// chunk is inside the data set.
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
			d.fillBlank(dst)
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

// readChunk reads and decodes a chunk into out. The length of out is the size of a chunk.
func (d *Dataset) readChunk(ctx context.Context, ref chunkRef, out []byte) {
	if len(d.filters) == 0 || d.layout.rawEdges && d.reachesOverEdge(ref.number) {
		d.readUnfiltered(ctx, ref.addr, out)
		return
	}
	at := d.f.fileOffset(ref.addr, uint64(ref.size), "a chunk")
	if size := int64(ref.size); size*maxRatio+maxRatio < d.chunkBytes ||
		size > d.chunkBytes+d.chunkBytes/8+4096 {
		d.f.failMalformed(
			ref.addr,
			"chunk %d has %d bytes and claims to hold %d",
			ref.number,
			size,
			d.chunkBytes,
		)
	}
	s := scratches.Get().(*scratch)
	defer s.returnToPool()
	stored := growBuffer(&s.stored, int(ref.size))
	guard.Check(d.f.r.ReadAt(ctx, stored, at))
	if err := undoFilters(d.filters, ref.mask, stored, out, s); err != nil {
		e := d.f.newError(robocache.ErrMalformed, ref.addr, "a chunk cannot be decoded")
		e.Where["chunk"], e.Err = ref.number, err
		guard.Fail(e)
	}
}

// reachesOverEdge reports whether a chunk extends beyond the extent of the data set.
func (d *Dataset) reachesOverEdge(number int64) bool {
	for i := len(d.grid) - 1; i >= 0; i-- {
		at := number % d.grid[i]
		if (at+1)*d.layout.chunk[i] > d.Shape[i] {
			return true
		}
		number /= d.grid[i]
	}
	return false
}
