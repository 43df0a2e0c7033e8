package h5

import (
	"bytes"
	"errors"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zlib"
	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// chunkWriter cuts rows into chunks, packs them on all cores, and writes them in order.
type chunkWriter struct {
	d       *DatasetWriter
	size    int64 // bytes of a chunk
	rest    []byte
	batch   [][]byte // full chunks that wait to be packed
	entries []chunkEntry
}

type chunkEntry struct {
	addr uint64
	size uint32
}

func newChunkWriter(d *DatasetWriter) *chunkWriter {
	return &chunkWriter{d: d, size: d.spec.ChunkRows * d.row}
}

func (c *chunkWriter) add(p []byte) {
	for len(p) > 0 {
		n := min(int64(len(p)), c.size-int64(len(c.rest)))
		if c.rest == nil {
			c.rest = make([]byte, 0, c.size)
		}
		c.rest = append(c.rest, p[:n]...)
		p = p[n:]
		if int64(len(c.rest)) == c.size {
			c.batch = append(c.batch, c.rest)
			c.rest = nil
			if len(c.batch) >= runtime.GOMAXPROCS(0) {
				c.flush()
			}
		}
	}
}

func (c *chunkWriter) flush() {
	packed := make([][]byte, len(c.batch))
	var g errgroup.Group
	for i, raw := range c.batch {
		g.Go(func() (err error) {
			defer guard.Recover("write hdf5", &err)
			packed[i], err = c.pack(raw)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		c.d.w.keep(err)
		return
	}
	for _, p := range packed {
		if uint64(len(p)) > math.MaxUint32 {
			c.d.w.keep(writeMisuse("a chunk of %d bytes", len(p)))
			return
		}
		c.entries = append(c.entries, chunkEntry{c.d.w.add(p), uint32(len(p))})
	}
	c.batch = c.batch[:0]
}

var deflaters [10]sync.Pool

func (c *chunkWriter) pack(raw []byte) ([]byte, error) {
	spec := &c.d.spec
	if spec.Shuffle {
		out := make([]byte, len(raw))
		elements.Shuffle(out, raw, int(c.d.size))
		raw = out
	}
	if spec.Deflate == 0 {
		return raw, nil
	}
	var out bytes.Buffer
	z, _ := deflaters[spec.Deflate].Get().(*zlib.Writer)
	if z == nil {
		z, _ = zlib.NewWriterLevel(nil, spec.Deflate) // the level was checked
	}
	defer deflaters[spec.Deflate].Put(z)
	z.Reset(&out)
	_, err := z.Write(raw)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// end packs what is left and writes the index: none for one chunk, else a B-tree of version 1. It
// gives the layout message.
func (c *chunkWriter) end() []byte {
	if len(c.rest) > 0 {
		// chunks are stored whole
		c.batch = append(c.batch, append(c.rest, make([]byte, c.size-int64(len(c.rest)))...))
	}
	c.flush()
	d := c.d
	rank := len(d.spec.Shape)
	dims := append(append([]int64{d.spec.ChunkRows}, d.spec.Shape[1:]...), d.size)
	if len(c.entries) != 1 {
		small := make([]uint32, len(dims))
		for i, n := range dims {
			small[i] = uint32(n)
		}
		return pack(u8(3), u8(2), u8(rank+1), c.tree(rank), small)
	}
	e := c.entries[0]
	// HDF5 2.0 takes no more than are needed
	width := (bits.Len64(uint64(slices.Max(dims))) + 7) / 8
	var sizes []byte
	for _, n := range dims {
		sizes = append(sizes, pack(n)[:width]...)
	}
	if d.filters() == nil {
		return pack(u8(4), u8(2), u8(0), u8(rank+1), u8(width), sizes, u8(1), e.addr)
	}
	return pack(
		u8(4),
		u8(2),
		u8(2),
		u8(rank+1),
		u8(width),
		sizes,
		u8(1),
		uint64(e.size),
		u32(0),
		e.addr,
	)
}

// treeWidth is the most children of a node: twice libhdf5's default of 32, which a file of
// superblock 2 stands for.
const treeWidth = 64

// node is a child of a level of the tree.
type node struct {
	addr uint64
	row  uint64 // first of its rows
	size uint32 // of the chunk that its key names
}

// tree writes the B-tree over the chunks, leaves first, and gives the address of its root.
func (c *chunkWriter) tree(rank int) uint64 {
	if len(c.entries) == 0 {
		return undefined
	}
	level := make([]node, len(c.entries))
	for i, e := range c.entries {
		level[i] = node{e.addr, uint64(i) * uint64(c.d.spec.ChunkRows), e.size}
	}
	end := uint64(len(level)) * uint64(c.d.spec.ChunkRows) // behind the last key
	keySize := 8 + 8*(rank+1)
	size := 24 + (treeWidth+1)*keySize + treeWidth*8
	for depth := uint8(0); ; depth++ {
		count := (len(level) + treeWidth - 1) / treeWidth
		stride := int64(size+7) &^ 7
		first := c.d.w.take(stride * int64(count)) // side by side, so that siblings are known
		var up []node
		for i := range count {
			part := level[i*treeWidth : min((i+1)*treeWidth, len(level))]
			sibling := func(k int) uint64 {
				if k < 0 || k >= count {
					return undefined
				}
				return uint64(first + stride*int64(k))
			}
			b := pack("TREE", u8(1), depth, u16(len(part)), sibling(i-1), sibling(i+1))
			// no filter is left out
			key := func(row uint64, size uint32) { b = append(b, pack(size, u32(0), row, make([]byte, 8*rank))...) }
			for _, n := range part {
				key(n.row, n.size)
				b = append(b, pack(n.addr)...)
			}
			if next := (i + 1) * treeWidth; next < len(level) {
				key(level[next].row, 0)
			} else {
				key(end, 0)
			}
			b = append(b, make([]byte, size-len(b))...)
			at := sibling(i)
			c.d.w.writeAt(b, int64(at))
			up = append(up, node{at, part[0].row, part[0].size})
		}
		if count == 1 {
			return up[0].addr
		}
		level = up
	}
}
