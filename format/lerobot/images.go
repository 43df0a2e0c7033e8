package lerobot

import (
	"context"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// stillUnit is one row group of an image column.
type stillUnit struct {
	bytes, path *pq.Column
	at          []int32 // row → value of bytes, -1 for null; nil where no row is null
	pathAt      []int32
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

// images decodes an image column: the group {bytes, path}, or plain bytes.
func (c *column) images(limit int64) reader {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		bad := func(got string) error {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Want: "a group {bytes, path}", Got: got}
		}
		top := f.pq.Column(c.key)
		if top == nil {
			return nil, 0, bad("no column in this file")
		}
		b, p := top, (*pq.Node)(nil)
		if top.Group() {
			b, p = top.Child("bytes"), top.Child("path")
		}
		if b == nil || b.Type != pq.ByteArray || b.MaxRep > 0 || p != nil && (p.Type != pq.ByteArray || p.MaxRep > 0) {
			return nil, 0, bad("another type")
		}
		u := &stillUnit{}
		var err error
		if u.bytes, err = pq.ReadColumn(ctx, r, f.pq, group, b, nil, pq.Limits{Bytes: limit}); err != nil {
			return nil, 0, err
		}
		size := u.bytes.MemoryBytes()
		if u.at = valueIndex(u.bytes); u.at != nil && p != nil {
			// Paths matter only where bytes are null.
			if u.path, err = pq.ReadColumn(ctx, r, f.pq, group, p, nil, pq.Limits{Bytes: limit}); err != nil {
				return nil, 0, err
			}
			u.pathAt = valueIndex(u.path)
			size += u.path.MemoryBytes()
		}
		return u, size, nil
	}
}

const maxStill = 256 << 20

// stills gives the encoded pictures of an image feature.
func (d *Dataset) stills(ctx context.Context, c *column, rows []robocache.Row, out []robocache.FrameRef) error {
	read := c.images(d.limit)
	var s span
	s.file = -1
	for i, r := range rows {
		if _, err := d.run(rows[i : i+1]); err != nil {
			return err
		}
		file, start := d.tab.fileOf(r.Episode)
		if at := start + int64(r.Index); s.file != file || at < s.start || at >= s.end {
			var err error
			if s, err = d.find3(ctx, c, c.num, r.Episode, r.Index, read); err != nil {
				return err
			}
		}
		_, start = d.tab.fileOf(r.Episode)
		u := s.value.(*stillUnit)
		at := int(start + int64(r.Index) - s.start)
		v := at
		if u.at != nil {
			v = int(u.at[at])
		}
		if v >= 0 {
			b := u.bytes.Item(v)
			if len(b) == 0 {
				return d.badStill(c, r, "a picture", "no bytes")
			}
			out[i] = robocache.FrameRef{Encoded: b}
			continue
		}
		b, err := d.stillFile(ctx, c, r, u, at)
		if err != nil {
			return err
		}
		out[i] = robocache.FrameRef{Encoded: b}
	}
	return nil
}

// stillFile reads a picture that the column names instead of holding. The name is untrusted: the store keeps it below the root.
func (d *Dataset) stillFile(ctx context.Context, c *column, r robocache.Row, u *stillUnit, at int) ([]byte, error) {
	v := at
	if u.pathAt != nil {
		v = int(u.pathAt[at])
	}
	if u.path == nil || v < 0 {
		return nil, d.badStill(c, r, "bytes or a path", "null")
	}
	path := string(u.path.Item(v))
	where := robocache.Where{"episode": d.eps.id(r.Episode), "stream": c.key, "row": r.Index, "file": path}
	name, err := store.CleanName(path)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	b, err := store.ReadFile(ctx, d.st, name, min(maxStill, d.limit))
	if err != nil {
		return nil, robocache.At(err, where)
	}
	return b, nil
}

func (d *Dataset) badStill(c *column, r robocache.Row, want, got string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"episode": d.eps.id(r.Episode), "stream": c.key, "row": r.Index}, Want: want, Got: fmt.Sprint(got)}
}
