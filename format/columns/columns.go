// Package columns reads one column of numbers or texts from a separate file: a .npy array, or a
// Parquet table.
//
// # Contract
//
//	columns.L1  A column keeps its type: float64 stays float64. Lists and arrays of one shape are
//	            rows of that shape. Lists of different lengths are ErrMalformed.
//	columns.L2  The rows of a table are joined by its columns index, or episode_index and
//	            frame_index, which are returned with the values. The rows of an array are joined
//	            by their order.
package columns

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Table is a column, and the keys by which its rows are joined.
type Table struct {
	Rows  int
	DType robocache.DType
	Shape []int    // shape of a row; [1] is a number
	Data  []byte   // little-endian, C order
	Text  []string // texts, if Data is nil
	// Row to which each value belongs; nil if the file does not contain it.
	Index, Episode, Frame []int64
}

const op = "columns"

func malformedColumn(msg, want, got string) error {
	return robocache.Malformed(op, nil, "%s", msg).Expected(want, got)
}

// Parse parses the bytes of a file according to the ending of its name. key selects the column of a
// table with several columns.
func Parse(ctx context.Context, name string, b []byte, key string) (_ *Table, err error) {
	defer crash.Recover(op, &err)
	defer robocache.LocateIn(&err, "file", name)
	if strings.EqualFold(filepath.Ext(name), ".npy") {
		return parseArray(b)
	}
	return parseTable(ctx, b, key)
}

func parseArray(b []byte) (*Table, error) {
	a, err := npy.Decode(b)
	if err != nil {
		return nil, err
	}
	if len(a.Shape) == 0 {
		return nil, malformedColumn(
			"a single value",
			"an array with a row for each row of the dataset",
			"",
		)
	}
	t := &Table{
		Rows:  a.Shape[0],
		DType: a.Type.DType(),
		Shape: slices.Clone(a.Shape[1:]),
		Data:  a.Data,
	}
	if len(t.Shape) == 0 {
		t.Shape = []int{1}
	}
	if text, ok := a.Strings(); ok {
		t.Text, t.Data = text, nil
	} else if t.DType == robocache.InvalidDType {
		return nil, malformedColumn("the array's type", "numbers or texts", a.Type.String())
	}
	return t, nil
}

// file is a table in memory.
type file []byte

func (f file) Size() int64     { return int64(len(f)) }
func (f file) Version() string { return "" }
func (f file) Close() error    { return nil }
func (f file) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, f[off:])
	return nil
}

const maxBytes = 4 << 30 // limit for a column

func parseTable(ctx context.Context, b []byte, key string) (*Table, error) {
	f, err := pq.Open(ctx, file(b), nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range f.Root.Children {
		if !slices.Contains([]string{"index", "episode_index", "frame_index"}, c.Name) &&
			!strings.HasPrefix(c.Name, "__index") {
			names = append(names, c.Name)
		}
	}
	if !slices.Contains(names, key) {
		if len(names) != 1 {
			return nil, malformedColumn(
				"the table's columns",
				key+", or one column beside index",
				strings.Join(names, ", "),
			)
		}
		key = names[0]
	}
	leaf := f.Column(key).OnlyLeaf()
	if leaf == nil || pq.DType(leaf) == robocache.InvalidDType || leaf.MaxRep > 1 {
		return nil, malformedColumn(
			"the column "+key,
			"numbers, texts or lists of them",
			"another type",
		)
	}
	t := &Table{DType: pq.DType(leaf), Shape: []int{1}}
	// read calls fn with the column of each row group. Every row is an array of the shape, without
	// nulls.
	read := func(leaf *pq.Node, fn func(*pq.Column) error) error {
		for g := range f.Groups {
			shape := []int{}
			if leaf.MaxRep > 0 {
				free, err := pq.ReadColumn(
					ctx,
					file(b),
					f,
					g,
					leaf,
					nil,
					pq.Limits{Bytes: maxBytes},
				)
				if err != nil {
					return err
				}
				if g == 0 && f.Groups[g].Rows > 0 {
					t.Shape = []int{free.Len() / int(f.Groups[g].Rows)}
				}
				if shape = t.Shape; shape[0] == 0 {
					return malformedColumn("the column "+key, "lists of one length", "empty ones")
				}
			}
			column, err := pq.ReadColumn(
				ctx,
				file(b),
				f,
				g,
				leaf,
				shape,
				pq.Limits{Bytes: maxBytes},
			)
			if err != nil {
				return err
			}
			if err := fn(column); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(leaf, func(c *pq.Column) error {
		switch {
		case t.DType != robocache.String:
			convert, err := pq.Convert(c, t.DType)
			if err != nil {
				return err
			}
			t.Data = append(t.Data, convert...)
		case leaf.MaxRep > 0:
			return malformedColumn("the column "+key, "a text a row", "lists")
		default:
			for i := range c.Len() {
				t.Text = append(t.Text, string(c.Item(i)))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	whole := func(name string) (out []int64, err error) {
		n := f.Column(name)
		if n == nil {
			return nil, nil
		}
		if n.Group() || n.Type != pq.Int32 && n.Type != pq.Int64 {
			return out, malformedColumn("the column "+name, "a whole number a row", "another type")
		}
		if err := read(n, func(c *pq.Column) error {
			int64s, err := pq.Int64s(c)
			if err != nil {
				return err
			}
			out = append(out, int64s...)
			return nil
		}); err != nil {
			return out, err
		}
		return out, nil
	}
	for _, g := range f.Groups {
		t.Rows += int(g.Rows)
	}
	if t.Index, err = whole("index"); err != nil {
		return nil, err
	}
	if t.Index == nil {
		if t.Episode, err = whole("episode_index"); err != nil {
			return nil, err
		}
		if t.Frame, err = whole("frame_index"); err != nil {
			return nil, err
		}
		if t.Episode == nil || t.Frame == nil {
			t.Episode, t.Frame = nil, nil
		}
	}
	return t, nil
}
