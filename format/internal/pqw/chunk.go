package pqw

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"strings"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/goatnote-inc/robocache"
)

// PageBytes is the size at which a page ends. The readers of the reference implementation decode
// whole pages.
const PageBytes = 1 << 20

// Chunk is one encoded column of one row group.
type Chunk struct {
	leaf       *Leaf
	parts      [][]byte // dictionary page and data pages
	size       int64    // total size of parts
	dataOffset int64    // offset of the first data page in the chunk
	rows       int64
	meta       format.ColumnMetaData
	pages      []format.PageLocation // Offset is relative to the first data page
	bounds     []bounds              // bounds of each page
	nulls      []int64
}

// Size returns the size of the encoded chunk.
func (c *Chunk) Size() int64 { return c.size }

// Held returns the memory that the chunk uses in addition to the caller's byte arrays (pqw.P4).
func (c *Chunk) Held() int64 {
	if c.parts == nil || c.leaf.codec != format.Snappy {
		return 0
	}
	return c.size
}

// Bounds returns the smallest and the largest value in PLAIN encoding (pqw.P3), and the number of
// nulls. The values are nil if the chunk has no bounds.
func (c *Chunk) Bounds() (least, greatest []byte, nulls int64) {
	s := &c.meta.Statistics
	return s.MinValue, s.MaxValue, s.NullCount
}

func newChunk(l *Leaf) *Chunk {
	c := &Chunk{leaf: l}
	c.meta = format.ColumnMetaData{
		Type:         format.Type(l.kind),
		Encoding:     []format.Encoding{format.Plain, format.RLE},
		PathInSchema: l.path,
		Codec:        l.codec,
	}
	if l.rep > 0 {
		c.meta.SizeStatistics.RepetitionLevelHistogram = make([]int64, l.rep+1)
	}
	if l.def > 0 {
		c.meta.SizeStatistics.DefinitionLevelHistogram = make([]int64, l.def+1)
	}
	return c
}

// scratch is reusable memory for encoding a page.
type scratch struct {
	runs, levels, raw, packed []byte
	header                    bytes.Buffer
	thrift                    *thrift.Encoder // writes to header
}

// keptScratch is the maximum size of a buffer that is kept for other pages. A single row may be a
// thousand times larger than PageBytes.
const keptScratch = 8 * PageBytes

var scratches = sync.Pool{New: func() any {
	s := new(scratch)
	s.thrift = thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(&s.header))
	return s
}}

// addPage appends a data page of values with the given levels. body is the encoded values. body is
// not kept if the column is compressed.
func (c *Chunk) addPage(
	rep, def []byte,
	rows, nulls int,
	b bounds,
	encoding format.Encoding,
	body [][]byte,
	s *scratch,
) error {
	l := c.leaf
	s.levels = s.levels[:0]
	for _, v := range []struct {
		top    uint8
		levels []byte
		hist   []int64
	}{
		{l.rep, rep, c.meta.SizeStatistics.RepetitionLevelHistogram},
		{l.def, def, c.meta.SizeStatistics.DefinitionLevelHistogram},
	} {
		if v.top == 0 {
			continue
		}
		var err error
		s.runs, err = (&rle.Encoding{BitWidth: bits.Len8(v.top)}).EncodeLevels(s.runs, v.levels)
		if err != nil {
			return err
		}
		// Version 1 stores the length of the levels before them.
		s.levels = append(
			binary.LittleEndian.AppendUint32(s.levels, uint32(len(s.runs))),
			s.runs...)
		for k := range v.hist {
			v.hist[k] += int64(bytes.Count(v.levels, []byte{byte(k)}))
		}
	}
	levels := s.levels
	if l.codec != format.Snappy {
		levels = bytes.Clone(levels)
	}
	h := format.PageHeader{Type: format.DataPage}
	h.DataPageHeader.Valid = true
	h.DataPageHeader.V = format.DataPageHeader{
		NumValues:               int32(len(def)),
		Encoding:                encoding,
		DefinitionLevelEncoding: format.RLE,
		RepetitionLevelEncoding: format.RLE,
	}
	at := c.size
	if err := c.putPage(&h, append([][]byte{levels}, body...), s); err != nil {
		return err
	}
	c.pages = append(
		c.pages,
		format.PageLocation{
			Offset:             at - c.dataOffset,
			CompressedPageSize: int32(c.size - at),
			FirstRowIndex:      c.rows,
		},
	)
	c.rows += int64(rows)
	c.meta.NumValues += int64(len(def))
	c.meta.Statistics.NullCount += int64(nulls)
	b.null = nulls == len(def)
	c.bounds, c.nulls = append(c.bounds, b), append(c.nulls, int64(nulls))
	return nil
}

// putPage appends a header and a page that consists of parts. It compresses the page if the column
// is compressed.
func (c *Chunk) putPage(h *format.PageHeader, parts [][]byte, s *scratch) error {
	plain := 0
	for _, p := range parts {
		plain += len(p)
	}
	if err := c.leaf.checkPageSize(plain); err != nil {
		return err
	}
	if c.leaf.codec == format.Snappy {
		s.raw = s.raw[:0]
		for _, p := range parts {
			s.raw = append(s.raw, p...)
		}
		if n := s2.MaxEncodedLen(len(s.raw)); cap(s.packed) < n {
			s.packed = make([]byte, n)
		}
		parts = [][]byte{bytes.Clone(s2.EncodeSnappy(s.packed[:cap(s.packed)], s.raw))}
		if cap(s.raw) > keptScratch {
			s.raw, s.packed = nil, nil
		}
	}
	sum, size := uint32(0), 0
	for _, p := range parts {
		sum = crc32.Update(sum, crc32.IEEETable, p)
		size += len(p)
	}
	h.UncompressedPageSize, h.CompressedPageSize, h.CRC = int32(plain), int32(size), int32(sum)
	s.header.Reset()
	if err := s.thrift.Encode(h); err != nil {
		return err
	}
	n := s.header.Len()
	if err := c.leaf.checkPageSize(n + size); err != nil {
		return err
	} // Snappy makes incompressible data longer, so the limit is checked after compression
	c.parts = append(append(c.parts, bytes.Clone(s.header.Bytes())), parts...)
	c.size += int64(n + size)
	c.meta.TotalUncompressedSize += int64(n + plain)
	c.meta.TotalCompressedSize += int64(n + size)
	return nil
}

// checkPageSize rejects a page that is too large. Pages end at whole rows near PageBytes, so a page
// above the limit is a single row.
func (l *Leaf) checkPageSize(size int) error {
	if size > l.pageLimit {
		return robocache.ResourceLimit(
			"write parquet",
			nil,
			"a row too large for a page of Parquet",
		).
			Expected(fmt.Sprintf("at most %d bytes", l.pageLimit), fmt.Sprint(size)).
			WithHint("leave the stream out, or make its rows smaller")
	}
	return nil
}

// putDictionary begins the chunk with the page of its n distinct values.
func (c *Chunk) putDictionary(n int, plain []byte, s *scratch) error {
	h := format.PageHeader{Type: format.DictionaryPage}
	h.DictionaryPageHeader.Valid = true
	h.DictionaryPageHeader.V = format.DictionaryPageHeader{
		NumValues: int32(n),
		Encoding:  format.Plain,
	}
	if err := c.putPage(&h, [][]byte{plain}, s); err != nil {
		return err
	}
	c.dataOffset = c.size
	c.meta.Encoding = append(c.meta.Encoding, format.RLEDictionary)
	c.meta.EncodingStats = append(
		c.meta.EncodingStats,
		format.PageEncodingStats{PageType: format.DictionaryPage, Encoding: format.Plain, Count: 1},
	)
	return nil
}

// finishChunk sets the totals and the bounds of the chunk. All pages have one encoding.
func (c *Chunk) finishChunk(encoding format.Encoding) *Chunk {
	if len(c.pages) > 0 {
		c.meta.EncodingStats = append(
			c.meta.EncodingStats,
			format.PageEncodingStats{
				PageType: format.DataPage,
				Encoding: encoding,
				Count:    int32(len(c.pages)),
			},
		)
	}
	var all bounds
	for _, b := range c.bounds {
		if !b.ok && !b.null && c.leaf.size == 0 {
			// The chunk has no bounds if a page of texts has none, because its long texts may be
			// outside the bounds of the other pages. Pages of numbers without bounds contain only
			// NaN, which are not ordered.
			return c
		}
		all.mergeBounds(c.leaf, b)
	}
	if all.ok {
		c.meta.Statistics.MinValue, c.meta.Statistics.MaxValue = all.lo, all.hi
	}
	return c
}

// Leaf is a column of a schema.
type Leaf struct {
	path       []string
	where      robocache.Where // location for errors
	kind       parquet.Kind
	size       int // bytes of a value; 0 means byte arrays
	rep, def   uint8
	dictionary bool
	codec      format.CompressionCodec
	unsigned   bool
	bounded    bool
	pageLimit  int // maximum bytes of a page with its header: Parquet stores the size in 31 bits
}

// Leaves returns the columns of a schema in file order.
func Leaves(s *parquet.Schema) ([]*Leaf, error) {
	var out []*Leaf
	for _, path := range s.Columns() {
		c, ok := s.Lookup(path...)
		if !ok {
			return nil, robocache.Unsupported(
				"write parquet",
				robocache.Where{"column": path},
				"no such column",
			)
		}
		t := c.Node.Type()
		l := &Leaf{
			path:      path,
			where:     robocache.Where{"column": strings.Join(path, ".")},
			kind:      t.Kind(),
			rep:       uint8(c.MaxRepetitionLevel),
			def:       uint8(c.MaxDefinitionLevel),
			codec:     format.Snappy,
			pageLimit: math.MaxInt32,
		}
		switch l.kind {
		case parquet.Boolean:
			l.size = 1
		case parquet.Int32, parquet.Float:
			l.size = 4
		case parquet.Int64, parquet.Double:
			l.size = 8
		case parquet.FixedLenByteArray:
			l.size = t.Length()
		case parquet.ByteArray:
		default:
			return nil, robocache.Unsupported(
				"write parquet",
				robocache.Where{"column": path},
				"a column of type %s",
				t.String(),
			)
		}
		l.bounded = l.kind != parquet.FixedLenByteArray
		if lt := t.LogicalType(); lt != nil {
			if it, ok := lt.Value.(*format.IntType); ok {
				l.unsigned = !it.IsSigned
			}
		}
		if e := c.Node.Encoding(); e != nil {
			l.dictionary = e.Encoding() == format.RLEDictionary
		}
		if z := c.Node.Compression(); z != nil {
			l.codec = z.CompressionCodec()
		}
		out = append(out, l)
	}
	return out, nil
}
