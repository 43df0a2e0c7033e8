package lerobot

import (
	"context"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// stillUnit is a decoded run of rows of an image column: a row group, or one page of a large row
// group.
type stillUnit struct {
	bytes, path *pq.Column
	at, pathAt  []int32 // row → value, -1 for null; nil if no row is null
	pathStart   int64   // row of the first value of path, relative to the first row of the unit
}

// valueIndex returns the position of each row's value, with -1 for null rows. It returns nil if no
// row is null.
func valueIndex(c *pq.Column) []int32 {
	if c == nil || c.Def == nil {
		return nil
	}
	out := make([]int32, c.Entries)
	n := int32(0)
	for i, v := range c.Def {
		out[i] = -1
		if int(v) == c.Leaf.MaxDef {
			out[i] = n
			n++
		}
	}
	return out
}

// imageLeaves returns the columns of images. They are the group {bytes, path}, or plain bytes with
// p nil.
func (c *column) imageLeaves(f *tableFile) (b, p *pq.Node, err error) {
	got := "another type"
	b = f.pq.Column(c.key)
	if b == nil {
		got = "no column in this file"
	} else if b.Group() {
		b, p = b.Child("bytes"), b.Child("path")
	}
	isBytes := func(n *pq.Node) bool { return n.Type == pq.ByteArray && n.MaxRep == 0 }
	hasBytes := b != nil && isBytes(b)
	hasBadPath := p != nil && !isBytes(p)
	if !hasBytes || hasBadPath {
		return b, p, malformed(
			robocache.Where{"file": f.name, "column": c.key},
			"a group {bytes, path}",
			got,
		)
	}
	return b, p, nil
}

// decodeImages returns a function that decodes page i of list, or the whole row group if list is
// nil.
func (c *column) decodeImages(list *pq.PageList, i int) decodeUnit {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		b, p, err := c.imageLeaves(f)
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
			// Paths are needed only if some bytes are null.
			if u.path, err = pq.ReadColumn(ctx, r, f.pq, group, p, nil, lim); err != nil {
				return nil, 0, err
			}
			u.pathAt = valueIndex(u.path)
			size += u.path.MemoryBytes()
		}
		return u, size, nil
	}
}

// pageable is the size of a column chunk of images from which it is read page by page.
const pageable = 4 << 20

// loadStills loads the chunk or page of images that holds a row.
func (d *Dataset) loadStills(ctx context.Context, c *column, file int32, row int64) (span, error) {
	f, g, err := d.tables.findGroup(ctx, file, row)
	if err != nil {
		return span{}, err
	}
	b, _, err := c.imageLeaves(f)
	if err != nil {
		return span{}, err
	}
	key := unitKey{file: file, group: int32(g), col: c.number}
	at := f.pq.Groups[g]
	if k, ok := f.pq.Chunk(g, b); !ok || k.Size < pageable {
		content, err := d.tables.loadGroup(ctx, f, key, c.decodeImages(nil, 0))
		if err != nil {
			return span{}, err
		}
		return span{file: file, start: at.Start, end: at.Start + at.Rows, value: content}, nil
	}
	key.page = pageListUnit
	pageList, err := d.tables.loadGroup(
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
	l := pageList.(*pq.PageList)
	i := sort.Search(
		len(l.Pages),
		func(i int) bool { return l.Pages[i].Start+l.Pages[i].Rows > row-at.Start },
	)
	key.page = int32(i) + 1
	p := l.Pages[i]
	page, err := d.tables.loadGroup(ctx, f, key, c.decodeImages(l, i))
	if err != nil {
		return span{}, err
	}
	return span{
		file:  file,
		start: at.Start + p.Start,
		end:   at.Start + p.Start + p.Rows,
		value: page,
	}, nil
}

const maxStill = 256 << 20

// readStills returns the encoded images of an image feature.
func (d *Dataset) readStills(
	ctx context.Context,
	c *column,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	w := d.newWalker(
		c,
		func(file int32, row int64) (span, error) { return d.loadStills(ctx, c, file, row) },
	)
	for i, r := range rows {
		if _, err := d.countRun(rows[i : i+1]); err != nil {
			return err
		}
		at, err := w.seek(r)
		if err != nil {
			return err
		}
		u := w.value.(*stillUnit)
		v := at
		if u.at != nil {
			v = int(u.at[at])
		}
		if v < 0 {
			encoded, err := d.stillFile(ctx, c, r, u, at)
			if err != nil {
				return err
			}
			out[i] = robocache.FrameRef{Encoded: encoded}
			continue
		}
		out[i] = robocache.FrameRef{Encoded: u.bytes.Item(v)}
		if len(out[i].Encoded) == 0 {
			return d.stillError(c, r, "a frame", "no bytes")
		}
	}
	return nil
}

// stillFile reads an image whose path is in the column instead of its bytes. The path is untrusted;
// the store keeps it below the root.
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
		return nil, d.stillError(c, r, "bytes or a path", "null")
	}
	path := string(u.path.Item(v))
	defer robocache.Locate(
		&err,
		robocache.Where{
			"episode": d.episodes.indexAt(r.Episode),
			"stream":  c.key,
			"row":     r.Index,
			"file":    path,
		},
	)
	cleanName, err := store.CleanName(path)
	if err != nil {
		return nil, err
	}
	return store.ReadFile(ctx, d.Bytes, cleanName, min(maxStill, d.memoryLimit))
}

// stillError returns the error about the image of a row.
func (d *Dataset) stillError(c *column, r robocache.Row, want, got string) error {
	return malformed(
		robocache.Where{"episode": d.episodes.indexAt(r.Episode), "stream": c.key, "row": r.Index},
		want,
		got,
	)
}
