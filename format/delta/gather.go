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
	"github.com/goatnote-inc/robocache/internal/crash"
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

// leaf is the Parquet column of a column in a row group, of a field where it has some; nil where
// the file has none.
func (d *Dataset) leaf(g int, c *readColumn, sub string) *pq.Node {
	n := d.groups[g].f.Column(c.name)
	if n != nil && sub != "" {
		n = n.Child(sub)
	}
	return n.OnlyLeaf()
}

func (d *Dataset) read(
	ctx context.Context,
	g int,
	leaf *pq.Node,
	shape []int,
) (_ *pq.Column, err error) {
	at := d.groups[g]
	name, err := at.name()
	if err != nil {
		return nil, err
	}
	h, err := d.open.Get(name, func() (robocache.Ranged, error) {
		name, err := at.name()
		if err != nil {
			return nil, err
		}
		return d.Bytes.Open(ctx, name)
	})
	if err != nil {
		return nil, err
	}
	defer d.open.Put(h)
	nameValue, err := at.name()
	if err != nil {
		return nil, err
	}
	defer robocache.LocateIn(&err, "file", nameValue)
	return pq.ReadColumn(ctx, h.Value, at.f, at.number, leaf, shape, pq.Limits{Bytes: d.budget / 2})
}

// chunk is a column, or a field of it, in a row group.
func (d *Dataset) chunk(ctx context.Context, g int, c *readColumn, sub string) (*chunk, error) {
	return d.chunks.Load(ctx, chunkKey{g, c.name, sub}, func() (_ *chunk, _ int64, err error) {
		defer robocache.LocateIn(&err, "column", c.name)
		k, leaf, dtype := &chunk{}, d.leaf(g, c, sub), c.f.DType
		if sub == "frame" {
			dtype = robocache.Int64
		}
		numbers, per, rows := c.f.Kind == robocache.KindNumeric ||
			sub == "frame", sizeOf(
			c.dims,
		), d.groups[g].f.Groups[d.groups[g].number].Rows
		if err := d.fits(8 * min(rows, math.MaxInt64/8)); err != nil {
			return nil, 0, err
		}
		n := int(rows)
		col := &pq.Column{}
		var values []byte
		if leaf != nil && leaf.MaxRep != len(c.dims) {
			return nil, 0, fail(
				robocache.ErrMalformed,
				fmt.Sprintf("lists %d deep in the file, %d in the table", leaf.MaxRep, len(c.dims)),
				"",
			)
		}
		switch {
		case c.partition && !numbers:
			k.same = d.groups[g].Partitions[c.name]
		case c.partition:
			if values, err = c.constant(d.groups[g].Partitions[c.name]); err != nil {
				return nil, 0, err
			}
			if values == nil {
				k.at = slots(n, -1)
			} else {
				k.at = slots(n, 0)
			}
		case leaf == nil:
			k.at = slots(n, -1)
		case numbers:
			var err error
			col, err = d.read(ctx, g, leaf, append([]int{}, c.dims...))
			if errors.Is(err, robocache.ErrMalformed) { // perhaps for nulls alone
				var failed error
				if col, failed = d.read(ctx, g, leaf, nil); failed != nil {
					return nil, 0, failed
				}
				if err := k.spread(col, n, per); err != nil {
					return nil, 0, err
				}
			} else {
				if err != nil {
					return nil, 0, err
				}
			}
			if values, err = pq.Convert(col, dtype); err != nil {
				return nil, 0, err
			}
		default:
			if k.items, err = d.read(ctx, g, leaf, nil); err != nil {
				return nil, 0, err
			}
			if leaf.Type != pq.ByteArray {
				return nil, 0, fail(
					robocache.ErrMalformed,
					"a column of "+leaf.Type.String()+" in place of texts or bytes",
					"",
				)
			}
			if err := k.spread(k.items, n, 1); err != nil {
				return nil, 0, err
			}
		}
		if k.data = values; numbers && k.at != nil {
			size := per * dtype.Size()
			if err := d.fits(rows * int64(size)); err != nil {
				return nil, 0, err
			}
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
		return k, held, nil
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
func (k *chunk) spread(col *pq.Column, rows, per int) error {
	if col.Def == nil && col.Rep == nil && col.Entries == rows {
		return nil
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
		return fail(
			robocache.ErrMalformed,
			fmt.Sprintf("%d rows in a row group of %d", len(k.at), rows),
			"",
		)
	}
	if value > math.MaxInt32 {
		return fail(
			robocache.ErrResourceLimit,
			fmt.Sprintf("%d values in a row group", value),
			"write smaller row groups",
		)
	}
	return nil
}

// constant is the number that a partition's text says; nil for null.
func (c *readColumn) constant(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	out := make([]byte, c.f.DType.Size())
	f, err := strconv.ParseFloat(text, 64)
	if c.f.DType.Float() && err == nil {
		pq.PutFloat(out, c.f.DType, f)
		return out, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if c.elem == "boolean" {
		var yes bool
		if yes, err = strconv.ParseBool(text); yes {
			n = 1
		}
	}
	if c.f.DType.Float() || err != nil || !pq.PutInt(out, c.f.DType, n, false) {
		return nil, fail(
			robocache.ErrMalformed,
			"the partition "+strconv.Quote(text)+" is no "+c.elem,
			"",
		)
	}
	return out, nil
}

// get finds a stream of some kinds, and checks the room for its rows.
func (d *Dataset) get(
	key, what string,
	room, got int,
	kinds ...robocache.Kind,
) (*readColumn, error) {
	c := d.columns[key]
	if c == nil {
		return nil, op.NoStream(key)
	}
	if err := op.Kind(key, c.f.Kind, kinds...); err != nil {
		return nil, err
	}
	if what == "bytes" {
		room *= c.f.RowBytes()
	}
	if err := op.Room(key, what, room, got); err != nil {
		return nil, err
	}
	return c, nil
}

// each gives rows with their chunks; neighbours share theirs.
func (d *Dataset) each(
	ctx context.Context,
	c *readColumn,
	sub string,
	rows []robocache.Row,
	do func(i int, k *chunk, row int) error,
) (err error) {
	defer robocache.LocateIn(&err, "stream", c.f.Key)
	var k *chunk
	in := -1
	for i, r := range rows {
		g, row, err := d.place(r)
		if err != nil {
			return err
		}
		if g != in {
			if err := ctx.Err(); err != nil {
				return err
			}
			chunkValue, err := d.chunk(ctx, g, c, sub)
			if err != nil {
				return err
			}
			k, in = chunkValue, g
		}
		if err := do(i, k, row); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover("delta gather", &err)
	found, err := d.get(key, "bytes", len(rows), len(dst), robocache.KindNumeric)
	if err != nil {
		return err
	}
	if err := d.gather(ctx, found, rows, dst); err != nil {
		return err
	}
	return nil
}

func (d *Dataset) gather(
	ctx context.Context,
	c *readColumn,
	rows []robocache.Row,
	dst []byte,
) error {
	size := c.f.RowBytes()
	return d.each(ctx, c, "", rows, func(i int, k *chunk, row int) error {
		if n, isWrong := k.wrong[row]; isWrong {
			return robocache.Malformed(string(op), robocache.Where{"episode": d.About.EpisodeIndex(rows[i].Episode), "row": rows[i].Index}, "the list is not as long as those of most rows").
				Expected(fmt.Sprintf("%d values", sizeOf(c.dims)), fmt.Sprint(n)).
				WithHint("%s", robocache.LeaveOutHint())
		}
		if !c.f.Masked && !k.has(row) {
			return robocache.Malformed(string(op), robocache.Where{"episode": d.About.EpisodeIndex(rows[i].Episode), "row": rows[i].Index}, "a null that the statistics in the log do not count").
				WithHint("fill it, or leave the row out")
		}
		copy(dst[i*size:], k.data[row*size:(row+1)*size])
		return nil
	})
}

// Valid says which rows have a value.
func (d *Dataset) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	defer crash.Recover("delta valid", &err)
	c, sub := d.columns[key], ""
	if c == nil {
		return op.NoStream(key)
	}
	if err := op.Room(key, "bytes", len(rows), len(valid)); err != nil {
		return err
	}
	if reader.AllValid(valid); c.f.Kind == robocache.KindVideo {
		sub = "path"
	}
	if err := d.each(ctx, c, sub, rows, func(i int, k *chunk, row int) error {
		if !k.has(row) {
			valid[i] = 0
		}
		return nil
	}); err != nil {
		return err
	}
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
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer crash.Recover("delta text", &err)
	out = make([]string, len(rows))
	c := d.task
	if key != "task" {
		if c, err = d.get(
			key,
			"rows",
			len(rows),
			len(rows),
			robocache.KindText,
			robocache.KindEvent,
		); err != nil {
			return out, err
		}
	}
	if c == nil || elemOf[c.f.Kind] != "string" {
		for _, r := range rows {
			if _, _, err := d.place(r); err != nil {
				return out, err
			}
		}
		return out, ctx.Err()
	}
	if err := d.each(ctx, c, "", rows, func(i int, k *chunk, row int) error {
		out[i] = k.item(row)
		return nil
	}); err != nil {
		return out, err
	}
	return out, nil
}

// Frames says where images lie.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer crash.Recover("delta frames", &err)
	c, err := d.get(key, "frames", len(rows), len(out), robocache.KindImage, robocache.KindVideo)
	if err != nil {
		return err
	}
	if c.f.Kind == robocache.KindImage {
		if err := d.each(ctx, c, "", rows, func(i int, k *chunk, row int) error {
			b := k.item(row)
			out[i] = robocache.FrameRef{Encoded: []byte(b), Missing: b == ""}
			return nil
		}); err != nil {
			return err
		}
		return nil
	}
	if err := d.each(ctx, c, "path", rows, func(i int, k *chunk, row int) error {
		if out[i] = (robocache.FrameRef{Path: k.item(row)}); out[i].Path == "" {
			out[i].Missing = true
		} else {
			var err error
			if out[i].Path, err = store.CleanName(out[i].Path); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := d.each(ctx, c, "frame", rows, func(i int, k *chunk, row int) error {
		if !out[i].Missing {
			out[i].Ordinal = int(binary.LittleEndian.Uint64(k.data[8*row:]))
		}
		return nil
	}); err != nil {
		return err
	}
	return nil
}
