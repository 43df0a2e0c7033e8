package h5

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// begin reads the head that fixed and extensible arrays begin with: what is indexed, and the size
// of an element.
func (x *indexer) begin(ctx context.Context, n int, sig string) *cursor {
	c := x.structure(ctx, x.d.layout.addr, uint64(n), sig, true)
	version, client := c.u8(), c.u8()
	x.size, x.filtered = int(c.u8()), client == 1
	if least := x.osz + 4; version != 0 || client > 1 || !x.filtered && x.size != x.osz ||
		x.filtered && (x.size <= least || x.size > least+8) {
		x.bad(
			c.from,
			"a chunk index of version %d and kind %d with elements of %d bytes",
			version,
			client,
			x.size,
		)
	}
	return c
}

// run adds n chunks, from number on.
func (x *indexer) run(c *cursor, number, n int64) {
	for i := range n {
		x.addLinear(number+i, x.ref(c, x.filtered, x.size-x.osz-4))
	}
}

// bit says whether the i-th bit is set, highest first.
func bit(b []byte, i int64) bool { return i>>3 < int64(len(b)) && b[i>>3]&(0x80>>(i&7)) != 0 }

// pages reads the elements of a block that is cut into pages, those that were written.
func (x *indexer) pages(
	ctx context.Context,
	addr uint64,
	number, n, page int64,
	written func(i int64) bool,
) {
	for i := int64(0); i*page < n; i++ {
		k := min(page, n-i*page)
		size := uint64(k*int64(x.size)) + 4
		if written(i) {
			x.run(x.structure(ctx, addr, size, "", true), number+i*page, k)
		}
		addr += size
	}
	guard.Check(ctx.Err())
}

// fixed reads a fixed array: data sets that cannot grow.
func (x *indexer) fixed(ctx context.Context) {
	c := x.begin(ctx, 4+4+x.lsz+x.osz+4, "FAHD")
	pageBits := int(c.u8())
	n, block := c.length(), c.addr()
	if pageBits > 31 || n > x.File.size/uint64(x.size) {
		x.bad(c.from, "a fixed array of %d elements in a file of %d bytes", n, x.File.size)
	}
	if block == undefined {
		return
	}
	prefix := 6 + x.osz
	page := int64(1) << pageBits
	if int64(n) <= page {
		c = x.structure(ctx, block, uint64(prefix)+n*uint64(x.size)+4, "FADB", true)
		c.off = prefix
		x.run(c, 0, int64(n))
		return
	}
	bitmap := int(ceil(ceil(int64(n), page), 8))
	c = x.structure(ctx, block, uint64(prefix+bitmap+4), "FADB", true)
	c.off = prefix
	written := c.take(bitmap)
	x.pages(
		ctx,
		block+uint64(prefix+bitmap+4),
		0,
		int64(n),
		page,
		func(i int64) bool { return bit(written, i) },
	)
}

// extensible reads an extensible array: data sets with one dimension without limit.
func (x *indexer) extensible(ctx context.Context) {
	c := x.begin(ctx, 4+8+6*x.lsz+x.osz+4, "EAHD")
	maxBits, inIndex, least, pointers, pageBits := int(
		c.u8(),
	), int64(
		c.u8(),
	), int64(
		c.u8(),
	), int64(
		c.u8(),
	), int(
		c.u8(),
	)
	c.skip(6 * x.lsz)
	index := c.addr()
	pow := func(v int64) bool { return v > 0 && v&(v-1) == 0 }
	if maxBits > 62 || !pow(least) || !pow(pointers) || pageBits > 31 ||
		log2(uint64(least)) > maxBits {
		x.bad(c.from, "the sizes of an extensible array")
	}
	if index == undefined {
		return
	}
	supers := 1 + maxBits - log2(uint64(least))
	// super blocks whose data blocks the index block names itself
	direct := min(2*log2(uint64(pointers)), supers)
	left := 2 * (pointers - 1)
	prefix := 6 + x.osz // and of blocks below, their offset
	c = x.structure(
		ctx,
		index,
		uint64(prefix+int(inIndex)*x.size+(int(left)+supers-direct)*x.osz+4),
		"EAIB",
		true,
	)
	c.off = prefix
	x.run(c, 0, inIndex)
	prefix += (maxBits + 7) / 8
	number, page := inIndex, int64(1)<<pageBits
	seen := visited{}
	data := func(addr uint64, count int64, written func(i int64) bool) {
		at := number
		if number += count; addr == undefined {
			return
		}
		seen.once(x.File, addr)
		if count > int64(x.File.size)/int64(x.size) {
			x.bad(addr, "a block of %d elements in a file of %d bytes", count, x.File.size)
		}
		if count <= page {
			c := x.structure(ctx, addr, uint64(prefix)+uint64(count)*uint64(x.size)+4, "EADB", true)
			c.off = prefix
			x.run(c, at, count)
			return
		}
		x.structure(ctx, addr, uint64(prefix+4), "EADB", true)
		x.pages(ctx, addr+uint64(prefix+4), at, count, page, written)
	}
	for s := range supers {
		count, each := int64(1)<<(s/2), least<<((s+1)/2)
		if s < direct {
			n := min(count, left)
			for range n {
				data(c.addr(), each, func(int64) bool { return true })
			}
			left -= n
			continue
		}
		addr := c.addr()
		if addr == undefined {
			number += count * each
			continue
		}
		seen.once(x.File, addr)
		var pages, bitmap int64
		if each > page {
			pages = each / page
			bitmap = count * ceil(pages, 8)
		}
		b := x.structure(
			ctx,
			addr,
			uint64(prefix)+uint64(bitmap)+uint64(count)*uint64(x.osz)+4,
			"EASB",
			true,
		)
		b.off = prefix
		written := b.take(int(bitmap))
		for k := range count {
			data(b.addr(), each, func(i int64) bool { return bit(written, k*pages+i) })
		}
		guard.Check(ctx.Err())
	}
}
