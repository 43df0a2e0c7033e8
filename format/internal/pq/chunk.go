package pq

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Limits limits the memory of one chunk, independent of the sizes that the file declares.
type Limits struct {
	Bytes int64 // limit for the decoded column, and for the compressed chunk
}

// Column is a decoded column of one row group.
type Column struct {
	Leaf    *Node
	Entries int     // number of levels: values and nulls
	Def     []uint8 // definition levels; nil if every entry is present
	// repetition levels; nil if the leaf does not repeat, or if the rows were checked against a
	// shape
	Rep []uint8
	values
}

// Len returns the number of values, without nulls.
func (c *Column) Len() int { return c.values.len() }

// Data returns the flat array of fixed-width values.
func (c *Column) Data() []byte { return c.flat }

// Item returns value i. Nulls are not counted.
func (c *Column) Item(i int) []byte { return c.values.valueAt(i) }

// MemoryBytes returns the memory that the column uses.
func (c *Column) MemoryBytes() int64 {
	return int64(cap(c.flat) + 4*cap(c.offsets) + cap(c.Def) + cap(c.Rep) + 128)
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// ReadColumn decodes one column of one row group. If shape is not nil, every row must be an array
// of that shape without nulls. ReadColumn checks this while it reads the levels, and returns
// Malformed with the first row that differs.
func ReadColumn(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	group int,
	leaf *Node,
	shape []int,
	lim Limits,
) (_ *Column, err error) {
	defer guard.Recover("parquet", &err)
	defer guard.At(robocache.Where{"row_group": group, "column": leaf.top})
	k := f.chunkLocation(group, leaf)
	width := cmp.Or(int64(leaf.Width()), 4) // a byte array needs an offset per value
	if k.Size > lim.Bytes || k.Values > lim.Bytes/width {
		tooLarge(lim.Bytes, fmt.Sprintf("%d values in %d bytes", k.Values, k.Size))
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	if int64(cap(*buf)) < k.Size {
		*buf = make([]byte, k.Size)
	}
	b := (*buf)[:k.Size]
	guard.Check(r.ReadAt(ctx, b, k.Offset))
	d := newDecoder(leaf, k, lim)
	d.shape = shape
	if want := k.Values * int64(d.col.width); want <= 64*k.Size+64<<10 {
		// The declared size is plausible for the number of bytes in the chunk. Otherwise the array
		// grows page by page.
		d.col.flat = make([]byte, 0, want)
	}
	for len(b) > 0 && int64(d.col.Entries) < k.Values {
		b = b[d.decodePage(b, k.Offset+k.Size-int64(len(b))):]
	}
	if int64(d.col.Entries) != k.Values {
		failParse("the footer claims %d values, the pages hold %d", k.Values, d.col.Entries)
	}
	return d.checkColumn(f.Groups[group].Rows), nil
}

// chunkLocation returns the chunk of a leaf after checking its location against the file.
func (f *File) chunkLocation(group int, leaf *Node) Chunk {
	k, ok := f.Chunk(group, leaf)
	if !ok {
		guard.Fail(
			robocache.Misuse(
				"parquet",
				nil,
				"the column was not asked for when the file was opened",
			),
		)
	}
	if k.Offset < 4 || k.Size < 0 || k.Size > f.Size || k.Offset > f.Size-k.Size {
		failParse("offset %d + size %d ends after the file (%d bytes)", k.Offset, k.Size, f.Size)
	}
	if rows := f.Groups[group].Rows; k.Values < rows {
		failParse("%d values for %d rows", k.Values, rows)
	}
	return k
}

// chunkDecoder decodes the pages of one chunk into a Column.
type chunkDecoder struct {
	leaf           *Node
	codec          int32
	limit          int64 // in bytes
	valuesDeclared int64 // number of values of the whole chunk
	dict           *values
	col            *Column
	shape          []int
	// buffers that are reused for each page
	plainPage    []byte
	indices      []uint32
	levelScratch []uint8
}

func newDecoder(leaf *Node, k Chunk, lim Limits) *chunkDecoder {
	return &chunkDecoder{
		leaf:           leaf,
		codec:          k.Codec,
		limit:          min(lim.Bytes, math.MaxUint32),
		valuesDeclared: k.Values,
		col:            newColumn(leaf),
	}
}

func newColumn(leaf *Node) *Column {
	return &Column{Leaf: leaf, values: values{width: leaf.Width()}}
}

// decodePage decodes the page at the start of b and returns its size. at is its offset in the file.
func (d *chunkDecoder) decodePage(b []byte, at int64) int {
	defer guard.In("offset", at)
	h, n := readPageHeader(b)
	if int64(h.packed) > int64(len(b)-n) {
		failParse(
			"a page of %d bytes, but %d bytes are left: the file is truncated or its header is "+
				"wrong",
			h.packed,
			len(b)-n,
		)
	}
	took := n + int(h.packed)
	body := b[n:took]
	if h.kind != 0 && h.kind != 2 && h.kind != 3 {
		return took // an index page is not needed
	}
	if !h.seen {
		failParse("page header: the part for its type is missing")
	}
	if h.hasCRC && crc32.ChecksumIEEE(body) != h.crc {
		guard.Fail(robocache.Malformed("parquet", nil, "the checksum of a page is wrong").
			WithHint("the file is damaged: fetch it again"))
	}
	if int64(h.unpacked) > d.limit {
		tooLarge(d.limit, int64(h.unpacked))
	}
	switch h.kind {
	case 2:
		d.decodeDictionary(h, body)
	case 0:
		d.decodeDataV1(h, body)
	case 3:
		d.decodeDataV2(h, body)
	}
	return took
}

// tooLarge fails the read because something needs more memory than the limit.
func tooLarge(limit int64, got any) {
	if n, ok := got.(int64); ok {
		got = fmt.Sprintf("at least %d", n)
	}
	guard.Fail(robocache.ResourceLimit("parquet", nil, "").
		Expected(fmt.Sprintf("at most %d bytes", limit), fmt.Sprint(got)).
		WithHint("raise the memory budget, or write smaller row groups"))
}

func (d *chunkDecoder) decompressPage(codec int32, size int, body []byte) []byte {
	if codec == 0 {
		if len(body) != size {
			failParse("an uncompressed page of another size than declared")
		}
		return body
	}
	if cap(d.plainPage) < size {
		d.plainPage = make([]byte, size)
	}
	out := d.plainPage[:size]
	guard.Check(decompressInto(codec, out, body))
	return out
}

func (d *chunkDecoder) decodeDictionary(h pageHeader, body []byte) {
	if d.dict != nil || d.col.Entries > 0 {
		failParse("a second dictionary page")
	}
	if h.encoding != encPlain && h.encoding != encPlainDict {
		d.failEncoding(h.encoding)
	}
	b := d.decompressPage(d.codec, int(h.unpacked), body)
	if d.leaf.Type == Boolean {
		failParse("a dictionary of booleans")
	}
	// Every value takes at least one byte, and a byte array takes four. Thus a wrong count cannot
	// make appendPlain allocate more than the page.
	d.dict = &values{width: d.col.width}
	d.dict.appendPlain(b, int(h.values), d.leaf.Type, d.limit)
}

// failEncoding fails the read because the encoding is not supported.
func (d *chunkDecoder) failEncoding(e int32) {
	name := cmp.Or(encodingNames[e], fmt.Sprintf("number %d", e))
	guard.Fail(
		robocache.Unsupported(
			"parquet",
			nil,
			"encoding %s of a column of %s",
			name,
			d.leaf.Type.String(),
		),
	)
}

func (d *chunkDecoder) decodeDataV1(h pageHeader, body []byte) {
	b := d.decompressPage(d.codec, int(h.unpacked), body)
	var levels [2][]byte
	for i, part := range []struct {
		most int
		enc  int32
	}{{d.leaf.MaxRep, h.repEnc}, {d.leaf.MaxDef, h.defEnc}} {
		if part.most == 0 {
			continue
		}
		if part.enc != encRLE {
			d.failEncoding(part.enc)
		}
		levels[i], b = cutLengthPrefixed(b, "levels longer than their page")
	}
	d.decodeDataPage(h, levels[0], levels[1], b)
}

// cutLengthPrefixed returns the part of b that follows a 4-byte length, and the rest of b.
func cutLengthPrefixed(b []byte, wrong string) (part, rest []byte) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		failParse("%s", wrong)
	}
	n := 4 + int(binary.LittleEndian.Uint32(b))
	return b[4:n], b[n:]
}

func (d *chunkDecoder) decodeDataV2(h pageHeader, body []byte) {
	if int64(h.repLen)+int64(h.defLen) > int64(min(len(body), int(h.unpacked))) {
		failParse("levels longer than their page")
	}
	rep, def, b := body[:h.repLen], body[h.repLen:h.repLen+h.defLen], body[h.repLen+h.defLen:]
	codec := d.codec
	if h.plain {
		codec = 0
	}
	size := int(h.unpacked - h.repLen - h.defLen)
	if size == 0 && len(b) == 0 {
		codec = 0
	}
	d.decodeDataPage(h, rep, def, d.decompressPage(codec, size, b))
}

func (d *chunkDecoder) decodeValues(enc int32, b []byte, n int) {
	v := &d.col.values
	switch {
	case n == 0:
	case enc == encPlain:
		v.appendPlain(b, n, d.leaf.Type, d.limit)
	case enc == encRLEDict || enc == encPlainDict:
		if d.dict == nil {
			failParse("dictionary indices without a dictionary page")
		}
		if len(b) == 0 || b[0] > 32 {
			failParse("dictionary indices: bad bit width")
		}
		if cap(d.indices) < n {
			d.indices = make([]uint32, n)
		}
		idx := d.indices[:n]
		if b[0] == 0 {
			clear(idx)
		} else {
			h := hybridReader{b: b[1:], width: uint(b[0]), what: "dictionary indices end early"}
			for left := idx; len(left) > 0; left = left[h.readRun(left):] {
			}
		}
		v.appendIndexed(d.dict, idx, d.limit)
	case enc == encRLE && d.leaf.Type == Boolean:
		v.appendRLEBools(b, n)
	case enc == encDelta:
		v.appendDeltas(b, n, d.leaf.Type)
	case enc == encDeltaLength && d.leaf.Type == ByteArray:
		v.appendDeltaLengths(b, n, d.limit)
	case enc == encDeltaBytes:
		v.appendDeltaByteArrays(b, n, d.limit)
	case enc == encSplit:
		v.appendByteStreamSplit(b, n)
	default:
		d.failEncoding(enc)
	}
}

// failRow fails the read because a row does not have the required shape.
func failRow(row any, want, got string) {
	guard.Fail(robocache.Malformed("parquet", robocache.Where{"row": row}, "").Expected(want, got))
}

// checkColumn checks the number of rows of the column.
func (d *chunkDecoder) checkColumn(rows int64) *Column {
	c := d.col
	n := int64(c.Entries)
	switch {
	case d.leaf.MaxRep == 0:
		if n != rows {
			failParse("%d values for %d rows", n, rows)
		}
	case d.shape != nil:
		if n != rows*int64(d.elementsPerRow()) {
			failRow(
				max(0, rows-1),
				fmt.Sprintf("%d rows of shape %v", rows, d.shape),
				fmt.Sprintf("%d values", n),
			)
		}
	default:
		var starts int64
		for _, r := range c.Rep {
			if r == 0 {
				starts++
			}
		}
		if starts != rows || len(c.Rep) > 0 && c.Rep[0] != 0 {
			failParse("%d lists for %d rows", starts, rows)
		}
	}
	if c.width == 0 && c.offsets == nil {
		c.offsets = []uint32{0}
	}
	return c
}

// decodeDataPage decodes the levels and values of a data page.
func (d *chunkDecoder) decodeDataPage(h pageHeader, rep, def, b []byte) {
	n := int(h.values)
	if int64(d.col.Entries)+int64(n) > d.valuesDeclared {
		failParse(
			"the footer claims %d values, the pages hold at least %d",
			d.valuesDeclared,
			d.col.Entries+n,
		)
	}
	present := n
	if d.leaf.MaxRep > 0 {
		d.checkRepetition(rep, n)
	}
	if d.leaf.MaxDef > 0 {
		lv, all := decodeLevels(
			d.levelScratch[:0],
			def,
			n,
			d.leaf.MaxDef,
			"definition levels end early or are out of range",
		)
		if cap(lv) > cap(d.levelScratch) {
			d.levelScratch = lv
		}
		switch {
		case !all:
			if d.shape != nil {
				null := slices.IndexFunc(lv, func(v uint8) bool { return int(v) != d.leaf.MaxDef })
				failRow((d.col.Entries+null)/d.elementsPerRow(), "a value", "null")
			}
			present = d.keepDefLevels(lv, n)
		case d.col.Def != nil:
			d.col.Def = append(d.col.Def, bytes.Repeat([]byte{uint8(d.leaf.MaxDef)}, n)...)
		}
	}
	if size := int64(d.col.Len()+present) * int64(max(1, d.col.width)); size > d.limit {
		tooLarge(d.limit, size)
	}
	d.col.Entries += n
	d.decodeValues(h.encoding, b, present)
}

func (d *chunkDecoder) keepDefLevels(lv []uint8, n int) int {
	if d.col.Def == nil {
		d.col.Def = append(
			make([]uint8, 0, d.col.Entries+n),
			bytes.Repeat([]byte{uint8(d.leaf.MaxDef)}, d.col.Entries)...)
	}
	present := 0
	for _, v := range lv {
		if int(v) == d.leaf.MaxDef {
			present++
		}
	}
	d.col.Def = append(d.col.Def, lv...)
	return present
}

// elementsPerRow returns the number of elements of a row of the shape.
func (d *chunkDecoder) elementsPerRow() int {
	n := 1
	for _, s := range d.shape {
		n *= s
	}
	return max(1, n)
}

// checkRepetition compares the repetition levels with the shape. Without a shape it stores them.
func (d *chunkDecoder) checkRepetition(b []byte, n int) {
	dims := d.shape
	lv, _ := decodeLevels(
		d.levelScratch[:0],
		b,
		n,
		d.leaf.MaxRep,
		"repetition levels end early or are out of range",
	)
	if lv == nil {
		if cap(d.levelScratch) < n {
			d.levelScratch = make([]uint8, n)
		}
		lv = d.levelScratch[:n]
		for i := range lv {
			lv[i] = uint8(d.leaf.MaxRep)
		}
	}
	d.levelScratch = lv[:0]
	if dims == nil {
		d.col.Rep = append(d.col.Rep, lv...)
		return
	}
	if len(dims) != d.leaf.MaxRep {
		failParse("expected rows of shape %v, found lists %d deep", dims, d.leaf.MaxRep)
	}
	size := d.elementsPerRow()
	inner := dims[len(dims)-1]
	top := uint8(d.leaf.MaxRep)
	at := d.col.Entries % size
	for i, v := range lv {
		want := top
		if at%inner == 0 {
			want = repetitionLevelAt(at, dims)
		}
		if v != want {
			row := (d.col.Entries + i) / size
			if v != 0 && want == 0 {
				row-- // the previous row continues where it should have ended
			}
			failRow(max(0, row), fmt.Sprintf("an array of shape %v", dims), "another length")
		}
		if at++; at == size {
			at = 0
		}
	}
}

// repetitionLevelAt returns the repetition level of element at of a row.
func repetitionLevelAt(at int, dims []int) uint8 {
	if at == 0 {
		return 0
	}
	level := len(dims)
	for k := len(dims) - 1; k > 0 && at%dims[k] == 0; k-- {
		at /= dims[k]
		level--
	}
	return uint8(level)
}
