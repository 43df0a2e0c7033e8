package h5

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// chunkRef says where a chunk is stored.
type chunkRef struct {
	number int64 // in the grid of the data set's extent
	addr   uint64
	size   uint32
	mask   uint32
}

// chunkIndex is where the chunks of a data set that were written are stored, by their numbers.
type chunkIndex []chunkRef

func (x chunkIndex) bytes() int64 { return int64(cap(x)) * 24 }

// find gives a chunk; false where it was never written.
func (x chunkIndex) find(n int64) (chunkRef, bool) {
	if n < int64(len(x)) && x[n].number == n {
		return x[n], true // all before it are there
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

// indexer collects chunks.
type indexer struct {
	*File
	d         *Dataset
	out       chunkIndex
	limit     int64
	max       []int64 // the largest grid that the data set may have
	unlimited int     // the dimension that counts as the first in numbers of that grid; -1: none
	filtered  bool    // of fixed and extensible arrays: elements say the size and the mask
	size      int     // of their elements
}

// add notes a chunk by its coordinates in the grid. Chunks outside of the extent are what a data
// set that shrank left behind.
func (x *indexer) add(at []int64, r chunkRef) {
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
	if x.out.bytes() > x.limit {
		guard.Fail(
			x.above(
				x.d.addr,
				fmt.Sprintf("the index of %d and more chunks", len(x.out)),
				uint64(x.out.bytes()),
				uint64(x.limit),
			),
		)
	}
}

// addLinear notes a chunk by its number in the largest grid.
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
	x.add(at, r)
}

// ref reads the place of a chunk, and of a filtered one its size, of so many bytes, and mask.
func (x *indexer) ref(c *cursor, filtered bool, width int) chunkRef {
	r := chunkRef{addr: c.addr(), size: uint32(x.d.chunkBytes)}
	if filtered {
		size := c.uint(width)
		r.mask = c.u32()
		if r.addr != undefined && size > math.MaxUint32 {
			x.bad(x.d.layout.addr, "a chunk of %d bytes", size)
		}
		r.size = uint32(size)
	}
	return r
}

// chunkIndex reads the index of a data set's chunks once; the cache keeps it.
func (d *Dataset) chunkIndex(ctx context.Context) chunkIndex {
	return cached(ctx, d.f, key{d.f.id, kindIndex, d.addr, 0}, func() (chunkIndex, int64) {
		x := &indexer{File: d.f, d: d, limit: max(d.f.cache.Budget(), 1<<20), unlimited: -1}
		if d.layout.addr != undefined {
			x.read(ctx)
		}
		byNumber := func(a, b chunkRef) int { return cmp.Compare(a.number, b.number) }
		if !slices.IsSortedFunc(x.out, byNumber) {
			slices.SortFunc(x.out, byNumber)
		}
		for i := 1; i < len(x.out); i++ {
			if x.out[i].number == x.out[i-1].number {
				d.f.bad(d.addr, "chunk %d is stored twice", x.out[i].number)
			}
		}
		return x.out, x.out.bytes()
	})
}

// read visits the chunks by whichever index there is.
func (x *indexer) read(ctx context.Context) {
	d, l := x.d, x.d.layout
	rank := len(d.grid)
	at := make([]int64, rank)
	open := -1
	for i, m := range d.max {
		n := d.grid[i]
		if m < 0 {
			open = i
		} else {
			n = ceil(m, l.chunk[i])
		}
		x.max = append(x.max, max(n, 1))
	}
	switch l.index {
	case indexTree1:
		x.tree1(ctx, l.addr, 1, 8+8*(rank+1), func(key []byte, child uint64) {
			c := x.cursor(l.addr, "a key of a B-tree", key)
			r := chunkRef{size: c.u32(), mask: c.u32(), addr: child}
			for i := range at {
				off := c.u64()
				if off > math.MaxInt64 || int64(off)%l.chunk[i] != 0 {
					x.bad(l.addr, "a chunk that begins at %d of dimension %d", off, i)
				}
				at[i] = int64(off) / l.chunk[i]
			}
			x.add(at, r)
		})
	case indexTree2:
		x.tree2(ctx, l.addr, func(kind uint8, rec *cursor) {
			r := x.ref(rec, kind == recFiltered, rec.left()-x.osz-4-8*rank)
			for i := range at {
				v := rec.u64()
				if v > math.MaxInt64 {
					x.bad(l.addr, "the place of a chunk")
				}
				at[i] = int64(v)
			}
			x.add(at, r)
		}, recChunk, recFiltered)
	case indexSingle:
		r := chunkRef{addr: l.addr, size: uint32(d.chunkBytes), mask: l.mask}
		if len(d.filters) > 0 {
			if l.size > math.MaxUint32 {
				x.bad(d.addr, "a chunk of %d bytes", l.size)
			}
			r.size = uint32(l.size)
		}
		x.add(at, r)
	case indexImplicit: // chunks lie one after the other
		total, ok := product(x.max)
		if !ok || uint64(total) > x.File.size/uint64(max(d.chunkBytes, 1)) {
			x.bad(l.addr, "%d chunks of %d bytes in a file of %d", total, d.chunkBytes, x.File.size)
		}
		for n := range total {
			x.addLinear(
				n,
				chunkRef{addr: l.addr + uint64(n*d.chunkBytes), size: uint32(d.chunkBytes)},
			)
		}
	case indexFixed:
		x.fixed(ctx)
	case indexExtensible:
		x.unlimited = open
		x.extensible(ctx)
	}
}

func ceil(a, b int64) int64 {
	n := a / b
	if a%b != 0 {
		n++
	}
	return n
}
