package h5

import (
	"context"
	"fmt"
	"math"
)

// entries reads the elements of fixed and extensible arrays.
type entries struct {
	size     int // of an element
	filtered bool
	plain    uint32 // size of a chunk without filters
}

func (x *indexer) entries(addr uint64, client uint8, size int) (*entries, error) {
	e := &entries{size: size, filtered: client == 1, plain: uint32(x.d.chunkBytes)}
	if client > 1 || !e.filtered && size != x.f.osz || e.filtered && (size <= x.f.osz+4 || size > x.f.osz+4+8) {
		return nil, x.f.bad(addr, fmt.Sprintf("a chunk index of kind %d with elements of %d bytes", client, size))
	}
	return e, nil
}

func (e *entries) next(f *File, c *cursor) (chunkRef, error) {
	r := chunkRef{addr: c.addr(), size: e.plain}
	if e.filtered {
		size := c.uint(e.size - f.osz - 4)
		r.mask = c.u32()
		if r.addr != undefined && size > math.MaxUint32 {
			return r, f.bad(r.addr, fmt.Sprintf("a chunk of %d bytes", size))
		}
		r.size = uint32(size)
	}
	return r, nil
}

// run adds n chunks, from number on.
func (x *indexer) run(c *cursor, e *entries, number, n int64, unlimited int) error {
	for i := range n {
		r, err := e.next(x.f, c)
		if err != nil {
			return err
		}
		if err := x.addLinear(number+i, r, unlimited); err != nil {
			return err
		}
	}
	if c.short {
		return x.f.bad(x.d.layout.addr, "an index of chunks is cut off")
	}
	return nil
}

// bit says whether the i-th bit is set, highest first.
func bit(b []byte, i int64) bool { return i>>3 < int64(len(b)) && b[i>>3]&(0x80>>(i&7)) != 0 }

// pages reads the elements of a block that is cut into pages, those that were written.
func (x *indexer) pages(ctx context.Context, addr uint64, e *entries, number, n, page int64, written func(i int64) bool, unlimited int) error {
	for i := int64(0); i*page < n; i++ {
		k := min(page, n-i*page)
		if !written(i) {
			addr += uint64(k*int64(e.size)) + 4
			continue
		}
		c, err := x.f.structure(ctx, addr, uint64(k*int64(e.size))+4, "", true)
		if err != nil {
			return err
		}
		if err := x.run(c, e, number+i*page, k, unlimited); err != nil {
			return err
		}
		addr += uint64(k*int64(e.size)) + 4
	}
	return ctx.Err()
}

// fixed reads a fixed array: data sets that cannot grow.
func (x *indexer) fixed(ctx context.Context) error {
	f, head := x.f, x.d.layout.addr
	c, err := f.structure(ctx, head, uint64(4+4+f.lsz+f.osz+4), "FAHD", true)
	if err != nil {
		return err
	}
	version, client, size, pageBits := c.u8(), c.u8(), int(c.u8()), int(c.u8())
	n, block := c.length(), c.addr()
	e, err := x.entries(head, client, size)
	if err != nil {
		return err
	}
	if version != 0 || pageBits > 31 || n > f.size/uint64(e.size) {
		return f.bad(head, fmt.Sprintf("a fixed array of %d elements in a file of %d bytes", n, f.size))
	}
	if block == undefined {
		return nil
	}
	prefix := uint64(6 + f.osz)
	page := int64(1) << pageBits
	if int64(n) <= page {
		if c, err = f.structure(ctx, block, prefix+n*uint64(size)+4, "FADB", true); err != nil {
			return err
		}
		c.off = int(prefix)
		return x.run(c, e, 0, int64(n), -1)
	}
	bitmap := uint64(ceil(ceil(int64(n), page), 8))
	if c, err = f.structure(ctx, block, prefix+bitmap+4, "FADB", true); err != nil {
		return err
	}
	c.off = int(prefix)
	written := c.take(int(bitmap))
	return x.pages(ctx, block+prefix+bitmap+4, e, 0, int64(n), page, func(i int64) bool { return bit(written, i) }, -1)
}

// extensible reads an extensible array: data sets with one dimension without limit.
func (x *indexer) extensible(ctx context.Context, unlimited int) error {
	f, head := x.f, x.d.layout.addr
	c, err := f.structure(ctx, head, uint64(4+8+6*f.lsz+f.osz+4), "EAHD", true)
	if err != nil {
		return err
	}
	version, client, size := c.u8(), c.u8(), int(c.u8())
	maxBits, inIndex, least, pointers, pageBits := int(c.u8()), int64(c.u8()), int64(c.u8()), int64(c.u8()), int(c.u8())
	for range 6 {
		c.length()
	}
	index := c.addr()
	e, err := x.entries(head, client, size)
	if err != nil {
		return err
	}
	pow := func(v int64) bool { return v > 0 && v&(v-1) == 0 }
	if version != 0 || maxBits > 62 || !pow(least) || !pow(pointers) || pageBits > 31 || log2(uint64(least)) > maxBits {
		return f.bad(head, "the sizes of an extensible array")
	}
	if index == undefined {
		return nil
	}
	supers := 1 + maxBits - log2(uint64(least))
	direct := min(2*log2(uint64(pointers)), supers) // super blocks whose data blocks the index block names itself
	blocks := 2 * (pointers - 1)
	offBytes := (maxBits + 7) / 8
	n := 6 + f.osz + int(inIndex)*size + (int(blocks)+supers-direct)*f.osz + 4
	if c, err = f.structure(ctx, index, uint64(n), "EAIB", true); err != nil {
		return err
	}
	c.off = 6 + f.osz
	if err := x.run(c, e, 0, inIndex, unlimited); err != nil {
		return err
	}
	number := inIndex
	page := int64(1) << pageBits
	seen := map[uint64]bool{}
	data := func(addr uint64, number, count int64, written func(i int64) bool) error {
		if addr == undefined {
			return nil
		}
		if seen[addr] {
			return f.bad(addr, "a block of an extensible array is there twice")
		}
		seen[addr] = true
		prefix := uint64(6 + f.osz + offBytes)
		if count > int64(f.size)/int64(size) {
			return f.bad(addr, fmt.Sprintf("a block of %d elements in a file of %d bytes", count, f.size))
		}
		if count <= page {
			c, err := f.structure(ctx, addr, prefix+uint64(count)*uint64(size)+4, "EADB", true)
			if err != nil {
				return err
			}
			c.off = int(prefix)
			return x.run(c, e, number, count, unlimited)
		}
		if _, err := f.structure(ctx, addr, prefix+4, "EADB", true); err != nil {
			return err
		}
		return x.pages(ctx, addr+prefix+4, e, number, count, page, written, unlimited)
	}
	all := func(int64) bool { return true }
	left := blocks
	for s := range supers {
		count, each := int64(1)<<(s/2), least<<((s+1)/2)
		if s < direct {
			for range min(count, left) {
				if err := data(c.addr(), number, each, all); err != nil {
					return err
				}
				number += each
			}
			left -= min(count, left)
			continue
		}
		addr := c.addr()
		if addr == undefined {
			number += count * each
			continue
		}
		if seen[addr] {
			return f.bad(addr, "a block of an extensible array is there twice")
		}
		seen[addr] = true
		pages := int64(0)
		bitmap := int64(0)
		if each > page {
			pages = each / page
			bitmap = count * ceil(pages, 8)
		}
		head := 6 + f.osz + offBytes
		total := uint64(head) + uint64(bitmap) + uint64(count)*uint64(f.osz) + 4
		b, err := f.structure(ctx, addr, total, "EASB", true)
		if err != nil {
			return err
		}
		b.off = head
		written := b.take(int(bitmap))
		for k := range count {
			if err := data(b.addr(), number, each, func(i int64) bool { return bit(written, k*pages+i) }); err != nil {
				return err
			}
			number += each
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if c.short {
		return f.bad(index, "the index block of an extensible array is cut off")
	}
	return nil
}
