package lerobot

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// unit names one thing that is decoded as a whole, and cached.
type unit struct {
	file, group int32
	col         int32 // column number, or one of the unit… constants
	page        int32 // 1 + page for columns that are read by the page, -1 for the list of pages
}

const (
	unitFooter = -1 - iota
	unitProof
	unitTimes
	unitCluster // page is its number
)

// decodeUnit decodes one unit of a row group. It ends by guard.Fail where it cannot.
type decodeUnit = func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (value any, size int64)

// malformed is what is wrong with a dataset.
func malformed(where robocache.Where, want, got string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: where, Want: want, Got: got}
}

// top is the column's node in a file.
func (c *column) top(f *tableFile) *pq.Node {
	top := f.pq.Column(c.key)
	if top == nil {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Msg: "the column is missing in this file"})
	}
	return top
}

// numbers gives a numeric column in its declared type: []byte.
func (c *column) numbers(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64) {
	b, err := convert(c.read(ctx, r, f, group), c.dtype)
	if e, ok := err.(*robocache.Error); ok && e.Where["value"] != nil {
		e.Where = robocache.Where{"row": e.Where["value"].(int) / max(1, elements(c.shape))}
	}
	guard.Check(robocache.At(err, robocache.Where{"column": c.key}))
	return b, int64(cap(b)) + 64
}

// timestamps gives a column of seconds as nanoseconds, from the stored type (L8): []int64.
func (c *column) timestamps(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64) {
	seconds, err := toFloat64(c.read(ctx, r, f, group))
	guard.Check(robocache.At(err, robocache.Where{"column": c.key}))
	out := make([]int64, len(seconds))
	for i, s := range seconds {
		out[i] = timestampNanos(s, f.d.raw.fps)
	}
	return out, int64(len(out)) * 8
}

// texts gives a column of strings: *pq.Column.
func (c *column) texts(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64) {
	top := c.top(f)
	if top.Group() || top.Type != pq.ByteArray || top.MaxRep > 0 {
		guard.Fail(malformed(robocache.Where{"column": c.key}, "a column of texts", top.Type.String()))
	}
	col := guard.Must(pq.ReadColumn(ctx, r, f.pq, group, top, []int{}, f.limits()))
	return col, col.MemoryBytes()
}

// events gives a language column as JSON texts: []string.
func (c *column) events(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64) {
	top := c.top(f)
	// Tool calls are JSON inside JSON: Arrow's extension type, or plain strings.
	tools := map[*pq.Node]bool{}
	if element := top.Element(); element != nil {
		if t := element.Child("tool_calls"); t != nil {
			for _, l := range t.Leaves(nil) {
				tools[l] = true
			}
		}
	}
	out := guard.Must(pq.ReadJSON(ctx, r, f.pq, group, top, func(n *pq.Node) bool { return tools[n] }, f.limits()))
	var size int64
	for _, s := range out {
		size += int64(len(s)) + 16
	}
	return out, size
}
