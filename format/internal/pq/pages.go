package pq

import (
	"context"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Page is one data page of a column that does not repeat. Each of its values is a row.
type Page struct {
	Offset      int64
	Size        int64 // header and body
	Start, Rows int64 // within the row group
	dict        bool
}

// PageList lists the pages of a column chunk. Columns of frames are read page by page, because a
// row group of them may be larger than memory.
type PageList struct {
	Pages []Page
	dict  Page
}

// MemoryBytes returns the memory that the list uses.
func (l *PageList) MemoryBytes() int64 { return int64(cap(l.Pages))*48 + 64 }

const headerGuess = 512

// eachPage reads the page headers of a chunk up to its last value. visit returns the number of
// values of a page.
func eachPage(
	ctx context.Context,
	r robocache.Ranged,
	k Chunk,
	visit func(h pageHeader, at, size int64) (values int64),
) (values int64) {
	buf := make([]byte, headerGuess)
	for at, end := k.Offset, k.Offset+k.Size; at < end && values < k.Values; {
		func() {
			defer guard.In("offset", at)
			h, size := headerAt(ctx, r, at, end, &buf)
			values += visit(h, at, size)
			at += size
		}()
	}
	return values
}

// Pages lists the pages of a chunk.
func Pages(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	group int,
	leaf *Node,
) (l *PageList, err error) {
	defer guard.Recover("parquet", &err)
	defer guard.At(robocache.Where{"row_group": group, "column": leaf.top})
	k := f.chunkLocation(group, leaf)
	if leaf.MaxRep > 0 {
		guard.Fail(robocache.Unsupported("parquet", nil, "pages of a list"))
	}
	l = &PageList{}
	var row int64
	eachPage(ctx, r, k, func(h pageHeader, at, size int64) int64 {
		p := Page{
			Offset: at,
			Size:   size,
			Start:  row,
			dict:   h.encoding == encRLEDict || h.encoding == encPlainDict,
		}
		switch h.kind {
		case 2:
			l.dict = p
		case 0, 3:
			if p.Rows = int64(h.values); p.Rows > k.Values-row {
				failParse("pages hold more rows than the row group")
			}
			row += p.Rows
			if p.Rows > 0 {
				l.Pages = append(l.Pages, p)
			}
		}
		return p.Rows
	})
	if row != f.Groups[group].Rows {
		failParse("the pages hold %d rows of %d", row, f.Groups[group].Rows)
	}
	return l, nil
}

// headerAt reads the header of the page at an offset, and returns it with the size of the whole
// page. buf is reused and may grow.
func headerAt(
	ctx context.Context,
	r robocache.Ranged,
	at, end int64,
	buf *[]byte,
) (h pageHeader, size int64) {
	for {
		b := (*buf)[:min(int64(len(*buf)), end-at)]
		guard.Check(r.ReadAt(ctx, b, at))
		n := 0
		err := guard.Try(func() { h, n = readPageHeader(b) })
		if err != nil && int64(len(b)) < end-at && len(*buf) < 1<<20 {
			*buf = make([]byte, 8*len(*buf)) // statistics in the header may be long
			continue
		}
		guard.Check(err)
		if size = int64(n) + int64(h.packed); size > end-at {
			failParse(
				"a page of %d bytes, but %d bytes are left: the file is truncated or its header "+
					"is wrong",
				size,
				end-at,
			)
		}
		return h, size
	}
}

// Check decodes every page of a column chunk and keeps none. It verifies checksums, compression,
// levels, values, counts and the encoding of texts. It needs memory for one page and one
// dictionary, each below the limit.
func Check(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	group int,
	leaf *Node,
	lim Limits,
) (err error) {
	defer guard.Recover("parquet", &err)
	defer guard.At(robocache.Where{"row_group": group, "column": leaf.top})
	k := f.chunkLocation(group, leaf)
	d := newDecoder(leaf, k, lim)
	var body []byte
	var rows int64
	entries := eachPage(ctx, r, k, func(_ pageHeader, at, size int64) int64 {
		d.readPageAt(ctx, r, at, size, &body)
		c := d.col
		if leaf.MaxRep == 0 {
			rows += int64(c.Entries)
		}
		for i, v := range c.Rep {
			if v == 0 {
				rows++
			} else if rows == 0 && i == 0 {
				failParse("the first list continues a list that does not exist")
			}
		}
		for i := 0; leaf.Note == Text && i < c.Len(); i++ {
			if !utf8.Valid(c.Item(i)) {
				failParse("a text that is not UTF-8")
			}
		}
		d.valuesDeclared -= int64(c.Entries)
		d.col = newColumn(leaf)
		return int64(c.Entries)
	})
	if entries != k.Values || rows != f.Groups[group].Rows {
		failParse(
			"the pages hold %d values in %d rows, the footer claims %d in %d",
			entries,
			rows,
			k.Values,
			f.Groups[group].Rows,
		)
	}
	return nil
}

// readPageAt reads and decodes the page at an offset. buf is reused and may grow.
func (d *chunkDecoder) readPageAt(
	ctx context.Context,
	r robocache.Ranged,
	at, size int64,
	buf *[]byte,
) {
	if size > d.limit {
		tooLarge(d.limit, size)
	}
	if int64(cap(*buf)) < size {
		*buf = make([]byte, size)
	}
	b := (*buf)[:size]
	guard.Check(r.ReadAt(ctx, b, at))
	d.decodePage(b, at)
}

// ReadPage decodes one page of a list.
func ReadPage(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	group int,
	leaf *Node,
	l *PageList,
	i int,
	lim Limits,
) (_ *Column, err error) {
	defer guard.Recover("parquet", &err)
	defer guard.At(robocache.Where{"row_group": group, "column": leaf.top})
	k, p := f.chunkLocation(group, leaf), l.Pages[i]
	k.Values = p.Rows
	d := newDecoder(leaf, k, lim)
	var body []byte
	if p.dict && l.dict.Size > 0 {
		d.readPageAt(ctx, r, l.dict.Offset, l.dict.Size, &body)
	}
	d.readPageAt(ctx, r, p.Offset, p.Size, &body)
	return d.checkColumn(p.Rows), nil
}
