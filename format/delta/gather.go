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

// chunk is a decoded column of a row group.
type chunk struct {
	data  []byte     // numbers: rows in order, with zeros for rows without a value
	items *pq.Column // texts, images and paths
	// position of each row's value, -1 without a value; nil if it equals the row
	valueOf      []int32
	constant     string      // text of every row, for a partition column
	wrongLengths map[int]int // row → length of its list, if it differs from that of the stream
}

// hasValue reports whether a row has a value.
func (k *chunk) hasValue(row int) bool { return k.valueOf == nil || k.valueOf[row] >= 0 }

type chunkKey struct {
	group       int
	column, sub string
}

// leafOf returns the Parquet leaf of a column in a row group. sub selects a field of the column, or
// is "". The result is nil if the file lacks the leaf.
func (d *Dataset) leafOf(g int, c *readColumn, sub string) *pq.Node {
	n := d.groups[g].file.Column(c.name)
	if n != nil && sub != "" {
		n = n.Child(sub)
	}
	return n.OnlyLeaf()
}

// readLeaf reads a Parquet leaf of a row group. If shape is nil, lists may have any length.
func (d *Dataset) readLeaf(
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
	h, err := d.openFiles.Get(name, func() (robocache.Ranged, error) {
		name, err := at.name()
		if err != nil {
			return nil, err
		}
		return d.Bytes.Open(ctx, name)
	})
	if err != nil {
		return nil, err
	}
	defer d.openFiles.Put(h)
	located, err := at.name()
	if err != nil {
		return nil, err
	}
	defer robocache.LocateIn(&err, "file", located)
	return pq.ReadColumn(
		ctx,
		h.Value,
		at.file,
		at.number,
		leaf,
		shape,
		pq.Limits{Bytes: d.budget / 2},
	)
}

// loadChunk returns a decoded column of a row group, or its field sub.
func (d *Dataset) loadChunk(ctx context.Context, g int, c *readColumn, sub string) (*chunk, error) {
	return d.chunks.Load(ctx, chunkKey{g, c.name, sub}, func() (_ *chunk, _ int64, err error) {
		defer robocache.LocateIn(&err, "column", c.name)
		k, leaf, dtype := &chunk{}, d.leafOf(g, c, sub), c.feature.DType
		if sub == "frame" {
			dtype = robocache.Int64
		}
		numbers, per, rows := c.feature.Kind == robocache.KindNumeric ||
			sub == "frame", elementCount(c.dims), d.groups[g].file.Groups[d.groups[g].number].Rows
		if err := d.checkMemory(8 * min(rows, math.MaxInt64/8)); err != nil {
			return nil, 0, err
		}
		n := int(rows)
		col := &pq.Column{}
		var values []byte
		if leaf != nil && leaf.MaxRep != len(c.dims) {
			return nil, 0, newError(
				robocache.ErrMalformed,
				fmt.Sprintf("lists %d deep in the file, %d in the table", leaf.MaxRep, len(c.dims)),
				"",
			)
		}
		switch {
		case c.isPartition && !numbers:
			k.constant = d.groups[g].Partitions[c.name]
		case c.isPartition:
			if values, err = c.partitionValue(d.groups[g].Partitions[c.name]); err != nil {
				return nil, 0, err
			}
			if values == nil {
				k.valueOf = filledSlots(n, -1)
			} else {
				k.valueOf = filledSlots(n, 0)
			}
		case leaf == nil:
			k.valueOf = filledSlots(n, -1)
		case numbers:
			var err error
			col, err = d.readLeaf(ctx, g, leaf, append([]int{}, c.dims...))
			if errors.Is(err, robocache.ErrMalformed) { // possibly only because of nulls
				var failed error
				if col, failed = d.readLeaf(ctx, g, leaf, nil); failed != nil {
					return nil, 0, failed
				}
				if err := k.indexRows(col, n, per); err != nil {
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
			if k.items, err = d.readLeaf(ctx, g, leaf, nil); err != nil {
				return nil, 0, err
			}
			if leaf.Type != pq.ByteArray {
				return nil, 0, newError(
					robocache.ErrMalformed,
					"a column of "+leaf.Type.String()+" in place of texts or bytes",
					"",
				)
			}
			if err := k.indexRows(k.items, n, 1); err != nil {
				return nil, 0, err
			}
		}
		if k.data = values; numbers && k.valueOf != nil {
			size := per * dtype.Size()
			if err := d.checkMemory(rows * int64(size)); err != nil {
				return nil, 0, err
			}
			k.data = make([]byte, n*size)
			for row, at := range k.valueOf {
				if at >= 0 {
					copy(k.data[row*size:(row+1)*size], values[int(at)*dtype.Size():])
				}
			}
		}
		held := int64(len(k.data) + 4*len(k.valueOf) + 32*len(k.wrongLengths) + 64)
		if k.items != nil {
			held += k.items.MemoryBytes()
		}
		return k, held, nil
	})
}

// filledSlots returns n slots with the same value.
func filledSlots(n int, value int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = value
	}
	return out
}

// indexRows records the position of the first value of each row. A null or empty list is no value.
// A list whose length differs from per is an error of its row only.
func (k *chunk) indexRows(col *pq.Column, rows, per int) error {
	if col.Def == nil && col.Rep == nil && col.Entries == rows {
		return nil
	}
	k.valueOf = make([]int32, 0, rows)
	value, began := 0, 0
	for i := 0; i <= col.Entries; i++ {
		if i == col.Entries || col.Rep == nil || col.Rep[i] == 0 {
			row := len(k.valueOf) - 1
			if n := value - began; n == per {
				k.valueOf[row] = int32(began)
			} else if n > 0 {
				if k.wrongLengths == nil {
					k.wrongLengths = map[int]int{}
				}
				k.wrongLengths[row] = n
			}
			k.valueOf, began = append(k.valueOf, -1), value
		}
		if i < col.Entries && (col.Def == nil || int(col.Def[i]) == col.Leaf.MaxDef) {
			value++
		}
	}
	if k.valueOf = k.valueOf[:len(k.valueOf)-1]; len(k.valueOf) != rows {
		return newError(
			robocache.ErrMalformed,
			fmt.Sprintf("%d rows in a row group of %d", len(k.valueOf), rows),
			"",
		)
	}
	if value > math.MaxInt32 {
		return newError(
			robocache.ErrResourceLimit,
			fmt.Sprintf("%d values in a row group", value),
			"write smaller row groups",
		)
	}
	return nil
}

// partitionValue returns the number in the text of a partition, or nil for null.
func (c *readColumn) partitionValue(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	out := make([]byte, c.feature.DType.Size())
	f, err := strconv.ParseFloat(text, 64)
	if c.feature.DType.Float() && err == nil {
		pq.PutFloat(out, c.feature.DType, f)
		return out, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if c.elem == "boolean" {
		var yes bool
		if yes, err = strconv.ParseBool(text); yes {
			n = 1
		}
	}
	if c.feature.DType.Float() || err != nil || !pq.PutInt(out, c.feature.DType, n, false) {
		return nil, newError(
			robocache.ErrMalformed,
			"the partition "+strconv.Quote(text)+" is not a value of type "+c.elem,
			"",
		)
	}
	return out, nil
}

// featureColumn returns the column of a stream. It checks its kind and the size of the caller's
// result.
func (d *Dataset) featureColumn(
	key, what string,
	room, got int,
	kinds ...robocache.Kind,
) (*readColumn, error) {
	c := d.columns[key]
	if c == nil {
		return nil, op.NoStream(key)
	}
	if err := op.Kind(key, c.feature.Kind, kinds...); err != nil {
		return nil, err
	}
	if what == "bytes" {
		room *= c.feature.RowBytes()
	}
	if err := op.Room(key, what, room, got); err != nil {
		return nil, err
	}
	return c, nil
}

// eachRow calls do for rows with their chunk and the position in it.
func (d *Dataset) eachRow(
	ctx context.Context,
	c *readColumn,
	sub string,
	rows []robocache.Row,
	do func(i int, k *chunk, row int) error,
) (err error) {
	defer robocache.LocateIn(&err, "stream", c.feature.Key)
	var k *chunk
	in := -1
	for i, r := range rows {
		g, row, err := d.locateRow(r)
		if err != nil {
			return err
		}
		if g != in {
			if err := ctx.Err(); err != nil {
				return err
			}
			loaded, err := d.loadChunk(ctx, g, c, sub)
			if err != nil {
				return err
			}
			k, in = loaded, g
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
	found, err := d.featureColumn(key, "bytes", len(rows), len(dst), robocache.KindNumeric)
	if err != nil {
		return err
	}
	return d.gatherRows(ctx, found, rows, dst)
}

// gatherRows copies rows of a numeric column into dst.
func (d *Dataset) gatherRows(
	ctx context.Context,
	c *readColumn,
	rows []robocache.Row,
	dst []byte,
) error {
	size := c.feature.RowBytes()
	return d.eachRow(ctx, c, "", rows, func(i int, k *chunk, row int) error {
		if n, isWrong := k.wrongLengths[row]; isWrong {
			return robocache.Malformed(
				string(op),
				robocache.Where{
					"episode": d.About.EpisodeIndex(rows[i].Episode),
					"row":     rows[i].Index,
				},
				"the length of the list differs from most rows",
			).Expected(fmt.Sprintf("%d values", elementCount(c.dims)), fmt.Sprint(n)).
				WithHint("%s", robocache.LeaveOutHint())
		}
		if !c.feature.Masked && !k.hasValue(row) {
			return robocache.Malformed(
				string(op),
				robocache.Where{
					"episode": d.About.EpisodeIndex(rows[i].Episode),
					"row":     rows[i].Index,
				},
				"the value is null, although the statistics in the log count no nulls",
			).WithHint("fill in the value, or leave out the row")
		}
		copy(dst[i*size:], k.data[row*size:(row+1)*size])
		return nil
	})
}

// Valid reports which rows have a value.
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
	if reader.AllValid(valid); c.feature.Kind == robocache.KindVideo {
		sub = "path"
	}
	return d.eachRow(ctx, c, sub, rows, func(i int, k *chunk, row int) error {
		if !k.hasValue(row) {
			valid[i] = 0
		}
		return nil
	})
}

// textAt returns a row's text or bytes, or "" if it has none.
func (k *chunk) textAt(row int) string {
	switch {
	case !k.hasValue(row):
		return ""
	case k.items == nil:
		return k.constant
	case k.valueOf != nil:
		row = int(k.valueOf[row])
	}
	return string(k.items.Item(row))
}

// Text returns rows of a text stream, or of "task".
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer crash.Recover("delta text", &err)
	out = make([]string, len(rows))
	c := d.task
	if key != "task" {
		if c, err = d.featureColumn(key, "rows", len(rows), len(rows), robocache.KindText,
			robocache.KindEvent); err != nil {
			return out, err
		}
	}
	if c == nil || elemOf[c.feature.Kind] != "string" {
		for _, r := range rows {
			if _, _, err := d.locateRow(r); err != nil {
				return out, err
			}
		}
		return out, ctx.Err()
	}
	if err := d.eachRow(ctx, c, "", rows, func(i int, k *chunk, row int) error {
		out[i] = k.textAt(row)
		return nil
	}); err != nil {
		return out, err
	}
	return out, nil
}

// Frames returns references to images.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer crash.Recover("delta frames", &err)
	c, err := d.featureColumn(
		key,
		"frames",
		len(rows),
		len(out),
		robocache.KindImage,
		robocache.KindVideo,
	)
	if err != nil {
		return err
	}
	if c.feature.Kind == robocache.KindImage {
		return d.eachRow(ctx, c, "", rows, func(i int, k *chunk, row int) error {
			b := k.textAt(row)
			out[i] = robocache.FrameRef{Encoded: []byte(b), Missing: b == ""}
			return nil
		})
	}
	if err := d.eachRow(ctx, c, "path", rows, func(i int, k *chunk, row int) error {
		if out[i] = (robocache.FrameRef{Path: k.textAt(row)}); out[i].Path == "" {
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
	return d.eachRow(ctx, c, "frame", rows, func(i int, k *chunk, row int) error {
		if !out[i].Missing {
			out[i].Ordinal = int(binary.LittleEndian.Uint64(k.data[8*row:]))
		}
		return nil
	})
}
