package write

import (
	"context"
	"fmt"
	"path"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// outTable writes one Parquet file, row group by row group.
type outTable struct {
	*pqw.File
	name string
	out  store.Writer
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
	return &outTable{f, name, out}, nil
}

// footerBytes is about what a column chunk takes in the footer and the page index.
const footerBytes = 220

// sizeOf is about what a row group takes of a file.
func sizeOf(chunks []*pqw.Chunk) (n int64) {
	for _, c := range chunks {
		n += c.Size() + footerBytes
	}
	return n
}

// close ends the file and makes it appear.
func (t *outTable) close() error {
	if err := t.Close(); err != nil {
		t.out.Abort()
		return robocache.At(err, robocache.Where{"file": t.name})
	}
	return robocache.At(t.out.Commit(), robocache.Where{"file": t.name})
}

// tableSeries writes the numbered files of one schema.
type tableSeries struct {
	w           *Writer
	dir         string
	schema      *parquet.Schema
	meta        map[string]string
	leaves      []*pqw.Leaf
	t           *outTable // under way
	chunk, file int
	bytes, rows int64 // of t, with its footer
}

func (w *Writer) newSeries(dir string, columns []outColumn) *tableSeries {
	s := &tableSeries{w: w, dir: dir}
	s.schema, s.meta = schemaOf(columns, "", "")
	s.leaves = guard.Must(pqw.Leaves(s.schema))
	return s
}

// turn ends the file where a row group of about size bytes would take it over its size, and begins the next.
func (s *tableSeries) turn(ctx context.Context, size int64) (err error) {
	if s.t != nil {
		if s.bytes+size < s.w.cfg.DataFileBytes && s.t.Groups() < maxGroups {
			return nil
		}
		if err := s.end(); err != nil {
			return err
		}
		if s.chunk, s.file, err = nextFile(s.chunk, s.file, s.w.cfg.ChunksSize, path.Base(s.dir)); err != nil {
			return err
		}
	}
	s.bytes, s.rows = 0, 0
	s.t, err = s.w.createTable(ctx, fmt.Sprintf("%s/chunk-%03d/file-%03d.parquet", s.dir, s.chunk, s.file), s.schema, s.meta)
	return err
}

// group writes a row group: a chunk a column.
func (s *tableSeries) group(rows int, chunks []*pqw.Chunk) error {
	s.bytes, s.rows = s.bytes+sizeOf(chunks), s.rows+int64(rows)
	return robocache.At(s.t.Append(int64(rows), chunks), robocache.Where{"file": s.t.name})
}

func (s *tableSeries) end() error {
	if s.t == nil {
		return nil
	}
	t := s.t
	s.t = nil
	return t.close()
}

func (s *tableSeries) abort() {
	if s.t != nil {
		s.t.out.Abort()
	}
}
