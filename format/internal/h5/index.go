package h5

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// chunkRef is the location of a stored chunk.
type chunkRef struct {
	number int64 // position in the grid of the data set's extent
	addr   uint64
	size   uint32
	mask   uint32
}

// chunkIndex lists the chunks of a data set that were written, sorted by number.
type chunkIndex []chunkRef

func (x chunkIndex) memoryBytes() int64 { return int64(cap(x)) * 24 }

// findChunk returns the chunk with number n. It returns false if the chunk was never written.
func (x chunkIndex) findChunk(n int64) (chunkRef, bool) {
	if n < int64(len(x)) && x[n].number == n {
		return x[n], true // no chunk before n is missing
	}
	i, ok := slices.BinarySearchFunc(
		x,
		n,
		func(r chunkRef, n int64) int { return cmp.Compare(r.number, n) },
	)
	if !ok {
		return chunkRef{}, false
	}
	return x[i], true
}

// indexer collects the chunks of a data set from its index.
type indexer struct {
	*File
	d         *Dataset
	out       chunkIndex
	limit     int64
	max       []int64 // the largest grid that the data set may grow to
	unlimited int     // dimension that comes first in the numbering of that grid; -1 means none
	filtered  bool    // elements of fixed and extensible arrays contain size and mask
	size      int     // bytes of an element of such an array
}

// addChunk adds a chunk by its coordinates in the grid. It ignores chunks outside the extent, which
// remain after a data set has been made smaller.
func (x *indexer) addChunk(at []int64, r chunkRef) {
	if r.addr == undefined {
		return
	}
	r.number = 0
	for i, v := range at {
		if v < 0 || v >= x.d.grid[i] {
			return
		}
		r.number = r.number*x.d.grid[i] + v
	}
	x.out = append(x.out, r)
	if x.out.memoryBytes() > x.limit {
		guard.Fail(
			x.limitError(
				x.d.addr,
				fmt.Sprintf("the index of %d and more chunks", len(x.out)),
				uint64(x.out.memoryBytes()),
				uint64(x.limit),
			),
		)
	}
}

// addLinear adds a chunk by its number in the largest grid.
func (x *indexer) addLinear(n int64, r chunkRef) {
	if r.addr == undefined {
		return
	}
	var buf [maxRank]int64
	at := buf[:len(x.d.grid)]
	for i := len(at) - 1; i >= 0; i-- {
		if i != x.unlimited {
			at[i] = n % x.max[i]
			n /= x.max[i]
		}
	}
	if x.unlimited >= 0 {
		at[x.unlimited] = n
	} else if n != 0 {
		return
	}
	x.addChunk(at, r)
}

// readRef reads the address of a chunk. For a filtered chunk it also reads the size, a number of
// width bytes, and the mask.
func (x *indexer) readRef(c *cursor, filtered bool, width int) chunkRef {
	r := chunkRef{addr: c.readAddr(), size: uint32(x.d.chunkBytes)}
	if filtered {
		size := c.uint(width)
		r.mask = c.u32()
		if r.addr != undefined && size > math.MaxUint32 {
			x.failMalformed(x.d.layout.addr, "a chunk of %d bytes", size)
		}
		r.size = uint32(size)
	}
	return r
}

// loadChunkIndex returns the chunk index of a data set. The index is read once and cached.
func (d *Dataset) loadChunkIndex(ctx context.Context) chunkIndex {
	return loadCached(ctx, d.f, key{d.f.id, kindIndex, d.addr, 0}, func() (chunkIndex, int64) {
		x := &indexer{File: d.f, d: d, limit: max(d.f.cache.Budget(), 1<<20), unlimited: -1}
		if d.layout.addr != undefined {
			x.readIndex(ctx)
		}
		byNumber := func(a, b chunkRef) int { return cmp.Compare(a.number, b.number) }
		if !slices.IsSortedFunc(x.out, byNumber) {
			slices.SortFunc(x.out, byNumber)
		}
		for i := 1; i < len(x.out); i++ {
			if x.out[i].number == x.out[i-1].number {
				d.f.failMalformed(d.addr, "chunk %d is stored twice", x.out[i].number)
			}
		}
		return x.out, x.out.memoryBytes()
	})
}

// readIndex adds all chunks from the index of the data set.
func (x *indexer) readIndex(ctx context.Context) {
	d, l := x.d, x.d.layout
	rank := len(d.grid)
	at := make([]int64, rank)
	open := -1
	for i, m := range d.max {
		n := d.grid[i]
		if m < 0 {
			open = i
		} else {
			n = ceilDiv(m, l.chunk[i])
		}
		x.max = append(x.max, max(n, 1))
	}
	switch l.index {
	case indexTree1:
		x.walkBTree1(ctx, l.addr, 1, 8+8*(rank+1), func(key []byte, child uint64) {
			c := x.newCursor(l.addr, "a key of a B-tree", key)
			r := chunkRef{size: c.u32(), mask: c.u32(), addr: child}
			for i := range at {
				off := c.u64()
				if off > math.MaxInt64 || int64(off)%l.chunk[i] != 0 {
					x.failMalformed(l.addr, "a chunk that begins at %d of dimension %d", off, i)
				}
				at[i] = int64(off) / l.chunk[i]
			}
			x.addChunk(at, r)
		})
	case indexTree2:
		x.walkBTree2(ctx, l.addr, func(kind uint8, rec *cursor) {
			r := x.readRef(rec, kind == recFiltered, rec.bytesLeft()-x.osz-4-8*rank)
			for i := range at {
				v := rec.u64()
				if v > math.MaxInt64 {
					x.failMalformed(l.addr, "the place of a chunk")
				}
				at[i] = int64(v)
			}
			x.addChunk(at, r)
		}, recChunk, recFiltered)
	case indexSingle:
		r := chunkRef{addr: l.addr, size: uint32(d.chunkBytes), mask: l.mask}
		if len(d.filters) > 0 {
			if l.size > math.MaxUint32 {
				x.failMalformed(d.addr, "a chunk of %d bytes", l.size)
			}
			r.size = uint32(l.size)
		}
		x.addChunk(at, r)
	case indexImplicit: // chunks are stored in order without gaps
		total, ok := dimProduct(x.max)
		if !ok || uint64(total) > x.File.size/uint64(max(d.chunkBytes, 1)) {
			x.failMalformed(
				l.addr,
				"%d chunks of %d bytes in a file of %d",
				total,
				d.chunkBytes,
				x.File.size,
			)
		}
		for n := range total {
			x.addLinear(
				n,
				chunkRef{addr: l.addr + uint64(n*d.chunkBytes), size: uint32(d.chunkBytes)},
			)
		}
	case indexFixed:
		x.readFixedArray(ctx)
	case indexExtensible:
		x.unlimited = open
		x.readExtensibleArray(ctx)
	}
}

func ceilDiv(a, b int64) int64 {
	n := a / b
	if a%b != 0 {
		n++
	}
	return n
}
