package lerobot

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
)

// reader decodes one unit of a row group.
type reader = func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (value any, size int64, err error)

// decode gives a numeric column in its declared type: []byte.
func (c *column) decode(limit int64) reader {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		return c.numbers(ctx, r, f, group, limit)
	}
}

// timestamps gives a column of seconds as nanoseconds, from the stored type (L8): []int64.
func (c *column) timestamps(rate robocache.Rate, limit int64) reader {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		col, err := c.read(ctx, r, f, group, limit)
		if err != nil {
			return nil, 0, err
		}
		b, err := convert(col, robocache.Float64)
		if err != nil {
			return nil, 0, robocache.At(err, robocache.Where{"column": c.key})
		}
		out := make([]int64, len(b)/8)
		for i := range out {
			out[i] = timestampNanos(leFloat64(b, i), rate)
		}
		return out, int64(len(out)) * 8, nil
	}
}

// texts gives a column of strings: *pq.Column.
func (c *column) texts(limit int64) reader {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		top := f.pq.Column(c.key)
		if top == nil {
			return nil, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Msg: "the column is missing in this file"}
		}
		if top.Group() || top.Type != pq.ByteArray || top.MaxRep > 0 {
			return nil, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Want: "a column of texts", Got: top.Type.String()}
		}
		col, err := pq.ReadColumn(ctx, r, f.pq, group, top, []int{}, pq.Limits{Bytes: limit})
		if err != nil {
			return nil, 0, err
		}
		return col, col.MemoryBytes(), nil
	}
}

// events gives a language column as JSON texts: []string.
func (c *column) events(limit int64) reader {
	return func(ctx context.Context, r robocache.Ranged, f *tableFile, group int) (any, int64, error) {
		top := f.pq.Column(c.key)
		if top == nil {
			return nil, 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"column": c.key}, Msg: "the column is missing in this file"}
		}
		// Tool calls are JSON inside JSON: Arrow's extension type, or plain strings.
		tools := map[*pq.Node]bool{}
		if element := top.Element(); element != nil {
			if t := element.Child("tool_calls"); t != nil {
				for _, l := range t.Leaves(nil) {
					tools[l] = true
				}
			}
		}
		out, err := pq.ReadJSON(ctx, r, f.pq, group, top, func(n *pq.Node) bool { return tools[n] }, pq.Limits{Bytes: limit})
		if err != nil {
			return nil, 0, err
		}
		var size int64
		for _, s := range out {
			size += int64(len(s)) + 16
		}
		return out, size, nil
	}
}
