package h5

import (
	"context"
	"fmt"
)

// tree1 walks a B-tree of version 1 from left to right. keySize is that of a key; leaf is called with the key left of each child of level 0.
func (f *File) tree1(ctx context.Context, addr uint64, kind uint8, keySize int, leaf func(key []byte, child uint64) error) error {
	seen := map[uint64]bool{}
	var walk func(addr uint64, level int) error
	walk = func(addr uint64, level int) error {
		if seen[addr] {
			return f.bad(addr, "a B-tree goes round in a circle")
		}
		seen[addr] = true
		head := 8 + 2*f.osz
		c, err := f.structure(ctx, addr, uint64(head), "TREE", false)
		if err != nil {
			return err
		}
		k, l, n := c.u8(), int(c.u8()), int(c.u16())
		if k != kind {
			return f.bad(addr, fmt.Sprintf("a B-tree node of type %d, expected %d", k, kind))
		}
		if level >= 0 && l != level {
			return f.bad(addr, fmt.Sprintf("a B-tree node of level %d, expected %d", l, level))
		}
		if c, err = f.structure(ctx, addr, uint64(head+n*(keySize+f.osz)), "TREE", false); err != nil {
			return err
		}
		c.off = head
		for range n {
			key, child := c.take(keySize), c.addr()
			if l > 0 {
				err = walk(child, l-1)
			} else {
				err = leaf(key, child)
			}
			if err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	return walk(addr, -1)
}
