package pq

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Chunk says where one column of one row group lies.
type Chunk struct {
	Offset int64 // first byte: the dictionary page where there is one
	Size   int64 // compressed bytes, headers included
	Values int64 // nulls included
	Codec  int32
}

// Group is a row group.
type Group struct {
	Start, Rows int64
	chunks      []Chunk // by slot of File.slot
}

// File is a parsed footer, projected to the columns that were asked for. It is immutable.
type File struct {
	Size    int64
	Rows    int64
	Root    *Node
	Leaves  []*Node
	Groups  []Group
	Meta    map[string]string // key-value metadata, without the Arrow schema
	Creator string
	slot    []int32 // leaf → place in Group.chunks, or -1
	arrow   string  // the Arrow schema, where all columns were asked for
}

const (
	footerGuess = 16 << 10
	maxFooter   = 1 << 30
)

// Open reads the footer. want says which leaves will be read (by the path "a/b" of their top-level column: the first
// name is enough to decide); nil wants all. Chunks of the others are not kept: footers of episodes files are
// nearly all statistics.
func Open(ctx context.Context, r robocache.Ranged, want func(column string) bool) (*File, error) {
	size := r.Size()
	if size < 12 {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Want: "a Parquet file", Got: fmt.Sprintf("%d bytes", size), Hint: emptyHint(size)}
	}
	n := min(size, footerGuess)
	tail := make([]byte, n)
	if err := r.ReadAt(ctx, tail, size-n); err != nil {
		return nil, err
	}
	if string(tail[n-4:]) != "PAR1" {
		return nil, notParquet(ctx, r, tail)
	}
	length := int64(binary.LittleEndian.Uint32(tail[n-8:]))
	if length > size-12 || length > maxFooter {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Where: robocache.Where{"offset": size - 8}, Want: "a footer inside the file", Got: fmt.Sprintf("%d bytes of %d", length, size)}
	}
	footer := tail[max(0, n-8-length) : n-8]
	if length > n-8 {
		footer = make([]byte, length)
		if err := r.ReadAt(ctx, footer, size-8-length); err != nil {
			return nil, err
		}
	}
	return parseFooter(footer, size, want)
}

func emptyHint(size int64) string {
	if size == 0 {
		return "the file is empty: fetch it again"
	}
	return ""
}

// notParquet tells a Git LFS pointer and a file without a footer from other things: both are common.
func notParquet(ctx context.Context, r robocache.Ranged, tail []byte) error {
	head := make([]byte, min(r.Size(), 64))
	if err := r.ReadAt(ctx, head, 0); err != nil {
		return err
	}
	e := &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Want: "a Parquet file"}
	switch {
	case strings.HasPrefix(string(head), "version https://git-lfs"):
		e.Got, e.Hint = "a Git LFS pointer", "fetch the data: git lfs pull"
	case strings.HasPrefix(string(head), "PAR1"):
		e.Got, e.Hint = "no footer", "its writer was not finished, or the file is cut: fetch it again, or record with finalize()"
	case string(tail[len(tail)-4:]) == "PARE":
		e.Class, e.Got = robocache.ErrUnsupported, "an encrypted file"
	default:
		e.Got = fmt.Sprintf("a file that begins with %q", head[:min(8, len(head))])
	}
	return e
}

func parseFooter(b []byte, size int64, want func(string) bool) (*File, error) {
	f := &File{Size: size, Meta: map[string]string{}}
	c := &cursor{b: b}
	var bad string
	groups := false
	c.fields(0, func(id int16, typ byte) bool {
		switch {
		case id == 2 && typ == tList:
			n, e := c.list()
			if e != tStruct || n > maxSchemaNodes {
				c.fail("bad schema")
				return true
			}
			elems := make([]element, 0, min(n, 4096))
			for i := 0; i < n && c.bad == ""; i++ {
				elems = append(elems, readElement(c, 1))
			}
			if c.bad != "" {
				return true
			}
			if f.Root, f.Leaves, bad = buildTree(elems); bad != "" {
				c.fail(bad)
				return true
			}
			f.project(want)
		case id == 3 && typ == tI64:
			f.Rows = c.varint()
		case id == 4 && typ == tList:
			if f.Root == nil {
				c.fail("row groups before the schema")
				return true
			}
			groups = true
			n, e := c.list()
			if e != tStruct {
				c.fail("bad row groups")
				return true
			}
			var start int64
			for i := 0; i < n && c.bad == ""; i++ {
				g := f.readGroup(c, 1)
				g.Start = start
				if g.Rows < 0 || g.Rows > 1<<40 {
					c.fail(fmt.Sprintf("row group %d claims %d rows", i, g.Rows))
				}
				start += g.Rows
				f.Groups = append(f.Groups, g)
			}
			if c.bad == "" && f.Rows != start {
				c.fail(fmt.Sprintf("the footer claims %d rows, its row groups %d", f.Rows, start))
			}
		case id == 5 && typ == tList:
			n, e := c.list()
			if e != tStruct {
				return false
			}
			for i := 0; i < n && c.bad == ""; i++ {
				var k, v []byte
				c.fields(1, func(id int16, typ byte) bool {
					switch {
					case id == 1 && typ == tBinary:
						k = c.binary()
					case id == 2 && typ == tBinary:
						v = c.binary()
					default:
						return false
					}
					return true
				})
				if string(k) != "ARROW:schema" {
					f.Meta[string(k)] = string(v)
				} else if want == nil {
					f.arrow = string(v)
				}
			}
		case id == 6 && typ == tBinary:
			f.Creator = string(c.binary())
		default:
			return false
		}
		return true
	})
	if c.bad != "" {
		return nil, malformed(nil, "footer: "+c.bad)
	}
	if f.Root == nil || !groups {
		return nil, malformed(nil, "footer: schema or row groups are missing")
	}
	return f, nil
}

func (f *File) project(want func(string) bool) {
	f.slot = make([]int32, len(f.Leaves))
	for i := range f.slot {
		f.slot[i] = -1
	}
	next := int32(0)
	for _, top := range f.Root.Children {
		if want != nil && !want(top.Name) {
			continue
		}
		for _, l := range top.Leaves(nil) {
			f.slot[l.Leaf] = next
			next++
		}
	}
}

func (f *File) readGroup(c *cursor, depth int) Group {
	var g Group
	kept := 0
	for _, s := range f.slot {
		if s >= 0 {
			kept++
		}
	}
	seen := false
	c.fields(depth, func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == tList:
			n, e := c.list()
			if e != tStruct || n != len(f.Leaves) || seen {
				c.fail(fmt.Sprintf("a row group has %d columns, the schema %d", n, len(f.Leaves)))
				return true
			}
			seen = true
			g.chunks = make([]Chunk, kept)
			for i := 0; i < n && c.bad == ""; i++ {
				if s := f.slot[i]; s >= 0 {
					g.chunks[s] = readChunk(c, depth+1, f.Leaves[i])
				} else {
					c.skipStruct(depth + 1)
				}
			}
		case id == 3 && typ == tI64:
			g.Rows = c.varint()
		default:
			return false
		}
		return true
	})
	if !seen && len(f.Leaves) > 0 {
		c.fail("a row group without columns")
	}
	return g
}

// chunkFields are the types of the fields of a chunk's metadata that the format requires.
var chunkFields = [16]byte{1: tI32, 2: tList, 3: tList, 4: tI32, 5: tI64, 6: tI64, 7: tI64, 9: tI64}

func readChunk(c *cursor, depth int, leaf *Node) Chunk {
	var k Chunk
	var dict, data int64
	var has uint16 // by field: other readers refuse a chunk that lacks one which the format requires
	c.fields(depth, func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == tBinary:
			if len(c.binary()) > 0 {
				c.fail("column " + leaf.Name + " lies in another file")
			}
		case id == 3 && typ == tStruct:
			c.fields(depth+1, func(id int16, typ byte) bool {
				if id >= 0 && id < 16 && typ == chunkFields[id] {
					has |= 1 << id
				}
				switch {
				case id == 1 && typ == tI32:
					if Physical(c.i32()) != leaf.Type {
						c.fail("column " + leaf.Name + " has another type than the schema says")
					}
				case id == 4 && typ == tI32:
					k.Codec = c.i32()
				case id == 5 && typ == tI64:
					k.Values = c.varint()
				case id == 7 && typ == tI64:
					k.Size = c.varint()
				case id == 9 && typ == tI64:
					data = c.varint()
				case id == 11 && typ == tI64:
					dict = c.varint()
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	if lacks := 0b1011111110 &^ has; lacks != 0 && c.bad == "" {
		c.fail(fmt.Sprintf("column %s lacks field %d of its metadata", leaf.Name, bits.TrailingZeros16(lacks)))
	}
	k.Offset = data
	if dict > 0 && dict < data {
		k.Offset = dict
	}
	return k
}

// Chunk is the place of a leaf in a row group; ok is false where the leaf was not asked for at Open.
func (f *File) Chunk(group int, leaf *Node) (Chunk, bool) {
	s := f.slot[leaf.Leaf]
	if s < 0 {
		return Chunk{}, false
	}
	return f.Groups[group].chunks[s], true
}

// Column finds a top-level column; nil where there is none.
func (f *File) Column(name string) *Node { return f.Root.Child(name) }

// MemoryBytes estimates what the footer holds.
func (f *File) MemoryBytes() int64 {
	n := int64(256 + len(f.Leaves)*160 + len(f.arrow))
	for k, v := range f.Meta {
		n += int64(len(k) + len(v))
	}
	for i := range f.Groups {
		n += 40 + int64(len(f.Groups[i].chunks))*32
	}
	return n
}
