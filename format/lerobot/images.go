package lerobot

import (
	"context"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// stillUnit is a run of rows of an image column: a row group, or a page of a large one.
type stillUnit struct {
	bytes, path *pq.Column
	at, pathAt  []int32 // row → value, -1 for null; nil where no row is null
	pathStart   int64   // row of path's first value, from the unit's first row
}

func valueIndex(c *pq.Column) []int32 {
	if c == nil || c.Def == nil {
		return nil
	}
	out := make([]int32, c.Entries)
	n := int32(0)
	for i, v := range c.Def {
		if out[i] = -1; int(v) == c.Leaf.MaxDef {
			out[i] = n
			n++
		}
	}
	return out
}

// leaves finds the columns of frames: the group {bytes, path}, or plain bytes.
func (c *column) leaves(f *tableFile) (b, p *pq.Node, err error) {
	got := "another type"
	if b = f.pq.Column(c.key); b == nil {
		got = "no column in this file"
	} else if b.Group() {
		b, p = b.Child("bytes"), b.Child("path")
	}
	if b == nil || b.Type != pq.ByteArray || b.MaxRep > 0 ||
		p != nil && (p.Type != pq.ByteArray || p.MaxRep > 0) {
		return b, p, malformed(
			robocache.Where{"file": f.name, "column": c.key},
			"a group {bytes, path}",
			got,
		)
	}
	return b, p, nil
}

// images decodes a run of rows: page i of list, or the whole row group where list is nil.
func (c *column) images(list *pq.PageList, i int) decodeUnit {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		b, p, err := c.leaves(f)
		if err != nil {
			return nil, 0, err
		}
		u := &stillUnit{}
		lim := f.limits()
		if list == nil {
			if u.bytes, err = pq.ReadColumn(ctx, r, f.pq, group, b, nil, lim); err != nil {
				return nil, 0, err
			}
		} else {
			if u.bytes, err = pq.ReadPage(ctx, r, f.pq, group, b, list, i, lim); err != nil {
				return nil, 0, err
			}
			u.pathStart = -list.Pages[i].Start
		}
		size := u.bytes.MemoryBytes()
		if u.at = valueIndex(u.bytes); u.at != nil && p != nil {
			// Paths matter only where bytes are null.
			if u.path, err = pq.ReadColumn(ctx, r, f.pq, group, p, nil, lim); err != nil {
				return nil, 0, err
			}
			u.pathAt = valueIndex(u.path)
			size += u.path.MemoryBytes()
		}
		return u, size, nil
	}
}

// pageable is the size of a column chunk of frames from which on it is read by the page.
const pageable = 4 << 20

// loadStills gives the run of rows that holds a row.
func (d *Dataset) loadStills(ctx context.Context, c *column, file int32, row int64) (span, error) {
	f, g, err := d.tab.groupOf(ctx, file, row)
	if err != nil {
		return span{}, err
	}
	b, _, err := c.leaves(f)
	if err != nil {
		return span{}, err
	}
	key := unit{file: file, group: int32(g), col: c.num}
	at := f.pq.Groups[g]
	if k, ok := f.pq.Chunk(g, b); !ok || k.Size < pageable {
		fetch, err := d.tab.fetch(ctx, f, key, c.images(nil, 0))
		if err != nil {
			return span{}, err
		}
		return span{file: file, start: at.Start, end: at.Start + at.Rows, value: fetch}, nil
	}
	key.page = -1
	fetch, err := d.tab.fetch(
		ctx,
		f,
		key,
		func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
			l, err := pq.Pages(ctx, r, f.pq, group, b)
			if err != nil {
				return nil, 0, err
			}
			return l, l.MemoryBytes(), nil
		},
	)
	if err != nil {
		return span{}, err
	}
	l := fetch.(*pq.PageList)
	i := sort.Search(
		len(l.Pages),
		func(i int) bool { return l.Pages[i].Start+l.Pages[i].Rows > row-at.Start },
	)
	key.page = int32(i) + 1
	p := l.Pages[i]
	fetchValue, err := d.tab.fetch(ctx, f, key, c.images(l, i))
	if err != nil {
		return span{}, err
	}
	return span{
		file:  file,
		start: at.Start + p.Start,
		end:   at.Start + p.Start + p.Rows,
		value: fetchValue,
	}, nil
}

const maxStill = 256 << 20

// stills gives the encoded images of an image feature.
func (d *Dataset) stills(
	ctx context.Context,
	c *column,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	w := d.walk(
		c,
		func(file int32, row int64) (span, error) { return d.loadStills(ctx, c, file, row) },
	)
	for i, r := range rows {
		if _, err := d.run(rows[i : i+1]); err != nil {
			return err
		}
		at, err := w.to(r)
		if err != nil {
			return err
		}
		u := w.value.(*stillUnit)
		v := at
		if u.at != nil {
			v = int(u.at[at])
		}
		if v < 0 {
			stillFile, err := d.stillFile(ctx, c, r, u, at)
			if err != nil {
				return err
			}
			out[i] = robocache.FrameRef{Encoded: stillFile}
		} else if out[i] = (robocache.FrameRef{Encoded: u.bytes.Item(v)}); len(out[i].Encoded) == 0 {
			return d.badStill(c, r, "a frame", "no bytes")
		}
	}
	return nil
}

// stillFile reads a frame that the column names instead of holding. The name is untrusted: the
// store keeps it below the root.
func (d *Dataset) stillFile(
	ctx context.Context,
	c *column,
	r robocache.Row,
	u *stillUnit,
	at int,
) (_ []byte, err error) {
	v := at - int(u.pathStart)
	if u.pathAt != nil {
		v = int(u.pathAt[v])
	}
	if u.path == nil || v < 0 {
		return nil, d.badStill(c, r, "bytes or a path", "null")
	}
	path := string(u.path.Item(v))
	defer robocache.Locate(
		&err,
		robocache.Where{
			"episode": d.eps.id(r.Episode),
			"stream":  c.key,
			"row":     r.Index,
			"file":    path,
		},
	)
	cleanName, err := store.CleanName(path)
	if err != nil {
		return nil, err
	}
	return store.ReadFile(ctx, d.Bytes, cleanName, min(maxStill, d.limit))
}

func (d *Dataset) badStill(c *column, r robocache.Row, want, got string) error {
	return malformed(
		robocache.Where{"episode": d.eps.id(r.Episode), "stream": c.key, "row": r.Index},
		want,
		got,
	)
}
