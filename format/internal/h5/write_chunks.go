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

// chunkWriter divides rows into chunks, compresses them on all cores, and writes them in order.
type chunkWriter struct {
	d       *DatasetWriter
	size    int64 // bytes of a chunk
	rest    []byte
	batch   [][]byte // full chunks that are not compressed yet
	entries []chunkEntry
}

type chunkEntry struct {
	addr uint64
	size uint32
}

func newChunkWriter(d *DatasetWriter) *chunkWriter {
	return &chunkWriter{d: d, size: d.spec.ChunkRows * d.rowBytes}
}

func (c *chunkWriter) addRows(p []byte) {
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
				c.flushBatch()
			}
		}
	}
}

func (c *chunkWriter) flushBatch() {
	packed := make([][]byte, len(c.batch))
	var g errgroup.Group
	for i, raw := range c.batch {
		g.Go(func() (err error) {
			defer guard.Recover("write hdf5", &err)
			packed[i], err = c.packChunk(raw)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		c.d.w.recordError(err)
		return
	}
	for _, p := range packed {
		if uint64(len(p)) > math.MaxUint32 {
			c.d.w.recordError(writeMisuse("a chunk of %d bytes", len(p)))
			return
		}
		c.entries = append(c.entries, chunkEntry{c.d.w.appendBlock(p), uint32(len(p))})
	}
	c.batch = c.batch[:0]
}

var deflaters [10]sync.Pool

func (c *chunkWriter) packChunk(raw []byte) ([]byte, error) {
	spec := &c.d.spec
	if spec.Shuffle {
		out := make([]byte, len(raw))
		elements.Shuffle(out, raw, int(c.d.elementBytes))
		raw = out
	}
	if spec.Deflate == 0 {
		return raw, nil
	}
	var out bytes.Buffer
	z, _ := deflaters[spec.Deflate].Get().(*zlib.Writer)
	if z == nil {
		z, _ = zlib.NewWriterLevel(nil, spec.Deflate) // Dataset checked the level
	}
	defer deflaters[spec.Deflate].Put(z)
	z.Reset(&out)
	_, err := z.Write(raw)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// writeIndex writes the remaining chunks and the index, and returns the layout message. A single
// chunk has no index. Several chunks have a B-tree of version 1.
func (c *chunkWriter) writeIndex() []byte {
	if len(c.rest) > 0 {
		// the last chunk is padded, because chunks are stored whole
		c.batch = append(c.batch, append(c.rest, make([]byte, c.size-int64(len(c.rest)))...))
	}
	c.flushBatch()
	d := c.d
	rank := len(d.spec.Shape)
	dims := append(append([]int64{d.spec.ChunkRows}, d.spec.Shape[1:]...), d.elementBytes)
	if len(c.entries) != 1 {
		small := make([]uint32, len(dims))
		for i, n := range dims {
			small[i] = uint32(n)
		}
		return packMetadata(u8(3), u8(2), u8(rank+1), c.writeTree(rank), small)
	}
	e := c.entries[0]
	// HDF5 2.0 rejects a width that is larger than needed
	width := (bits.Len64(uint64(slices.Max(dims))) + 7) / 8
	var sizes []byte
	for _, n := range dims {
		sizes = append(sizes, packMetadata(n)[:width]...)
	}
	if d.filterMessage() == nil {
		return packMetadata(u8(4), u8(2), u8(0), u8(rank+1), u8(width), sizes, u8(1), e.addr)
	}
	return packMetadata(
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

// treeWidth is the maximum number of children of a node. It is twice libhdf5's default of 32, which
// superblock 2 implies.
const treeWidth = 64

// treeNode is a child in one level of the tree.
type treeNode struct {
	addr uint64
	row  uint64 // first row
	size uint32 // stored size of the first chunk, which is part of the key
}

// writeTree writes the B-tree of the chunks, leaves first, and returns the address of its root.
func (c *chunkWriter) writeTree(rank int) uint64 {
	if len(c.entries) == 0 {
		return undefined
	}
	level := make([]treeNode, len(c.entries))
	for i, e := range c.entries {
		level[i] = treeNode{e.addr, uint64(i) * uint64(c.d.spec.ChunkRows), e.size}
	}
	end := uint64(len(level)) * uint64(c.d.spec.ChunkRows) // row of the last key
	keySize := 8 + 8*(rank+1)
	size := 24 + (treeWidth+1)*keySize + treeWidth*8
	for depth := uint8(0); ; depth++ {
		count := (len(level) + treeWidth - 1) / treeWidth
		stride := int64(size+7) &^ 7
		// contiguous, so that the addresses of siblings are known
		first := c.d.w.reserveBytes(stride * int64(count))
		var up []treeNode
		for i := range count {
			part := level[i*treeWidth : min((i+1)*treeWidth, len(level))]
			sibling := func(k int) uint64 {
				if k < 0 || k >= count {
					return undefined
				}
				return uint64(first + stride*int64(k))
			}
			b := packMetadata("TREE", u8(1), depth, u16(len(part)), sibling(i-1), sibling(i+1))
			// no filter is skipped
			key := func(row uint64, size uint32) {
				b = append(
					b,
					packMetadata(size, u32(0), row, make([]byte, 8*rank))...,
				)
			}
			for _, n := range part {
				key(n.row, n.size)
				b = append(b, packMetadata(n.addr)...)
			}
			if next := (i + 1) * treeWidth; next < len(level) {
				key(level[next].row, 0)
			} else {
				key(end, 0)
			}
			b = append(b, make([]byte, size-len(b))...)
			at := sibling(i)
			c.d.w.writeAt(b, int64(at))
			up = append(up, treeNode{at, part[0].row, part[0].size})
		}
		if count == 1 {
			return up[0].addr
		}
		level = up
	}
}
