package write

import (
	"context"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
	"github.com/goatnote-inc/robocache/store"
)

// outTable writes one Parquet file, row group by row group.
type outTable struct {
	name   string
	out    store.Writer
	file   *pqw.File
	rows   int64
	groups int
	cols   int64 // column chunks, each with its entry in the footer
}

func (w *Writer) createTable(ctx context.Context, name string, schema *parquet.Schema, meta map[string]string) (*outTable, error) {
	w.begin(name)
	out, err := w.dst.Create(ctx, name)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": name})
	}
	f, err := pqw.NewFile(out, schema, meta, writerIdentity)
	if err != nil {
		out.Abort()
		return nil, robocache.At(err, robocache.Where{"file": name})
	}
	return &outTable{name: name, out: out, file: f}, nil
}

// group writes a row group: a chunk a column.
func (t *outTable) group(rows int64, chunks []*pqw.Chunk) error {
	if err := t.file.Append(rows, chunks); err != nil {
		return robocache.At(err, robocache.Where{"file": t.name})
	}
	t.rows += rows
	t.groups++
	t.cols += int64(len(chunks))
	return nil
}

// footerBytes is about what a column chunk takes in the footer and the page index.
const footerBytes = 220

// size is about what the file would have if it were ended here.
func (t *outTable) size() int64 { return t.file.Size() + t.cols*footerBytes }

// sizeOf is about what a row group takes of a file.
func sizeOf(chunks []*pqw.Chunk) (n int64) {
	for _, c := range chunks {
		n += c.Size() + footerBytes
	}
	return n
}

// close ends the file and makes it appear.
func (t *outTable) close() error {
	if err := t.file.Close(); err != nil {
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
