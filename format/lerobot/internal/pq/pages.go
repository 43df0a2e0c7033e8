package pq

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
)

// Page is one data page of a column that does not repeat: its values are rows.
type Page struct {
	Offset      int64
	Size        int64 // header and body
	Start, Rows int64 // within the row group
	dict        bool
}

// PageList says where the pages of a column chunk lie. Columns of frames are read by it: a row group of them may be larger than memory.
type PageList struct {
	Pages []Page
	dict  Page
}

// MemoryBytes is what the list holds.
func (l *PageList) MemoryBytes() int64 { return int64(cap(l.Pages))*48 + 64 }

const headerGuess = 512

// eachPage walks the page headers of a chunk up to its last value. visit says how many values it took of a page.
func eachPage(ctx context.Context, r robocache.Ranged, k Chunk, where robocache.Where, visit func(h pageHeader, at, size int64) (values int64, err error)) (values int64, err error) {
	buf := make([]byte, headerGuess)
	for at, end := k.Offset, k.Offset+k.Size; at < end && values < k.Values; {
		h, size, err := headerAt(ctx, r, at, end, &buf, where)
		if err != nil {
			return values, err
		}
		n, err := visit(h, at, size)
		if err != nil {
			return values, err
		}
		values, at = values+n, at+size
	}
	return values, nil
}

// Pages lists the pages of a chunk.
func Pages(ctx context.Context, r robocache.Ranged, f *File, group int, leaf *Node) (*PageList, error) {
	where := robocache.Where{"row_group": group, "column": leaf.top}
	k, err := f.place(group, leaf, where)
	if err != nil {
		return nil, err
	}
	if leaf.MaxRep > 0 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "parquet", Where: where, Msg: "pages of a list"}
	}
	l := &PageList{}
	var row int64
	_, err = eachPage(ctx, r, k, where, func(h pageHeader, at, size int64) (int64, error) {
		p := Page{Offset: at, Size: size, Start: row, dict: h.encoding == encRLEDict || h.encoding == encPlainDict}
		switch h.kind {
		case 2:
			l.dict = p
		case 0, 3:
			if p.Rows = int64(h.values); p.Rows > k.Values-row {
				return 0, malformed(with(where, "offset", at), "pages hold more rows than the row group")
			}
			row += p.Rows
			if p.Rows > 0 {
				l.Pages = append(l.Pages, p)
			}
		}
		return p.Rows, nil
	})
	if err == nil && row != f.Groups[group].Rows {
		err = malformed(where, fmt.Sprintf("the pages hold %d rows of %d", row, f.Groups[group].Rows))
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// headerAt reads the header of the page at an offset, and how many bytes the page takes with it. buf is used again, and may grow.
func headerAt(ctx context.Context, r robocache.Ranged, at, end int64, buf *[]byte, where robocache.Where) (h pageHeader, size int64, err error) {
	for {
		b := (*buf)[:min(int64(len(*buf)), end-at)]
		if err := r.ReadAt(ctx, b, at); err != nil {
			return h, 0, robocache.At(err, where)
		}
		h, n, bad := readPageHeader(b)
		if bad != "" && int64(len(b)) < end-at && len(*buf) < 1<<20 {
			*buf = make([]byte, 8*len(*buf)) // statistics in the header may be long
			continue
		}
		if bad != "" {
			return h, 0, malformed(with(where, "offset", at), bad)
		}
		if size = int64(n) + int64(h.packed); size > end-at {
			return h, 0, malformed(with(where, "offset", at), fmt.Sprintf("a page of %d bytes where %d are left: the file is cut or its header lies", size, end-at))
		}
		return h, size, nil
	}
}

// Check decodes every page of a column chunk and keeps none: checksums, compression, levels, values, counts and the encoding of texts are
// proven. Memory is that of a page and a dictionary, each below the limit.
func Check(ctx context.Context, r robocache.Ranged, f *File, group int, leaf *Node, lim Limits) error {
	where := robocache.Where{"row_group": group, "column": leaf.top}
	k, err := f.place(group, leaf, where)
	if err != nil {
		return err
	}
	d := newDecoder(leaf, k, lim, where)
	var body []byte
	var rows int64
	entries, err := eachPage(ctx, r, k, where, func(_ pageHeader, at, size int64) (int64, error) {
		if err := d.pageAt(ctx, r, at, size, &body); err != nil {
			return 0, err
		}
		c := d.col
		if leaf.MaxRep == 0 {
			rows += int64(c.Entries)
		}
		for i, v := range c.Rep {
			if v == 0 {
				rows++
			} else if rows == 0 && i == 0 {
				return 0, malformed(with(where, "offset", at), "the first list goes on from none")
			}
		}
		for i := 0; leaf.Note == Text && i < c.Len(); i++ {
			if !utf8.Valid(c.Item(i)) {
				return 0, malformed(with(where, "offset", at), "a text that is not UTF-8")
			}
		}
		d.want -= int64(c.Entries)
		d.col = &Column{Leaf: leaf, values: values{width: leaf.Width()}}
		return int64(c.Entries), nil
	})
	if err == nil && (entries != k.Values || rows != f.Groups[group].Rows) {
		err = malformed(where, fmt.Sprintf("the pages hold %d values in %d rows, the footer claims %d in %d", entries, rows, k.Values, f.Groups[group].Rows))
	}
	return err
}

// pageAt reads and decodes the page at an offset. buf is used again, and may grow.
func (d *decoder) pageAt(ctx context.Context, r robocache.Ranged, at, size int64, buf *[]byte) error {
	if size > d.limit {
		return d.tooLarge(size)
	}
	if int64(cap(*buf)) < size {
		*buf = make([]byte, size)
	}
	b := (*buf)[:size]
	if err := r.ReadAt(ctx, b, at); err != nil {
		return robocache.At(err, d.where)
	}
	_, err := d.page(b)
	return robocache.At(err, robocache.Where{"offset": at})
}

// ReadPage decodes one page of a list.
func ReadPage(ctx context.Context, r robocache.Ranged, f *File, group int, leaf *Node, l *PageList, i int, lim Limits) (*Column, error) {
	where := robocache.Where{"row_group": group, "column": leaf.top}
	k, err := f.place(group, leaf, where)
	if err != nil {
		return nil, err
	}
	p := l.Pages[i]
	k.Values = p.Rows
	d := newDecoder(leaf, k, lim, where)
	list := []Page{p}
	if p.dict && l.dict.Size > 0 {
		list = []Page{l.dict, p}
	}
	var body []byte
	for _, p := range list {
		if err := d.pageAt(ctx, r, p.Offset, p.Size, &body); err != nil {
			return nil, err
		}
	}
	return d.finish(p.Rows)
}
