package lerobot

import (
	"context"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// table writes one Parquet file, row group by row group.
type outTable struct {
	name string
	out  store.Writer
	w    *parquet.GenericWriter[any]
	rows int64
	cols int64 // column chunks, each with its entry in the footer

	rg      *parquet.ConcurrentRowGroupWriter // under way
	columns []*parquet.ColumnWriter
}

// pageBytes ends a page; the reference's readers decode pages whole.
const pageBytes = 1 << 20

func (w *Writer) createTable(ctx context.Context, name string, schema *parquet.Schema, meta map[string]string, skipBounds [][]string) (*outTable, error) {
	w.files = append(w.files, name)
	f, err := w.dst.Create(ctx, name)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": name})
	}
	opts := []parquet.WriterOption{schema, parquet.Compression(&snappy.Codec{}), parquet.DataPageVersion(1), parquet.PageBufferSize(pageBytes),
		// A fixed identity: the default names the build, and the same input must give the same bytes.
		parquet.CreatedBy(writerIdentity, writerFormatVersion, "0")}
	for _, p := range skipBounds {
		opts = append(opts, parquet.SkipPageBounds(p...))
	}
	for k, v := range meta {
		opts = append(opts, parquet.KeyValueMetadata(k, v))
	}
	return &outTable{name: name, out: f, w: parquet.NewGenericWriter[any](f, opts...)}, nil
}

// begin begins a row group where none is under way.
func (t *outTable) begin() {
	if t.rg == nil {
		t.rg = t.w.BeginRowGroup()
		t.columns = t.rg.ColumnWriters()
	}
}

// page ends the page of a leaf: compressed, it waits for the end of the row group. Several leaves may do so at once.
func (t *outTable) page(l *outLeaf) error {
	if err := t.spill(l); err != nil {
		return err
	}
	return robocache.At(t.columns[l.index].Flush(), robocache.Where{"file": t.name})
}

// spill writes what a leaf has collected so far, and empties it: a long episode is not held as values, 24 bytes each. The leaf holds
// whole rows.
func (t *outTable) spill(l *outLeaf) error {
	t.begin()
	err := writeLeaf(t.columns[l.index], l.values)
	clear(l.values)
	l.values = l.values[:0]
	return robocache.At(err, robocache.Where{"file": t.name})
}

// group ends a row group with what the leaves, one a column, still hold.
func (t *outTable) group(rows int64, leaves []*outLeaf) error {
	for _, l := range leaves {
		if err := t.spill(l); err != nil {
			return err
		}
	}
	n, err := t.rg.Commit()
	t.rg, t.columns = nil, nil
	if err != nil {
		return robocache.At(err, robocache.Where{"file": t.name})
	}
	if n != rows {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Where: robocache.Where{"file": t.name}, Msg: "row group", Want: jsonText(rows) + " rows", Got: jsonText(n)}
	}
	t.rows += rows
	t.cols += int64(len(leaves))
	return nil
}

// footerBytes is about what a column chunk takes in the footer and the page index.
const footerBytes = 220

// size is about what the file would have if it were ended here.
func (t *outTable) size() int64 { return t.w.Size() + t.cols*footerBytes }

// writeLeaf hands values over in pieces of whole rows, so that pages end near pageBytes.
func writeLeaf(c *parquet.ColumnWriter, v []parquet.Value) error {
	const piece = 4096
	for len(v) > 0 {
		n, size := 0, 0
		for n < len(v) && (n < piece && size < pageBytes || v[n].RepetitionLevel() != 0) {
			if k := v[n].Kind(); k == parquet.ByteArray {
				size += len(v[n].ByteArray())
			}
			n++
		}
		if _, err := c.WriteRowValues(v[:n]); err != nil {
			return err
		}
		v = v[n:]
	}
	return nil
}

// close ends the file and makes it appear.
func (t *outTable) close() error {
	if err := t.w.Close(); err != nil {
		t.out.Abort()
		return robocache.At(err, robocache.Where{"file": t.name})
	}
	return robocache.At(t.out.Commit(), robocache.Where{"file": t.name})
}

func (t *outTable) abort() {
	if t != nil {
		t.out.Abort()
	}
}

// leavesOf makes the collectors of a schema's columns, in file order.
func leavesOf(schema *parquet.Schema) []*outLeaf {
	out := make([]*outLeaf, len(schema.Columns()))
	for i := range out {
		out[i] = &outLeaf{index: i}
	}
	return out
}
