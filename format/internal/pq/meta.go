package pq

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Chunk is the location of one column of one row group.
type Chunk struct {
	Offset int64 // first byte; that of the dictionary page if there is one
	Size   int64 // compressed bytes, including headers
	Values int64 // including nulls
	Nulls  int64 // -1 if the footer does not contain the count
	Codec  int32
	// HasRange reports that the footer has the range of an integer column.
	HasRange bool
	Min, Max int64
}

// Group is a row group.
type Group struct {
	Start, Rows int64
	chunks      []Chunk // indexed by the values of File.chunkSlots
}

// File is a parsed footer with the columns that were requested. It is immutable.
type File struct {
	Size           int64
	Rows           int64
	Root           *Node
	Leaves         []*Node
	Groups         []Group
	Meta           map[string]string // key-value metadata, without the Arrow schema
	Creator        string
	chunkSlots     []int32 // index into Group.chunks by leaf, or -1
	chunksPerGroup int     // number of leaves with a chunk
	arrowSchema    string  // Arrow schema; set only if all columns were requested
}

const (
	footerGuess = 16 << 10
	maxFooter   = 1 << 30
)

// Open reads the footer. want selects the top-level columns whose chunks are kept, and nil selects
// all. want is called with the name of the top-level column. Other chunks are dropped, because
// footers of episodes files consist almost entirely of statistics.
func Open(
	ctx context.Context,
	r robocache.Ranged,
	want func(column string) bool,
) (f *File, err error) {
	defer guard.Recover("parquet", &err)
	size := r.Size()
	if size < 12 {
		e := robocache.Malformed("parquet", nil, "").
			Expected("a Parquet file", fmt.Sprintf("%d bytes", size))
		if size == 0 {
			e.Hint = "the file is empty: fetch it again"
		}
		return nil, e
	}
	n := min(size, footerGuess)
	tail := make([]byte, n)
	guard.Check(r.ReadAt(ctx, tail, size-n))
	if string(tail[n-4:]) != "PAR1" {
		notParquet(ctx, r, tail)
	}
	length := int64(binary.LittleEndian.Uint32(tail[n-8:]))
	if length > size-12 || length > maxFooter {
		return nil, robocache.Malformed("parquet", robocache.Where{"offset": size - 8}, "").
			Expected("a footer inside the file", fmt.Sprintf("%d bytes of %d", length, size))
	}
	footer := tail[max(0, n-8-length) : n-8]
	if length > n-8 {
		footer = make([]byte, length)
		guard.Check(r.ReadAt(ctx, footer, size-8-length))
	}
	return parseFooter(footer, size, want), nil
}

// notParquet fails the read with a specific message for a Git LFS pointer and for a file without a
// footer, which are both common.
func notParquet(ctx context.Context, r robocache.Ranged, tail []byte) {
	head := make([]byte, min(r.Size(), 64))
	guard.Check(r.ReadAt(ctx, head, 0))
	e := robocache.Malformed("parquet", nil, "").Expected("a Parquet file", "")
	switch {
	case strings.HasPrefix(string(head), "version https://git-lfs"):
		e.Got, e.Hint = "a Git LFS pointer", "fetch the data: git lfs pull"
	case strings.HasPrefix(string(head), "PAR1"):
		e.Got, e.Hint = "no footer", "its writer was not finished, or the file is cut: fetch it "+
			"again, or record with finalize()"
	case string(tail[len(tail)-4:]) == "PARE":
		e.Class, e.Got = robocache.ErrUnsupported, "an encrypted file"
	default:
		e.Got = fmt.Sprintf("a file that begins with %q", head[:min(8, len(head))])
	}
	guard.Fail(e)
}

func parseFooter(b []byte, size int64, want func(string) bool) *File {
	f := &File{Size: size, Meta: map[string]string{}}
	c := &cursor{b: b, what: "footer"}
	var creator []byte
	chunks := newChunkReader(c, 2)
	has := c.readStruct(0, fieldSlot{2, func(typ byte) bool {
		var elems []schemaElement
		if !c.readStructList(
			typ,
			0,
			maxSchemaNodes,
			"schema",
			func(int) { elems = append(elems, readElement(c, 1)) },
		) {
			return false
		}
		f.Root, f.Leaves = buildTree(c, elems)
		f.selectColumns(want)
		return true
	}}, fieldSlot{3, &f.Rows}, fieldSlot{4, func(typ byte) bool {
		if typ == tList && f.Root == nil {
			c.fail("row groups before the schema")
		}
		var start int64
		list := c.readStructList(typ, 0, math.MaxInt, "row groups", func(i int) {
			g := f.readGroup(c, 1, chunks)
			g.Start = start
			if g.Rows < 0 || g.Rows > 1<<40 {
				c.fail(fmt.Sprintf("row group %d claims %d rows", i, g.Rows))
			}
			start += g.Rows
			f.Groups = append(f.Groups, g)
		})
		if list && f.Rows != start {
			c.fail(fmt.Sprintf("the footer claims %d rows, its row groups %d", f.Rows, start))
		}
		return list
	}}, fieldSlot{5, func(typ byte) bool {
		return c.readStructList(typ, 0, math.MaxInt, "key-value metadata", func(int) {
			var k, v []byte
			c.readStruct(1, fieldSlot{1, &k}, fieldSlot{2, &v})
			if string(k) != "ARROW:schema" {
				f.Meta[string(k)] = string(v)
			} else if want == nil {
				f.arrowSchema = string(v)
			}
		})
	}}, fieldSlot{6, &creator})
	if f.Root == nil || has&(1<<4) == 0 {
		c.fail("schema or row groups are missing")
	}
	f.Creator = string(creator)
	return f
}

func (f *File) selectColumns(want func(string) bool) {
	f.chunkSlots = make([]int32, len(f.Leaves))
	for i := range f.chunkSlots {
		f.chunkSlots[i] = -1
	}
	for _, top := range f.Root.Children {
		if want != nil && !want(top.Name) {
			continue
		}
		for _, l := range top.Leaves(nil) {
			f.chunkSlots[l.Leaf] = int32(f.chunksPerGroup)
			f.chunksPerGroup++
		}
	}
}

func (f *File) readGroup(c *cursor, depth int, chunks *chunkReader) Group {
	var g Group
	n := len(f.Leaves)
	has := c.readStruct(depth, fieldSlot{1, func(typ byte) bool {
		return c.readStructList(typ, n, n, "number of columns of a row group", func(i int) {
			if i == 0 {
				g.chunks = make([]Chunk, f.chunksPerGroup)
			}
			if s := f.chunkSlots[i]; s >= 0 {
				g.chunks[s] = chunks.readChunk(c, depth+1, f.Leaves[i])
			} else {
				c.skipStruct(depth + 1)
			}
		})
	}}, fieldSlot{3, &g.Rows})
	if has&(1<<1) == 0 && n > 0 {
		c.fail("a row group without columns")
	}
	return g
}

// chunkReader reads the metadata of one column chunk after another.
type chunkReader struct {
	k           Chunk
	kind        int32
	file        []byte
	dict, data  int64
	has         uint32
	chunk, meta []fieldSlot
	stats       []fieldSlot
	min, max    []byte // min_value and max_value of the statistics
}

func newChunkReader(c *cursor, depth int) *chunkReader {
	r := &chunkReader{}
	r.meta = []fieldSlot{
		{1, &r.kind},
		{2, byte(tList)},
		{3, byte(tList)},
		{4, &r.k.Codec},
		{5, &r.k.Values},
		{6, byte(tI64)},
		{7, &r.k.Size},
		{9, &r.data},
		{11, &r.dict},
		{12, func(typ byte) bool {
			if typ == tStruct {
				c.readStruct(depth+2, r.stats...)
			}
			return typ == tStruct
		}},
	}
	r.stats = []fieldSlot{{3, &r.k.Nulls}, {5, &r.max}, {6, &r.min}}
	r.chunk = []fieldSlot{{1, &r.file}, {3, func(typ byte) bool {
		if typ == tStruct {
			r.has |= c.readStruct(depth+1, r.meta...)
		}
		return typ == tStruct
	}}}
	return r
}

func (r *chunkReader) readChunk(c *cursor, depth int, leaf *Node) Chunk {
	r.k, r.kind, r.file, r.dict, r.data, r.has = Chunk{Nulls: -1}, 0, nil, 0, 0, 0
	r.min, r.max = nil, nil
	c.readStruct(depth, r.chunk...)
	switch lacks := 0b1011111110 &^ r.has; {
	case len(r.file) > 0:
		c.fail("column " + leaf.Name + " lies in another file")
	case lacks != 0: // other readers reject a chunk that lacks a required field
		c.fail(
			fmt.Sprintf(
				"column %s lacks field %d of its metadata",
				leaf.Name,
				bits.TrailingZeros32(lacks),
			),
		)
	case Physical(r.kind) != leaf.Type:
		c.fail("column " + leaf.Name + " has another type than the schema says")
	}
	if r.k.Offset = r.data; r.dict > 0 && r.dict < r.data {
		r.k.Offset = r.dict
	}
	if leaf.Type == Int64 && len(r.min) == 8 && len(r.max) == 8 {
		r.k.HasRange = true
		r.k.Min = int64(binary.LittleEndian.Uint64(r.min))
		r.k.Max = int64(binary.LittleEndian.Uint64(r.max))
	}
	return r.k
}

// Chunk returns the location of a leaf in a row group. ok is false if the leaf was not selected in
// Open.
func (f *File) Chunk(group int, leaf *Node) (Chunk, bool) {
	s := f.chunkSlots[leaf.Leaf]
	if s < 0 {
		return Chunk{}, false
	}
	return f.Groups[group].chunks[s], true
}

// Column returns the top-level column with the given name, or nil.
func (f *File) Column(name string) *Node { return f.Root.Child(name) }

// MemoryBytes returns an estimate of the memory that the footer uses.
func (f *File) MemoryBytes() int64 {
	n := int64(256 + len(f.Leaves)*160 + len(f.arrowSchema))
	for k, v := range f.Meta {
		n += int64(len(k) + len(v))
	}
	for i := range f.Groups {
		n += 40 + int64(len(f.Groups[i].chunks))*64
	}
	return n
}
