package zarr

import (
	"context"
	"errors"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
)

// shard describes how chunks are stored in one file, with an index of (offset, size) pairs at its
// end or beginning.
type shard struct {
	outer          []int // elements of a shard in each dimension
	chunksPerShard []int // chunks of a shard in each dimension
	index          pipeline
	bytes          int64 // stored size of the index
	raw            int64
	start          bool
}

const maxShardIndex = 64 << 20

// setCodecs reads the codecs of an array. If the only codec is sharding, the inner chunks become
// the chunks of the array. t is the stored type.
func (a *Array) setCodecs(codecs []codec, t npy.Type) error {
	if len(codecs) != 1 || codecs[0].name != "sharding_indexed" {
		var err error
		if a.pipe, err = a.buildPipeline(a.chunks, t, codecs); err != nil {
			return err
		}
		return nil
	}
	var c struct {
		Shape    []int   `json:"chunk_shape"`
		Codecs   []codec `json:"codecs"`
		Index    []codec `json:"index_codecs"`
		Location string  `json:"index_location"`
	}
	if err := codecs[0].decodeParameters(&c); err != nil {
		return err
	}
	if len(c.Shape) != len(a.Shape) {
		return bad("sharding_indexed: chunk_shape %v", c.Shape)
	}
	s := &shard{
		outer:          a.chunks,
		chunksPerShard: make([]int, len(c.Shape)),
		start:          c.Location == "start",
	}
	n := 1
	for i, v := range c.Shape {
		if v <= 0 || a.chunks[i]%v != 0 {
			return bad("sharding_indexed: chunks %v in shards of %v", c.Shape, a.chunks)
		}
		s.chunksPerShard[i] = a.chunks[i] / v
		if n *= s.chunksPerShard[i]; n > maxShardIndex/16 {
			return robocache.ResourceLimit("zarr", nil, "a shard of too many chunks")
		}
	}
	if c.Location != "" && c.Location != "start" && c.Location != "end" {
		return bad("sharding_indexed: index_location %q", c.Location)
	}
	if len(c.Index) == 0 {
		c.Index = []codec{{name: "bytes"}}
	}
	table := npy.Type{Kind: 'u', Size: 8}
	err := func() error {
		chain, err := (&Array{Type: table}).buildPipeline([]int{n, 2}, table, c.Index)
		if err != nil {
			return err
		}
		s.index = chain
		return nil
	}()
	if err := robocache.At(err, robocache.Where{"codec": "sharding_indexed index"}); err != nil {
		return err
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
	if a.pipe, err = a.buildPipeline(c.Shape, t, c.Codecs); err != nil {
		return err
	}
	a.shard = s
	a.setChunks(c.Shape)
	return nil
}

// shardIndex reads the index of a shard. The table is nil if the shard is missing.
func (d *tree) shardIndex(ctx context.Context, a *Array, outer []int, name string) (*chunk, error) {
	return d.cache.Load(
		ctx,
		cacheKey{a.id, -1 - chunkNumber(outer, outerGrid(a))},
		func() (*chunk, int64, error) {
			r, err := d.st.Open(ctx, name)
			if errors.Is(err, robocache.ErrNotFound) {
				return &chunk{}, 64, nil
			}
			if err != nil {
				return nil, 0, err
			}
			c, size := &chunk{}, int64(64)
			if robocache.IsRemote(r) {
				// keep the beginning: opening the shard again would need a request for each chunk
				c.file, size = r, 64+16<<10
			} else {
				defer r.Close()
			}
			s := a.shard
			if r.Size() < s.bytes {
				return nil, 0, bad("a shard of %d bytes has no index of %d", r.Size(), s.bytes)
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
			c.table = make([]uint64, len(b)/8)
			for i := range c.table {
				c.table[i] = le.Uint64(b[8*i:])
			}
			return c, int64(len(b)) + size, nil
		},
	)
}

func outerGrid(a *Array) []int {
	g := make([]int, len(a.Shape))
	for i, c := range a.shard.outer {
		g[i] = (a.Shape[i] + c - 1) / c
	}
	return g
}

// packedInShard returns the stored bytes of a chunk in a shard. It returns nil if the chunk is
// missing.
func (d *tree) packedInShard(
	ctx context.Context,
	a *Array,
	index []int,
	raw int64,
	room func(n int64) []byte,
) (_ []byte, _ string, err error) {
	s := a.shard
	outer, inner := make([]int, len(index)), make([]int, len(index))
	for i, v := range index {
		outer[i], inner[i] = v/s.chunksPerShard[i], v%s.chunksPerShard[i]
	}
	name := a.key(outer)
	defer robocache.LocateIn(&err, "file", name)
	shard, err := d.shardIndex(ctx, a, outer, name)
	if err != nil {
		return nil, "", err
	}
	if shard.table == nil {
		return nil, name, nil
	}
	at := chunkNumber(inner, s.chunksPerShard)
	off, n := shard.table[2*at], shard.table[2*at+1]
	if off == math.MaxUint64 && n == math.MaxUint64 {
		return nil, name, nil
	}
	r := shard.file
	if r == nil {
		if r, err = d.st.Open(ctx, name); err != nil {
			return nil, "", err
		}
		defer r.Close()
	}
	if n > uint64(r.Size()) || off > uint64(r.Size())-n {
		return nil, "", bad("%d bytes at %d do not lie in the shard of %d", n, off, r.Size())
	}
	if int64(n) > a.pipe.maxPacked(raw) {
		return nil, "", bad("a chunk of %d bytes takes %d", raw, n)
	}
	b := room(int64(n))
	if err := r.ReadAt(ctx, b, int64(off)); err != nil {
		return nil, "", err
	}
	return b, name, nil
}

// chunkNumber returns the number of a chunk in row-major order of a grid.
func chunkNumber(index, grid []int) int64 {
	var n int64
	for i, v := range index {
		n = n*int64(max(grid[i], 1)) + int64(v)
	}
	return n
}
