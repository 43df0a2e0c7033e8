package delta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// chunk is a column in a row group, decoded.
type chunk struct {
	data  []byte      // of numbers: rows one after the other, zeros where there is no value
	items *pq.Column  // of texts, images and paths
	at    []int32     // value of each row, -1 where it has none; nil: its own number
	same  string      // of a partition: the text of every row
	wrong map[int]int // rows whose list has another length than the stream's, with that length
}

// has says that a row has a value.
func (k *chunk) has(row int) bool { return k.at == nil || k.at[row] >= 0 }

type chunkKey struct {
	group       int
	column, sub string
}

// leaf is the Parquet column of a column in a row group, of a field where it has some; nil where the file has none.
func (d *Dataset) leaf(g int, c *readColumn, sub string) *pq.Node {
	n := d.groups[g].f.Column(c.name)
	if n != nil && sub != "" {
		n = n.Child(sub)
	}
	return n.OnlyLeaf()
}

func (d *Dataset) read(ctx context.Context, g int, leaf *pq.Node, shape []int) *pq.Column {
	at := d.groups[g]
	h := guard.Must(d.open.Get(at.name(), func() (robocache.Ranged, error) { return d.Bytes.Open(ctx, at.name()) }))
	defer d.open.Put(h)
	defer guard.In("file", at.name())
	return guard.Must(pq.ReadColumn(ctx, h.Value, at.f, at.number, leaf, shape, pq.Limits{Bytes: d.budget / 2}))
}

// chunk is a column, or a field of it, in a row group.
func (d *Dataset) chunk(ctx context.Context, g int, c *readColumn, sub string) *chunk {
	return d.chunks.Load(ctx, chunkKey{g, c.name, sub}, func() (*chunk, int64) {
		defer guard.At(robocache.Where{"column": c.name})
		k, leaf, dtype := &chunk{}, d.leaf(g, c, sub), c.f.DType
		if sub == "frame" {
			dtype = robocache.Int64
		}
		numbers, per, rows := c.f.Kind == robocache.KindNumeric || sub == "frame", sizeOf(c.dims), d.groups[g].f.Groups[d.groups[g].number].Rows
		d.fits(8 * min(rows, math.MaxInt64/8))
		n := int(rows)
		col := &pq.Column{}
		var values []byte
		if leaf != nil && leaf.MaxRep != len(c.dims) {
			fail(robocache.ErrMalformed, fmt.Sprintf("lists %d deep in the file, %d in the table", leaf.MaxRep, len(c.dims)), "")
		}
		switch {
		case c.partition && !numbers:
			k.same = d.groups[g].Partitions[c.name]
		case c.partition:
			if values = c.constant(d.groups[g].Partitions[c.name]); values == nil {
				k.at = slots(n, -1)
			} else {
				k.at = slots(n, 0)
			}
		case leaf == nil:
			k.at = slots(n, -1)
		case numbers:
			var err error
			col, err = guard.Value(func() *pq.Column { return d.read(ctx, g, leaf, append([]int{}, c.dims...)) })
			if errors.Is(err, robocache.ErrMalformed) { // perhaps for nulls alone
				col = d.read(ctx, g, leaf, nil)
				k.spread(col, n, per)
			} else {
				guard.Check(err)
			}
			values = guard.Must(pq.Convert(col, dtype))
		default:
			if k.items = d.read(ctx, g, leaf, nil); leaf.Type != pq.ByteArray {
				fail(robocache.ErrMalformed, "a column of "+leaf.Type.String()+" in place of texts or bytes", "")
			}
			k.spread(k.items, n, 1)
		}
		if k.data = values; numbers && k.at != nil {
			size := per * dtype.Size()
			d.fits(rows * int64(size))
			k.data = make([]byte, n*size)
			for row, at := range k.at {
				if at >= 0 {
					copy(k.data[row*size:(row+1)*size], values[int(at)*dtype.Size():])
				}
			}
		}
		held := int64(len(k.data) + 4*len(k.at) + 32*len(k.wrong) + 64)
		if k.items != nil {
			held += k.items.MemoryBytes()
		}
		return k, held
	})
}

func slots(n int, value int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = value
	}
	return out
}

// spread finds the first value of each row. A null or an empty list is no value. A list of another
// length than per is an error of its row alone.
func (k *chunk) spread(col *pq.Column, rows, per int) {
	if col.Def == nil && col.Rep == nil && col.Entries == rows {
		return
	}
	k.at = make([]int32, 0, rows)
	value, began := 0, 0
	for i := 0; i <= col.Entries; i++ {
		if i == col.Entries || col.Rep == nil || col.Rep[i] == 0 {
			row := len(k.at) - 1
			if n := value - began; n == per {
				k.at[row] = int32(began)
			} else if n > 0 {
				if k.wrong == nil {
					k.wrong = map[int]int{}
				}
				k.wrong[row] = n
			}
			k.at, began = append(k.at, -1), value
		}
		if i < col.Entries && (col.Def == nil || int(col.Def[i]) == col.Leaf.MaxDef) {
			value++
		}
	}
	if k.at = k.at[:len(k.at)-1]; len(k.at) != rows {
		fail(robocache.ErrMalformed, fmt.Sprintf("%d rows in a row group of %d", len(k.at), rows), "")
	}
	if value > math.MaxInt32 {
		fail(robocache.ErrResourceLimit, fmt.Sprintf("%d values in a row group", value), "write smaller row groups")
	}
}

// constant is the number that a partition's text says; nil for null.
func (c *readColumn) constant(text string) []byte {
	if text == "" {
		return nil
	}
	out := make([]byte, c.f.DType.Size())
	f, err := strconv.ParseFloat(text, 64)
	if c.f.DType.Float() && err == nil {
		pq.PutFloat(out, c.f.DType, f)
		return out
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if c.elem == "boolean" {
		var yes bool
		if yes, err = strconv.ParseBool(text); yes {
			n = 1
		}
	}
	if c.f.DType.Float() || err != nil || !pq.PutInt(out, c.f.DType, n, false) {
		fail(robocache.ErrMalformed, "the partition "+strconv.Quote(text)+" is no "+c.elem, "")
	}
	return out
}

// get finds a stream of some kinds, and checks the room for its rows.
func (d *Dataset) get(key, what string, room, got int, kinds ...robocache.Kind) *readColumn {
	c := d.columns[key]
	if c == nil {
		guard.Fail(op.NoStream(key))
	}
	guard.Check(op.Kind(key, c.f.Kind, kinds...))
	if what == "bytes" {
		room *= c.f.RowBytes()
	}
	guard.Check(op.Room(key, what, room, got))
	return c
}

// each gives rows with their chunks; neighbours share theirs.
func (d *Dataset) each(ctx context.Context, c *readColumn, sub string, rows []robocache.Row, do func(i int, k *chunk, row int)) {
	defer guard.In("stream", c.f.Key)
	var k *chunk
	in := -1
	for i, r := range rows {
		g, row := d.place(r)
		if g != in {
			guard.Check(ctx.Err())
			k, in = d.chunk(ctx, g, c, sub), g
		}
		do(i, k, row)
	}
	guard.Check(ctx.Err())
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Recover("delta gather", &err)
	d.gather(ctx, d.get(key, "bytes", len(rows), len(dst), robocache.KindNumeric), rows, dst)
	return nil
}

func (d *Dataset) gather(ctx context.Context, c *readColumn, rows []robocache.Row, dst []byte) {
	size := c.f.RowBytes()
	d.each(ctx, c, "", rows, func(i int, k *chunk, row int) {
		if n, isWrong := k.wrong[row]; isWrong {
			guard.Fail(&robocache.Error{
				Class: robocache.ErrMalformed, Op: string(op),
				Where: robocache.Where{"episode": d.About.EpisodeIndex(rows[i].Episode), "row": rows[i].Index},
				Msg:   "the list is not as long as those of most rows",
				Want:  fmt.Sprintf("%d values", sizeOf(c.dims)), Got: fmt.Sprint(n),
				Hint: `leave the stream out (keys=), or leave the episode out (on_bad_episode="skip", --skip-bad)`,
			})
		}
		if !c.f.Masked && !k.has(row) {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Where: robocache.Where{"episode": d.About.EpisodeIndex(rows[i].Episode), "row": rows[i].Index}, Msg: "a null that the statistics in the log do not count", Hint: "fill it, or leave the row out"})
		}
		copy(dst[i*size:], k.data[row*size:(row+1)*size])
	})
}

// Valid says which rows have a value.
func (d *Dataset) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) (err error) {
	defer guard.Recover("delta valid", &err)
	c, sub := d.columns[key], ""
	if c == nil {
		return op.NoStream(key)
	}
	guard.Check(op.Room(key, "bytes", len(rows), len(valid)))
	if reader.AllValid(valid); c.f.Kind == robocache.KindVideo {
		sub = "path"
	}
	d.each(ctx, c, sub, rows, func(i int, k *chunk, row int) {
		if !k.has(row) {
			valid[i] = 0
		}
	})
	return nil
}

// item is a row's text or bytes; "" where it has none.
func (k *chunk) item(row int) string {
	switch {
	case !k.has(row):
		return ""
	case k.items == nil:
		return k.same
	case k.at != nil:
		row = int(k.at[row])
	}
	return string(k.items.Item(row))
}

// Text gives the rows of a text stream, and of "task".
func (d *Dataset) Text(ctx context.Context, key string, rows []robocache.Row) (out []string, err error) {
	defer guard.Recover("delta text", &err)
	out = make([]string, len(rows))
	c := d.task
	if key != "task" {
		c = d.get(key, "rows", len(rows), len(rows), robocache.KindText, robocache.KindEvent)
	}
	if c == nil || elemOf[c.f.Kind] != "string" {
		for _, r := range rows {
			d.place(r)
		}
		return out, ctx.Err()
	}
	d.each(ctx, c, "", rows, func(i int, k *chunk, row int) { out[i] = k.item(row) })
	return out, nil
}

// Frames says where images lie.
func (d *Dataset) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (err error) {
	defer guard.Recover("delta frames", &err)
	c := d.get(key, "frames", len(rows), len(out), robocache.KindImage, robocache.KindVideo)
	if c.f.Kind == robocache.KindImage {
		d.each(ctx, c, "", rows, func(i int, k *chunk, row int) {
			b := k.item(row)
			out[i] = robocache.FrameRef{Encoded: []byte(b), Missing: b == ""}
		})
		return nil
	}
	d.each(ctx, c, "path", rows, func(i int, k *chunk, row int) {
		if out[i] = (robocache.FrameRef{Path: k.item(row)}); out[i].Path == "" {
			out[i].Missing = true
		} else {
			out[i].Path = guard.Must(store.CleanName(out[i].Path))
		}
	})
	d.each(ctx, c, "frame", rows, func(i int, k *chunk, row int) {
		if !out[i].Missing {
			out[i].Ordinal = int(binary.LittleEndian.Uint64(k.data[8*row:]))
		}
	})
	return nil
}
