package h5

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// visited is the set of addresses of one structure that were read. Each address may occur once.
type visited map[uint64]bool

func (v visited) markVisited(f *File, addr uint64) {
	if v[addr] {
		f.failMalformed(addr, "a block of a tree or array is used twice")
	}
	v[addr] = true
}

// walkBTree1 walks a B-tree of version 1 from left to right. Keys have keySize bytes. For each
// child of level 0, it calls leaf with the child and the key on its left.
func (f *File) walkBTree1(
	ctx context.Context,
	addr uint64,
	kind uint8,
	keySize int,
	leaf func(key []byte, child uint64),
) {
	seen := visited{}
	var walk func(addr uint64, level int)
	walk = func(addr uint64, level int) {
		seen.markVisited(f, addr)
		head := 8 + 2*f.osz
		c := f.readStructure(ctx, addr, uint64(head), "TREE", false)
		k, l, n := c.u8(), int(c.u8()), int(c.u16())
		if k != kind || level >= 0 && l != level {
			f.failMalformed(
				addr,
				"a B-tree node of type %d and level %d, expected %d and %d",
				k,
				l,
				kind,
				level,
			)
		}
		c = f.readStructure(ctx, addr, uint64(head+n*(keySize+f.osz)), "TREE", false)
		c.off = head
		for range n {
			if key, child := c.takeBytes(keySize), c.readAddr(); l > 0 {
				walk(child, l-1)
			} else {
				leaf(key, child)
			}
		}
		guard.Check(ctx.Err())
	}
	walk(addr, -1)
}
