package h5

import (
	"context"
	"fmt"
	"math/bits"
)

// The types of records of a B-tree of version 2.
const (
	recHuge         = 1
	recHugeFiltered = 2
	recLinkName     = 5
	recAttrName     = 8
	recChunk        = 10
	recFiltered     = 11
)

// encodedSize is the number of bytes that hold numbers up to n.
func encodedSize(n uint64) int { return (bits.Len64(max(n, 1))-1)/8 + 1 }

// tree2 walks a B-tree of version 2 in order.
func (f *File) tree2(ctx context.Context, addr uint64, kinds []uint8, each func(kind uint8, rec []byte) error) error {
	c, err := f.structure(ctx, addr, uint64(22+f.osz+f.lsz), "BTHD", true)
	if err != nil {
		return err
	}
	version, kind, nodeSize, recSize, depth := c.u8(), c.u8(), int64(c.u32()), int64(c.u16()), int(c.u16())
	c.skip(2)
	root, rootRecs, total := c.addr(), int64(c.u16()), c.length()
	known := false
	for _, k := range kinds {
		known = known || k == kind
	}
	if version != 0 || !known {
		return f.bad(addr, fmt.Sprintf("a B-tree of version %d with records of type %d, expected %v", version, kind, kinds))
	}
	if depth > maxDepth || recSize == 0 || nodeSize < 10+recSize || nodeSize > maxMetadata {
		return f.bad(addr, "the sizes of a B-tree")
	}
	// The widths of counts in a node depend on how many records fit below it.
	type level struct {
		most, below int64 // records in a node, and in all below it
		width       int   // bytes of the latter
	}
	levels := make([]level, depth+1)
	levels[0].most = (nodeSize - 10) / recSize
	levels[0].below = levels[0].most
	nrec := encodedSize(uint64(levels[0].most))
	for d := 1; d <= depth; d++ {
		ptr := int64(f.osz + nrec + levels[d-1].width)
		l := &levels[d]
		if l.most = (nodeSize - 10 - ptr) / (recSize + ptr); l.most <= 0 || l.most > 1<<32 || levels[d-1].below > 1<<58/(l.most+1) {
			return f.bad(addr, "the sizes of a B-tree")
		}
		l.below = (l.most+1)*levels[d-1].below + l.most
		l.width = encodedSize(uint64(l.below))
	}
	if root == undefined || total == 0 {
		return nil
	}
	seen := map[uint64]bool{}
	var got uint64
	var walk func(addr uint64, n int64, d int) error
	walk = func(addr uint64, n int64, d int) error {
		if seen[addr] {
			return f.bad(addr, "a B-tree goes round in a circle")
		}
		seen[addr] = true
		if n > levels[d].most {
			return f.bad(addr, fmt.Sprintf("a B-tree node of %d records, at most %d fit", n, levels[d].most))
		}
		sig, size := "BTLF", 10+n*recSize
		if d > 0 {
			sig = "BTIN"
			size += (n + 1) * int64(f.osz+nrec+levels[d-1].width)
		}
		c, err := f.structure(ctx, addr, uint64(size), sig, true)
		if err != nil {
			return err
		}
		if c.u8() != 0 || c.u8() != kind {
			return f.bad(addr, "a node of another B-tree")
		}
		recs := c.take(int(n * recSize))
		for i := int64(0); i <= n; i++ {
			if d > 0 {
				child, m := c.addr(), int64(c.uint(nrec))
				c.skip(levels[d-1].width)
				if err := walk(child, m, d-1); err != nil {
					return err
				}
			}
			if i < n {
				got++
				if err := each(kind, recs[i*recSize:(i+1)*recSize]); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}
	if err := walk(root, rootRecs, depth); err != nil {
		return err
	}
	if got != total {
		return f.bad(addr, fmt.Sprintf("a B-tree says %d records, there are %d", total, got))
	}
	return nil
}
