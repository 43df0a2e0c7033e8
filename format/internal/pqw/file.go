package pqw

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// File is a Parquet file that is written one row group at a time.
type File struct {
	out    *bufio.Writer
	size   int64
	footer format.FileMetaData
	leaves int
	chunks [][]*Chunk // chunks of each row group, without their bytes
}

// NewFile begins a file. meta is its key-value metadata. by is the name of the writer in the
// footer. Its version is fixed.
func NewFile(
	w io.Writer,
	schema *parquet.Schema,
	meta map[string]string,
	by string,
) (f *File, err error) {
	defer crash.Recover("write parquet", &err)
	// The library writes the footer of an empty file. The schema, the column orders and the
	// metadata are taken from that footer.
	opts := []parquet.WriterOption{schema, parquet.CreatedBy(by, "1", "0")}
	for k, v := range meta {
		opts = append(opts, parquet.KeyValueMetadata(k, v))
	}
	var empty bytes.Buffer
	l := parquet.NewGenericWriter[any](&empty, opts...)
	if err := asUnsupported(l.Close()); err != nil {
		return f, err
	}
	p, err := parquet.OpenFile(bytes.NewReader(empty.Bytes()), int64(empty.Len()))
	if err := asUnsupported(err); err != nil {
		return f, err
	}
	f = &File{
		out:    bufio.NewWriterSize(w, 1<<18),
		footer: *p.Metadata(),
		leaves: len(schema.Columns()),
	}
	f.footer.RowGroups = nil
	_, err = f.out.WriteString("PAR1")
	f.size = 4
	return f, err
}

func asUnsupported(err error) error {
	if err != nil {
		return robocache.Unsupported("write parquet", nil, "schema").WithCause(err)
	}
	return nil
}

// Groups returns the number of row groups so far.
func (f *File) Groups() int { return len(f.footer.RowGroups) }

// Append writes a row group. chunks has one chunk per column in file order, each with the given
// number of rows.
func (f *File) Append(rows int64, chunks []*Chunk) error {
	misuse := func(msg string) error {
		return robocache.Misuse("write parquet", nil, "%s", msg)
	}
	if len(chunks) != f.leaves {
		return misuse("a row group lacks columns")
	}
	g := format.RowGroup{NumRows: rows, FileOffset: f.size, Ordinal: int16(len(f.footer.RowGroups))}
	if len(f.footer.RowGroups) > 1<<15-1 {
		return robocache.ResourceLimit("write parquet", nil, "over 32768 row groups in a file").
			WithHint("end files sooner")
	}
	for _, c := range chunks {
		if c == nil || c.rows != rows {
			return misuse("a column of another number of rows")
		}
		if c.dataOffset > 0 {
			c.meta.DictionaryPageOffset = f.size
		}
		c.meta.DataPageOffset = f.size + c.dataOffset
		for i := range c.pages {
			c.pages[i].Offset += c.meta.DataPageOffset
		}
		for _, p := range c.parts {
			if _, err := f.out.Write(p); err != nil {
				return err
			}
		}
		f.size += c.size
		c.parts = nil
		g.Columns = append(g.Columns, format.ColumnChunk{MetaData: c.meta})
		g.TotalByteSize += c.meta.TotalUncompressedSize
		g.TotalCompressedSize += c.meta.TotalCompressedSize
	}
	f.footer.RowGroups = append(f.footer.RowGroups, g)
	f.footer.NumRows += rows
	f.chunks = append(f.chunks, slices.Clone(chunks))
	return nil
}

// Close writes the page indexes and the footer. It does not close the underlying writer.
func (f *File) Close() (err error) {
	defer crash.Recover("write parquet", &err)
	var b bytes.Buffer
	enc := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(&b))
	put := func(v any) (at int64, n int32, err error) {
		b.Reset()
		if err := asUnsupported(enc.Encode(v)); err != nil {
			return at, n, err
		}
		at = f.size
		f.size += int64(b.Len())
		if _, err := f.out.Write(b.Bytes()); err != nil {
			return at, n, err
		}
		return at, int32(b.Len()), nil
	}
	for g, chunks := range f.chunks {
		for i, c := range chunks {
			if x := c.columnIndex(); x != nil {
				m := &f.footer.RowGroups[g].Columns[i]
				if m.ColumnIndexOffset, m.ColumnIndexLength, err = put(x); err != nil {
					return err
				}
			}
		}
	}
	for g, chunks := range f.chunks {
		for i, c := range chunks {
			m := &f.footer.RowGroups[g].Columns[i]
			if m.OffsetIndexOffset, m.OffsetIndexLength,
				err = put(&format.OffsetIndex{PageLocations: c.pages}); err != nil {
				return err
			}
		}
	}
	_, n, err := put(&f.footer)
	if err != nil {
		return err
	}
	if _, err := f.out.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(n)),
		"PAR1"...)); err != nil {
		return err
	}
	return f.out.Flush()
}
