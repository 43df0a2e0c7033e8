package h5

import (
	"context"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// The record types of a B-tree of version 2.
const (
	recHuge     = 1
	recLinkName = 5
	recAttrName = 8
	recChunk    = 10
	recFiltered = 11
)

// encodedSize returns the number of bytes that are needed for numbers up to n.
func encodedSize(n uint64) int { return (bits.Len64(max(n, 1))-1)/8 + 1 }

// walkBTree2 walks a B-tree of version 2 in order and calls each for every record. It rejects trees
// whose record type is not in kinds.
func (f *File) walkBTree2(
	ctx context.Context,
	addr uint64,
	each func(kind uint8, rec *cursor),
	kinds ...uint8,
) {
	c := f.readStructure(ctx, addr, uint64(22+f.osz+f.lsz), "BTHD", true)
	version, kind := c.u8(), c.u8()
	nodeSize, recSize := int64(c.u32()), int64(c.u16())
	depth := int(c.u16())
	c.skip(2)
	root, rootRecs, total := c.readAddr(), int64(c.u16()), c.readLength()
	if version != 0 || !slices.Contains(kinds, kind) {
		f.failMalformed(
			addr,
			"a B-tree of version %d with records of type %d, expected %v",
			version,
			kind,
			kinds,
		)
	}
	if depth > maxDepth || recSize == 0 || nodeSize < 10+recSize || nodeSize > maxMetadata {
		f.failMalformed(addr, "the sizes of a B-tree")
	}
	// The widths of the counts in a node depend on how many records fit below the node.
	type level struct {
		most, below int64 // records in a node, and in all nodes below
		width       int   // bytes of a count of records below
	}
	levels := make([]level, depth+1)
	levels[0].most = (nodeSize - 10) / recSize
	levels[0].below = levels[0].most
	nrec := encodedSize(uint64(levels[0].most))
	for d := 1; d <= depth; d++ {
		ptr := int64(f.osz + nrec + levels[d-1].width)
		l := &levels[d]
		if l.most = (nodeSize - 10 - ptr) / (recSize + ptr); l.most <= 0 || l.most > 1<<32 ||
			levels[d-1].below > 1<<58/(l.most+1) {
			f.failMalformed(addr, "the sizes of a B-tree")
		}
		l.below = (l.most+1)*levels[d-1].below + l.most
		l.width = encodedSize(uint64(l.below))
	}
	if root == undefined || total == 0 {
		return
	}
	seen := visited{}
	var got uint64
	var walk func(addr uint64, n int64, d int)
	walk = func(addr uint64, n int64, d int) {
		seen.markVisited(f, addr)
		if n > levels[d].most {
			f.failMalformed(addr, "a B-tree node of %d records, at most %d fit", n, levels[d].most)
		}
		sig, size := "BTLF", 10+n*recSize
		if d > 0 {
			sig = "BTIN"
			size += (n + 1) * int64(f.osz+nrec+levels[d-1].width)
		}
		c := f.readStructure(ctx, addr, uint64(size), sig, true)
		if c.u8() != 0 || c.u8() != kind {
			f.failMalformed(addr, "a node of another B-tree")
		}
		recs, rec := c.takeBytes(int(n*recSize)), f.newCursor(addr, "a record of a B-tree", nil)
		for i := int64(0); i <= n; i++ {
			if d > 0 {
				child, m := c.readAddr(), int64(c.uint(nrec))
				c.skip(levels[d-1].width)
				walk(child, m, d-1)
			}
			if i < n {
				got++
				rec.b, rec.off = recs[i*recSize:(i+1)*recSize], 0
				each(kind, rec)
			}
		}
		guard.Check(ctx.Err())
	}
	walk(root, rootRecs, depth)
	if got != total {
		f.failMalformed(addr, "a B-tree declares %d records but has %d", total, got)
	}
}
