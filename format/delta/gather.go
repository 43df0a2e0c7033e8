package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// chunk is a column in a row group, decoded.
type chunk struct {
	data  []byte     // of numbers: rows one after the other, zeros where there is no value
	items *pq.Column // of texts, images and paths
	at    []int32    // item of each row; nil: its own number
	valid []uint8    // nil: every row has a value
	same  string     // of a partition: the text of every row
}

type chunkKey struct {
	group, column int
	leaf          string
}

// leaf is the Parquet column of a column in a row group, of a field where it has some; nil where the file has none.
func (d *Dataset) leaf(g int, c *readColumn, name string) *pq.Node {
	n := d.footers[d.groups[g].file].Column(c.field.Name)
	if n != nil && name != "" {
		n = n.Child(name)
	}
	return n.OnlyLeaf()
}

// column reads one.
func (d *Dataset) column(ctx context.Context, g int, leaf *pq.Node, shape []int) *pq.Column {
	at := d.groups[g]
	name := d.files[at.file].name
	h := guard.Must(d.open.Get(name, func() (robocache.Ranged, error) { return d.Bytes.Open(ctx, name) }))
	defer d.open.Put(h)
	c, err := pq.ReadColumn(ctx, h.Value, d.footers[at.file], at.group, leaf, shape, pq.Limits{Bytes: d.budget / 2})
	return guard.Must(c, robocache.At(err, robocache.Where{"file": name}))
}

func (d *Dataset) chunk(ctx context.Context, g int, c *readColumn) *chunk {
	return d.part(ctx, g, c, "")
}

// part is the chunk of a field of a column, or of a column without fields.
func (d *Dataset) part(ctx context.Context, g int, c *readColumn, name string) *chunk {
	return d.chunks.Load(ctx, chunkKey{g, c.id, name}, func() (*chunk, int64) {
		defer guard.At(robocache.Where{"column": c.field.Name})
		k := &chunk{}
		dtype, dims := c.f.DType, c.dims
		if name != "" {
			dtype, dims = robocache.Int64, nil
		}
		numbers := c.f.Kind == robocache.KindNumeric || name == "frame"
		n, size := d.rowsIn(g), dtype.Size()*sizeOf(dims)
		leaf := d.leaf(g, c, name)
		switch {
		case c.partition:
			d.constant(k, c, n, d.files[d.groups[g].file])
		case leaf == nil:
			if k.valid = make([]uint8, n); numbers {
				d.fits(int64(n) * int64(size))
				k.data = make([]byte, n*size)
			}
		case numbers:
			col, err := guard.Value(func() *pq.Column { return d.column(ctx, g, leaf, append([]int{}, dims...)) })
			if errors.Is(err, robocache.ErrMalformed) { // perhaps for nulls alone
				col, err = guard.Value(func() *pq.Column { return d.column(ctx, g, leaf, nil) })
				guard.Check(err)
				k.spread(col, n, sizeOf(dims))
			}
			guard.Check(err)
			if k.data = guard.Must(pq.Convert(col, dtype)); k.valid != nil {
				d.fits(int64(n) * int64(size))
				k.data = spaced(k.data, k.at, size)
			}
			k.at = nil
		default:
			if k.items = d.column(ctx, g, leaf, nil); k.items.Leaf.Type != pq.ByteArray {
				malformed("a column of "+k.items.Leaf.Type.String()+" in place of texts or bytes", nil)
			}
			k.spread(k.items, n, 1)
		}
		held := int64(len(k.data)+4*len(k.at)+len(k.valid)) + 64
		if k.items != nil {
			held += k.items.MemoryBytes()
		}
		return k, held
	})
}

// spread finds the rows without a value: lists are whole, null or empty.
func (k *chunk) spread(col *pq.Column, rows, per int) {
	if col.Def == nil && col.Rep == nil && col.Entries == rows {
		return
	}
	k.at, k.valid = make([]int32, 0, rows), make([]uint8, 0, rows)
	value, began := 0, 0
	end := func() {
		if n := len(k.at); n > 0 && value > began {
			if k.valid[n-1] = 1; value-began != per {
				guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Where: robocache.Where{"row": n - 1}, Want: fmt.Sprintf("%d values", per), Got: fmt.Sprint(value - began)})
			}
		}
	}
	for i := range col.Entries {
		if col.Rep == nil || col.Rep[i] == 0 {
			end()
			began = value
			k.at, k.valid = append(k.at, int32(value/per)), append(k.valid, 0)
		}
		if col.Def == nil || int(col.Def[i]) == col.Leaf.MaxDef {
			value++
		}
	}
	if end(); len(k.at) != rows {
		malformed(fmt.Sprintf("%d rows in a row group of %d", len(k.at), rows), nil)
	}
	if !slices.Contains(k.valid, 0) {
		k.valid = nil
	}
}

// spaced gives values their rows.
func spaced(values []byte, at []int32, size int) []byte {
	out := make([]byte, len(at)*size)
	for i, v := range at {
		if next := len(values) / size; int(v) < next && (i+1 == len(at) || at[i+1] > v) {
			copy(out[i*size:], values[int(v)*size:][:size])
		}
	}
	return out
}

// constant is the value of a partition in all rows of a file.
func (d *Dataset) constant(k *chunk, c *readColumn, n int, a *add) {
	text, ok := a.Partitions[c.field.Name]
	ok = ok && text != ""
	if c.f.Kind != robocache.KindNumeric {
		k.same = text
		return
	}
	size := c.f.DType.Size()
	d.fits(int64(n) * int64(size))
	k.data = make([]byte, n*size)
	if !ok {
		k.valid = make([]uint8, n)
		return
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if b, berr := strconv.ParseBool(text); c.elem == "boolean" && berr == nil {
		v, err = map[bool]int64{true: 1}[b], nil
	}
	f, ferr := strconv.ParseFloat(text, 64)
	for i := range n {
		switch at := k.data[i*size:]; {
		case c.f.DType.Float() && ferr == nil:
			pq.PutFloat(at, c.f.DType, f)
		case c.f.DType.Float() || err != nil || !pq.PutInt(at, c.f.DType, v, false):
			malformed("the partition "+strconv.Quote(text)+" is no "+c.elem, nil)
		}
	}
}

// get finds a stream of some kinds.
func (d *Dataset) get(key string, kinds ...robocache.Kind) *readColumn {
	c := d.byKey[key]
	if c == nil {
		guard.Fail(op.NoStream(key))
	}
	guard.Check(op.Kind(key, c.f.Kind, kinds...))
	return c
}

// each gives rows with their chunks; neighbours share theirs.
func (d *Dataset) each(ctx context.Context, c *readColumn, name string, rows []robocache.Row, do func(i int, k *chunk, row int)) {
	var k *chunk
	in := -1
	for i, r := range rows {
		g, row := d.place(r)
		if g != in {
			guard.Check(ctx.Err())
			k, in = d.part(ctx, g, c, name), g
		}
		do(i, k, row)
	}
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed("delta gather", &err)
	c := d.get(key, robocache.KindNumeric)
	guard.Check(op.Room(key, "bytes", len(rows)*c.f.RowBytes(), len(dst)))
	return d.gather(ctx, c, rows, dst, nil)
}

func (d *Dataset) gather(ctx context.Context, c *readColumn, rows []robocache.Row, dst []byte, valid []uint8) (err error) {
	defer guard.Malformed("delta gather", &err)
	defer guard.In("stream", c.f.Key)
	size := c.f.RowBytes()
	d.each(ctx, c, "", rows, func(i int, k *chunk, row int) {
		if k.valid != nil && k.valid[row] == 0 && !c.f.Masked {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Where: robocache.Where{"episode": rows[i].Episode, "row": rows[i].Index}, Msg: "a null that the statistics in the log do not count", Hint: "fill it, or leave the row out"})
		}
		copy(dst[i*size:], k.data[row*size:(row+1)*size])
	})
	return ctx.Err()
}

// Valid says which rows have a value.
func (d *Dataset) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) (err error) {
	defer guard.Malformed("delta valid", &err)
	c := d.byKey[key]
	if c == nil {
		return op.NoStream(key)
	}
	guard.Check(op.Room(key, "bytes", len(rows), len(valid)))
	reader.AllValid(valid)
	name := ""
	if c.f.Kind == robocache.KindVideo {
		name = "frame"
	}
	d.each(ctx, c, name, rows, func(i int, k *chunk, row int) {
		if k.valid != nil {
			valid[i] = k.valid[row]
		}
	})
	return ctx.Err()
}

// item is a row's text or bytes; "" where it has none.
func (k *chunk) item(row int) string {
	switch {
	case k.valid != nil && k.valid[row] == 0:
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
	defer guard.Malformed("delta text", &err)
	out = make([]string, len(rows))
	c := d.task
	if key != "task" {
		c = d.get(key, robocache.KindText, robocache.KindEvent)
	}
	if c == nil || c.f.Kind != robocache.KindText && c.f.Kind != robocache.KindEvent {
		for _, r := range rows {
			d.place(r)
		}
		return out, ctx.Err()
	}
	d.each(ctx, c, "", rows, func(i int, k *chunk, row int) { out[i] = k.item(row) })
	return out, ctx.Err()
}

// Frames says where images lie.
func (d *Dataset) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (err error) {
	defer guard.Malformed("delta frames", &err)
	c := d.get(key, robocache.KindImage, robocache.KindVideo)
	guard.Check(op.Room(key, "frames", len(rows), len(out)))
	defer guard.In("stream", key)
	if c.f.Kind == robocache.KindImage {
		d.each(ctx, c, "", rows, func(i int, k *chunk, row int) {
			b := k.item(row)
			out[i] = robocache.FrameRef{Encoded: []byte(b), Missing: b == ""}
		})
		return ctx.Err()
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
			out[i].Ordinal = int(le.Uint64(k.data[8*row:]))
		}
	})
	return ctx.Err()
}
