package h5

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// visited knows the addresses of one structure: none may be in it twice.
type visited map[uint64]bool

func (v visited) once(f *File, addr uint64) {
	if v[addr] {
		f.bad(addr, "a block of a tree or array is there twice")
	}
	v[addr] = true
}

// tree1 walks a B-tree of version 1 from left to right. keySize is that of a key; leaf is called
// with the key left of each child of level 0.
func (f *File) tree1(
	ctx context.Context,
	addr uint64,
	kind uint8,
	keySize int,
	leaf func(key []byte, child uint64),
) {
	seen := visited{}
	var walk func(addr uint64, level int)
	walk = func(addr uint64, level int) {
		seen.once(f, addr)
		head := 8 + 2*f.osz
		c := f.structure(ctx, addr, uint64(head), "TREE", false)
		k, l, n := c.u8(), int(c.u8()), int(c.u16())
		if k != kind || level >= 0 && l != level {
			f.bad(
				addr,
				"a B-tree node of type %d and level %d, expected %d and %d",
				k,
				l,
				kind,
				level,
			)
		}
		c = f.structure(ctx, addr, uint64(head+n*(keySize+f.osz)), "TREE", false)
		c.off = head
		for range n {
			if key, child := c.take(keySize), c.addr(); l > 0 {
				walk(child, l-1)
			} else {
				leaf(key, child)
			}
		}
		guard.Check(ctx.Err())
	}
	walk(addr, -1)
}
