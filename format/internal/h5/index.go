package h5

import (
	"context"
	"fmt"
	"math"
	"sort"
)

// chunkRef says where a chunk is stored.
type chunkRef struct {
	addr uint64
	size uint32
	mask uint32
}

// chunkIndex is where all chunks of a data set are stored, by their number in the grid of the data set's extent.
type chunkIndex struct {
	numbers []int64 // sorted; nil where refs is the whole grid
	refs    []chunkRef
}

func (x *chunkIndex) bytes() int64 { return int64(cap(x.numbers))*8 + int64(cap(x.refs))*16 }

// find gives a chunk; false where it was never written.
func (x *chunkIndex) find(n int64) (chunkRef, bool) {
	if x.numbers == nil {
		if n < int64(len(x.refs)) {
			return x.refs[n], x.refs[n].addr != undefined
		}
		return chunkRef{}, false
	}
	i := sort.Search(len(x.numbers), func(i int) bool { return x.numbers[i] >= n })
	if i < len(x.numbers) && x.numbers[i] == n {
		return x.refs[i], true
	}
	return chunkRef{}, false
}

// indexer collects chunks.
type indexer struct {
	f     *File
	d     *Dataset
	out   *chunkIndex
	limit int64
	order bool // numbers came in ascending order so far
	max   []int64
}

// add notes a chunk by its coordinates in the grid. Chunks outside of the extent are what a data set that shrank left behind.
func (x *indexer) add(at []int64, r chunkRef) error {
	if r.addr == undefined {
		return nil
	}
	n := int64(0)
	for i, v := range at {
		if v < 0 || v >= x.d.grid[i] {
			return nil
		}
		n = n*x.d.grid[i] + v
	}
	return x.put(n, r)
}

func (x *indexer) put(n int64, r chunkRef) error {
	if k := len(x.out.numbers); k > 0 && x.out.numbers[k-1] >= n {
		x.order = false
	}
	x.out.numbers = append(x.out.numbers, n)
	x.out.refs = append(x.out.refs, r)
	if x.out.bytes() > x.limit {
		return x.f.limit(x.d.addr, fmt.Sprintf("the index of %d and more chunks", len(x.out.refs)), uint64(x.out.bytes()), uint64(x.limit))
	}
	return nil
}

// addLinear notes a chunk by its number in a grid of the largest extent that the data set may have.
func (x *indexer) addLinear(n int64, r chunkRef, unlimited int) error {
	if r.addr == undefined {
		return nil
	}
	d := x.d
	var buf [maxRank]int64
	at := buf[:len(d.grid)]
	// The one dimension without limit counts as the first.
	for i := len(at) - 1; i >= 0; i-- {
		if i == unlimited {
			continue
		}
		at[i] = n % x.max[i]
		n /= x.max[i]
	}
	if unlimited >= 0 {
		at[unlimited] = n
	} else if n != 0 {
		return nil
	}
	return x.add(at, r)
}

func (x *indexer) finish() (*chunkIndex, error) {
	out := x.out
	if !x.order {
		sort.Sort((*byNumber)(out))
	}
	for i := 1; i < len(out.numbers); i++ {
		if out.numbers[i] == out.numbers[i-1] {
			return nil, x.f.bad(x.d.addr, fmt.Sprintf("chunk %d is stored twice", out.numbers[i]))
		}
	}
	if len(out.numbers) == 0 {
		out.numbers = []int64{}
	} else if int64(len(out.numbers)) == x.d.chunks {
		out.numbers = nil // all are there
	}
	return out, nil
}

type byNumber chunkIndex

func (x *byNumber) Len() int           { return len(x.numbers) }
func (x *byNumber) Less(i, j int) bool { return x.numbers[i] < x.numbers[j] }
func (x *byNumber) Swap(i, j int) {
	x.numbers[i], x.numbers[j] = x.numbers[j], x.numbers[i]
	x.refs[i], x.refs[j] = x.refs[j], x.refs[i]
}

// chunkIndex reads the index of a data set's chunks once; the cache keeps it.
func (d *Dataset) chunkIndex(ctx context.Context) (*chunkIndex, error) {
	k := key{d.f.id, kindIndex, d.addr, 0}
	if v, ok := d.f.cache.peek(k); ok {
		return v.(*chunkIndex), nil
	}
	v, err := d.f.cache.get(ctx, k, func() (any, int64, error) {
		x, err := d.readIndex(ctx)
		if err != nil {
			return nil, 0, err
		}
		return x, x.bytes(), nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*chunkIndex), nil
}

func (d *Dataset) readIndex(ctx context.Context) (*chunkIndex, error) {
	f, l := d.f, d.layout
	x := &indexer{f: f, d: d, out: &chunkIndex{}, order: true, limit: max(d.f.cache.Budget(), 1<<20)}
	if l.addr == undefined {
		return x.finish()
	}
	plain := uint32(d.chunkBytes)
	unlimited := -1
	for i, m := range d.max {
		n := d.grid[i]
		if m < 0 {
			unlimited = i
		} else {
			n = ceil(m, l.chunk[i])
		}
		x.max = append(x.max, max(n, 1))
	}
	var err error
	switch l.index {
	case indexTree1:
		err = x.tree1(ctx)
	case indexSingle:
		r := chunkRef{l.addr, plain, l.mask}
		if len(d.filters) > 0 {
			if l.size > math.MaxUint32 {
				return nil, f.bad(d.addr, fmt.Sprintf("a chunk of %d bytes", l.size))
			}
			r.size = uint32(l.size)
		}
		if d.chunks > 0 {
			err = x.put(0, r)
		}
	case indexImplicit:
		err = x.implicit()
	case indexFixed:
		err = x.fixed(ctx)
	case indexExtensible:
		err = x.extensible(ctx, unlimited)
	case indexTree2:
		err = x.tree2(ctx)
	}
	if err != nil {
		return nil, err
	}
	return x.finish()
}

func ceil(a, b int64) int64 {
	n := a / b
	if a%b != 0 {
		n++
	}
	return n
}

func (x *indexer) tree1(ctx context.Context) error {
	d := x.d
	rank := len(d.grid)
	at := make([]int64, rank)
	return x.f.tree1(ctx, d.layout.addr, 1, 8+8*(rank+1), func(key []byte, child uint64) error {
		c := x.f.cursor(key)
		r := chunkRef{size: c.u32(), mask: c.u32(), addr: child}
		for i := range at {
			off := c.u64()
			if off > math.MaxInt64 || int64(off)%d.layout.chunk[i] != 0 {
				return x.f.bad(d.layout.addr, fmt.Sprintf("a chunk that begins at %d of dimension %d", off, i))
			}
			at[i] = int64(off) / d.layout.chunk[i]
		}
		return x.add(at, r)
	})
}

func (x *indexer) tree2(ctx context.Context) error {
	d, f := x.d, x.f
	rank := len(d.grid)
	at := make([]int64, rank)
	return f.tree2(ctx, d.layout.addr, []uint8{recChunk, recFiltered}, func(kind uint8, rec []byte) error {
		c := f.cursor(rec)
		r := chunkRef{addr: c.addr(), size: uint32(d.chunkBytes)}
		if kind == recFiltered {
			size := c.uint(len(rec) - f.osz - 4 - 8*rank)
			if size > math.MaxUint32 {
				return f.bad(d.layout.addr, fmt.Sprintf("a chunk of %d bytes", size))
			}
			r.size, r.mask = uint32(size), c.u32()
		}
		for i := range at {
			v := c.u64()
			if v > math.MaxInt64 {
				return f.bad(d.layout.addr, "the place of a chunk")
			}
			at[i] = int64(v)
		}
		if c.short {
			return f.bad(d.layout.addr, "a record of a chunk is cut off")
		}
		return x.add(at, r)
	})
}

// implicit chunks lie one after the other.
func (x *indexer) implicit() error {
	d := x.d
	total, ok := product(x.max)
	if !ok || uint64(total) > x.f.size/uint64(max(d.chunkBytes, 1)) {
		return x.f.bad(d.layout.addr, fmt.Sprintf("%d chunks of %d bytes in a file of %d", total, d.chunkBytes, x.f.size))
	}
	for n := range total {
		if err := x.addLinear(n, chunkRef{d.layout.addr + uint64(n*d.chunkBytes), uint32(d.chunkBytes), 0}, -1); err != nil {
			return err
		}
	}
	return nil
}
