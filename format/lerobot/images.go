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
	at, pathAt  []int32 // row → position of its value, -1 for null; nil if no row is null
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

// imageLeaves returns the columns of images: the group {bytes, path}, or a plain column of bytes.
// In the second case pathLeaf is nil.
func (c *column) imageLeaves(f *tableFile) (bytesLeaf, pathLeaf *pq.Node, err error) {
	got := "another type"
	bytesLeaf = f.pq.Column(c.key)
	if bytesLeaf == nil {
		got = "no column in this file"
	} else if bytesLeaf.Group() {
		bytesLeaf, pathLeaf = bytesLeaf.Child("bytes"), bytesLeaf.Child("path")
	}
	isBytes := func(n *pq.Node) bool { return n.Type == pq.ByteArray && n.MaxRep == 0 }
	hasBytes := bytesLeaf != nil && isBytes(bytesLeaf)
	hasBadPath := pathLeaf != nil && !isBytes(pathLeaf)
	if !hasBytes || hasBadPath {
		return bytesLeaf, pathLeaf, malformed(
			robocache.Where{"file": f.name, "column": c.key},
			"a group {bytes, path}",
			got,
		)
	}
	return bytesLeaf, pathLeaf, nil
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
	bytesLeaf, _, err := c.imageLeaves(f)
	if err != nil {
		return span{}, err
	}
	key := unitKey{file: file, group: int32(g), col: c.number}
	rowGroup := f.pq.Groups[g]
	if chunk, ok := f.pq.Chunk(g, bytesLeaf); !ok || chunk.Size < pageable {
		content, err := d.tables.loadGroup(ctx, f, key, c.decodeImages(nil, 0))
		if err != nil {
			return span{}, err
		}
		return spanOf(file, rowGroup, content), nil
	}
	key.page = pageListUnit
	loaded, err := d.tables.loadGroup(
		ctx,
		f,
		key,
		func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
			pages, err := pq.Pages(ctx, r, f.pq, group, bytesLeaf)
			if err != nil {
				return nil, 0, err
			}
			return pages, pages.MemoryBytes(), nil
		},
	)
	if err != nil {
		return span{}, err
	}
	pageList := loaded.(*pq.PageList)
	pages := pageList.Pages
	rowInGroup := row - rowGroup.Start
	endsAfterRow := func(i int) bool { return pages[i].Start+pages[i].Rows > rowInGroup }
	i := sort.Search(len(pages), endsAfterRow)
	key.page = int32(i) + 1 // page 0 is the key of a whole row group
	content, err := d.tables.loadGroup(ctx, f, key, c.decodeImages(pageList, i))
	if err != nil {
		return span{}, err
	}
	return span{
		file:  file,
		start: rowGroup.Start + pages[i].Start,
		end:   rowGroup.Start + pages[i].Start + pages[i].Rows,
		value: content,
	}, nil
}

// maxStill bounds the bytes of an image file.
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
		if err := d.checkRowExists(r); err != nil {
			return err
		}
		rowInUnit, err := w.seek(r)
		if err != nil {
			return err
		}
		u := w.value.(*stillUnit)
		value := rowInUnit
		if u.at != nil {
			value = int(u.at[rowInUnit])
		}
		if value < 0 {
			encoded, err := d.stillFile(ctx, c, r, u, rowInUnit)
			if err != nil {
				return err
			}
			out[i] = robocache.FrameRef{Encoded: encoded}
			continue
		}
		out[i] = robocache.FrameRef{Encoded: u.bytes.Item(value)}
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
	rowInUnit int,
) (_ []byte, err error) {
	pathRow := rowInUnit - int(u.pathStart) // paths are read for the whole row group
	value := pathRow
	if u.pathAt != nil {
		value = int(u.pathAt[pathRow])
	}
	if u.path == nil || value < 0 {
		return nil, d.stillError(c, r, "bytes or a path", "null")
	}
	path := string(u.path.Item(value))
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
