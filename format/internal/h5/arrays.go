package h5

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// arrayHeader reads the header that fixed and extensible arrays share: the client kind and the size
// of an element.
func (x *indexer) arrayHeader(ctx context.Context, n int, sig string) *cursor {
	c := x.readStructure(ctx, x.d.layout.addr, uint64(n), sig, true)
	version, client := c.u8(), c.u8()
	x.size, x.filtered = int(c.u8()), client == 1
	if least := x.osz + 4; version != 0 || client > 1 || !x.filtered && x.size != x.osz ||
		x.filtered && (x.size <= least || x.size > least+8) {
		x.failMalformed(
			c.pieceAddr,
			"a chunk index of version %d and kind %d with elements of %d bytes",
			version,
			client,
			x.size,
		)
	}
	return c
}

// addElements reads n consecutive elements and adds their chunks, starting at chunk number.
func (x *indexer) addElements(c *cursor, number, n int64) {
	for i := range n {
		x.addLinear(number+i, x.readRef(c, x.filtered, x.size-x.osz-4))
	}
}

// bitAt reports whether the i-th bit is set. The highest bit of a byte comes first.
func bitAt(b []byte, i int64) bool { return i>>3 < int64(len(b)) && b[i>>3]&(0x80>>(i&7)) != 0 }

// readPages reads the elements of a block that is divided into pages. It skips pages for which
// written returns false.
func (x *indexer) readPages(
	ctx context.Context,
	addr uint64,
	number, n, page int64,
	written func(i int64) bool,
) {
	for i := int64(0); i*page < n; i++ {
		k := min(page, n-i*page)
		size := uint64(k*int64(x.size)) + 4
		if written(i) {
			x.addElements(x.readStructure(ctx, addr, size, "", true), number+i*page, k)
		}
		addr += size
	}
	guard.Check(ctx.Err())
}

// readFixedArray reads a fixed array, the index of data sets that cannot grow.
func (x *indexer) readFixedArray(ctx context.Context) {
	c := x.arrayHeader(ctx, 4+4+x.lsz+x.osz+4, "FAHD")
	pageBits := int(c.u8())
	n, block := c.readLength(), c.readAddr()
	if pageBits > 31 || n > x.File.size/uint64(x.size) {
		x.failMalformed(
			c.pieceAddr,
			"a fixed array of %d elements in a file of %d bytes",
			n,
			x.File.size,
		)
	}
	if block == undefined {
		return
	}
	prefix := 6 + x.osz
	page := int64(1) << pageBits
	if int64(n) <= page {
		c = x.readStructure(ctx, block, uint64(prefix)+n*uint64(x.size)+4, "FADB", true)
		c.off = prefix
		x.addElements(c, 0, int64(n))
		return
	}
	bitmap := int(ceilDiv(ceilDiv(int64(n), page), 8))
	c = x.readStructure(ctx, block, uint64(prefix+bitmap+4), "FADB", true)
	c.off = prefix
	written := c.takeBytes(bitmap)
	x.readPages(
		ctx,
		block+uint64(prefix+bitmap+4),
		0,
		int64(n),
		page,
		func(i int64) bool { return bitAt(written, i) },
	)
}

// readExtensibleArray reads an extensible array, the index of data sets with one unlimited
// dimension.
func (x *indexer) readExtensibleArray(ctx context.Context) {
	c := x.arrayHeader(ctx, 4+8+6*x.lsz+x.osz+4, "EAHD")
	maxBits := int(c.u8())
	inIndex := int64(c.u8())
	least := int64(c.u8())
	pointers := int64(c.u8())
	pageBits := int(c.u8())
	c.skip(6 * x.lsz)
	index := c.readAddr()
	pow := func(v int64) bool { return v > 0 && v&(v-1) == 0 }
	if maxBits > 62 || !pow(least) || !pow(pointers) || pageBits > 31 ||
		log2(uint64(least)) > maxBits {
		x.failMalformed(c.pieceAddr, "the sizes of an extensible array")
	}
	if index == undefined {
		return
	}
	supers := 1 + maxBits - log2(uint64(least))
	// The index block itself lists the data blocks of the first super blocks.
	direct := min(2*log2(uint64(pointers)), supers)
	left := 2 * (pointers - 1)
	prefix := 6 + x.osz // the blocks below also store their offset
	c = x.readStructure(
		ctx,
		index,
		uint64(prefix+int(inIndex)*x.size+(int(left)+supers-direct)*x.osz+4),
		"EAIB",
		true,
	)
	c.off = prefix
	x.addElements(c, 0, inIndex)
	prefix += (maxBits + 7) / 8
	number, page := inIndex, int64(1)<<pageBits
	seen := visited{}
	data := func(addr uint64, count int64, written func(i int64) bool) {
		at := number
		if number += count; addr == undefined {
			return
		}
		seen.markVisited(x.File, addr)
		if count > int64(x.File.size)/int64(x.size) {
			x.failMalformed(
				addr,
				"a block of %d elements in a file of %d bytes",
				count,
				x.File.size,
			)
		}
		if count <= page {
			c := x.readStructure(
				ctx,
				addr,
				uint64(prefix)+uint64(count)*uint64(x.size)+4,
				"EADB",
				true,
			)
			c.off = prefix
			x.addElements(c, at, count)
			return
		}
		x.readStructure(ctx, addr, uint64(prefix+4), "EADB", true)
		x.readPages(ctx, addr+uint64(prefix+4), at, count, page, written)
	}
	for s := range supers {
		count, each := int64(1)<<(s/2), least<<((s+1)/2)
		if s < direct {
			n := min(count, left)
			for range n {
				data(c.readAddr(), each, func(int64) bool { return true })
			}
			left -= n
			continue
		}
		addr := c.readAddr()
		if addr == undefined {
			number += count * each
			continue
		}
		seen.markVisited(x.File, addr)
		var pages, bitmap int64
		if each > page {
			pages = each / page
			bitmap = count * ceilDiv(pages, 8)
		}
		b := x.readStructure(
			ctx,
			addr,
			uint64(prefix)+uint64(bitmap)+uint64(count)*uint64(x.osz)+4,
			"EASB",
			true,
		)
		b.off = prefix
		written := b.takeBytes(int(bitmap))
		for k := range count {
			data(b.readAddr(), each, func(i int64) bool { return bitAt(written, k*pages+i) })
		}
		guard.Check(ctx.Err())
	}
}
