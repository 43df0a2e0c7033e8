package zarr

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
)

// shard says how chunks lie together in one file: an index of (offset, size) pairs at its end or beginning.
type shard struct {
	outer []int // elements of a shard in each dimension
	per   []int // chunks of a shard in each dimension
	index pipeline
	bytes int64 // of the index as it lies in the file
	raw   int64
	start bool
}

const maxShardIndex = 64 << 20

// codecsV3 reads an array's codecs; a chain that is sharding alone makes the inner chunks the array's.
func (a *Array) codecsV3(codecs []named) (err error) {
	if len(codecs) != 1 || codecs[0].Name != "sharding_indexed" {
		a.pipe, err = a.chainV3(a.chunks, codecs)
		return err
	}
	var c struct {
		Shape    []int   `json:"chunk_shape"`
		Codecs   []named `json:"codecs"`
		Index    []named `json:"index_codecs"`
		Location string  `json:"index_location"`
	}
	if err := json.Unmarshal(codecs[0].Config, &c); err != nil {
		return malformed("sharding_indexed: %v", err)
	}
	if len(c.Shape) != len(a.Shape) {
		return malformed("sharding_indexed: chunk_shape %v", c.Shape)
	}
	s := &shard{outer: a.chunks, per: make([]int, len(c.Shape)), start: c.Location == "start"}
	n := 1
	for i, v := range c.Shape {
		if v <= 0 || a.chunks[i]%v != 0 {
			return malformed("sharding_indexed: chunks %v in shards of %v", c.Shape, a.chunks)
		}
		s.per[i] = a.chunks[i] / v
		if n *= s.per[i]; n > maxShardIndex/16 {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zarr", Msg: "a shard of too many chunks"}
		}
	}
	if c.Location != "" && c.Location != "start" && c.Location != "end" {
		return malformed("sharding_indexed: index_location %q", c.Location)
	}
	if len(c.Index) == 0 {
		c.Index = []named{{Name: "bytes"}}
	}
	table := &Array{Type: npy.Type{Kind: 'u', Size: 8}}
	if s.index, err = table.chainV3([]int{n, 2}, c.Index); err != nil {
		return robocache.At(err, robocache.Where{"codec": "sharding_indexed index"})
	}
	s.raw = int64(n) * 16
	s.bytes = s.raw
	for i := range s.index.steps {
		switch s.index.steps[i].name {
		case "bytes", "transpose":
		case "crc32c":
			s.bytes += 4
		default:
			return unsupported("sharding_indexed: an index packed by %s", s.index.steps[i].name)
		}
	}
	if a.pipe, err = a.chainV3(c.Shape, c.Codecs); err != nil {
		return err
	}
	a.shard = s
	a.setChunks(c.Shape)
	return nil
}

// table reads a shard's index; nil where the shard is absent.
func (d *tree) table(ctx context.Context, a *Array, outer []int, name string) ([]uint64, error) {
	key := unit{a.id, -1 - linear(outer, outerGrid(a))}
	v, err := d.cache.Get(ctx, key, func() (*chunk, int64, error) {
		r, err := d.st.Open(ctx, name)
		if errors.Is(err, robocache.ErrNotFound) {
			return &chunk{}, 64, nil
		}
		if err != nil {
			return nil, 0, err
		}
		defer r.Close()
		s := a.shard
		if r.Size() < s.bytes {
			return nil, 0, malformed("a shard of %d bytes has no index of %d", r.Size(), s.bytes)
		}
		b := make([]byte, s.bytes)
		off := r.Size() - s.bytes
		if s.start {
			off = 0
		}
		if err := r.ReadAt(ctx, b, off); err != nil {
			return nil, 0, err
		}
		if b, err = s.index.decode(b, s.raw); err != nil {
			return nil, 0, err
		}
		out := make([]uint64, len(b)/8)
		for i := range out {
			out[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		return &chunk{table: out}, int64(len(b)) + 64, nil
	})
	if err != nil {
		return nil, err
	}
	return v.table, nil
}

func outerGrid(a *Array) []int {
	g := make([]int, len(a.Shape))
	for i, c := range a.shard.outer {
		g[i] = (a.Shape[i] + c - 1) / c
	}
	return g
}

// packed gives a chunk's bytes out of its shard; nil where it is absent.
func (d *tree) packedInShard(ctx context.Context, a *Array, index []int) ([]byte, string, error) {
	s := a.shard
	outer, inner := make([]int, len(index)), make([]int, len(index))
	for i, v := range index {
		outer[i], inner[i] = v/s.per[i], v%s.per[i]
	}
	name := a.key(outer)
	table, err := d.table(ctx, a, outer, name)
	if err != nil || table == nil {
		return nil, name, err
	}
	at := linear(inner, s.per)
	off, n := table[2*at], table[2*at+1]
	if off == math.MaxUint64 && n == math.MaxUint64 {
		return nil, name, nil
	}
	r, err := d.st.Open(ctx, name)
	if err != nil {
		return nil, name, err
	}
	defer r.Close()
	raw, err := bytesOf(a.chunks, a.Type.Size)
	if err != nil {
		return nil, name, err
	}
	if n > uint64(r.Size()) || off > uint64(r.Size())-n {
		return nil, name, malformed("%d bytes at %d do not lie in the shard of %d", n, off, r.Size())
	}
	if int64(n) > a.pipe.maxPacked(raw) {
		return nil, name, malformed("a chunk of %d bytes takes %d", raw, n)
	}
	b := make([]byte, n)
	return b, name, r.ReadAt(ctx, b, int64(off))
}

// linear is a chunk's number in row-major order of a grid.
func linear(index, grid []int) int64 {
	var n int64
	for i, v := range index {
		n = n*int64(max(grid[i], 1)) + int64(v)
	}
	return n
}
