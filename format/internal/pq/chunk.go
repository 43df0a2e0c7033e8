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

// Limits bound what a chunk may take, whatever it declares.
type Limits struct {
	Bytes int64 // of the decoded column, and of the compressed chunk
}

// Column is a decoded column of one row group.
type Column struct {
	Leaf    *Node
	Entries int     // levels: values and nulls
	Def     []uint8 // nil where every entry is present
	Rep     []uint8 // nil where the leaf does not repeat, or where Shape was proven
	values
}

// Len is the number of values, without nulls.
func (c *Column) Len() int { return c.values.len() }

// Data is the flat array of fixed-width values.
func (c *Column) Data() []byte { return c.flat }

// Item is value i (nulls not counted).
func (c *Column) Item(i int) []byte { return c.values.item(i) }

// MemoryBytes is what the column holds.
func (c *Column) MemoryBytes() int64 {
	return int64(cap(c.flat) + 4*cap(c.offsets) + cap(c.Def) + cap(c.Rep) + 128)
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// ReadColumn decodes one column of one row group. A non-nil shape says that every row must be an
// array of that shape without nulls: it is checked row by row while the levels are read, and a
// difference is Malformed with the row.
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
	k := f.place(group, leaf)
	width := cmp.Or(int64(leaf.Width()), 4) // of byte arrays an offset a value
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
		// What the footer declares is plausible for the bytes that are there; else the array grows
		// with the pages.
		d.col.flat = make([]byte, 0, want)
	}
	for len(b) > 0 && int64(d.col.Entries) < k.Values {
		b = b[d.page(b, k.Offset+k.Size-int64(len(b))):]
	}
	if int64(d.col.Entries) != k.Values {
		bad("the footer claims %d values, the pages hold %d", k.Values, d.col.Entries)
	}
	return d.finish(f.Groups[group].Rows), nil
}

// place is the chunk of a leaf, checked against the file.
func (f *File) place(group int, leaf *Node) Chunk {
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
		bad("offset %d + size %d ends after the file (%d bytes)", k.Offset, k.Size, f.Size)
	}
	if rows := f.Groups[group].Rows; k.Values < rows {
		bad("%d values for %d rows", k.Values, rows)
	}
	return k
}

// decoder turns the pages of one chunk into a Column.
type decoder struct {
	leaf  *Node
	codec int32
	limit int64 // bytes
	want  int64 // values of the whole chunk
	dict  *values
	col   *Column
	shape []int
	// scratch
	plainPage []byte
	idx       []uint32
	lv        []uint8
}

func newDecoder(leaf *Node, k Chunk, lim Limits) *decoder {
	return &decoder{
		leaf:  leaf,
		codec: k.Codec,
		limit: min(lim.Bytes, math.MaxUint32),
		want:  k.Values,
		col:   newColumn(leaf),
	}
}

func newColumn(leaf *Node) *Column {
	return &Column{Leaf: leaf, values: values{width: leaf.Width()}}
}

// page decodes the page at the start of b, which lies at an offset of the file, and says how many
// bytes it took.
func (d *decoder) page(b []byte, at int64) int {
	defer guard.In("offset", at)
	h, n := readPageHeader(b)
	if int64(h.packed) > int64(len(b)-n) {
		bad(
			"a page of %d bytes where %d are left: the file is cut or its header lies",
			h.packed,
			len(b)-n,
		)
	}
	took := n + int(h.packed)
	body := b[n:took]
	if h.kind != 0 && h.kind != 2 && h.kind != 3 {
		return took // an index page: nothing that is needed
	}
	if !h.seen {
		bad("page header: the part for its type is missing")
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
		d.dictionary(h, body)
	case 0:
		d.dataV1(h, body)
	case 3:
		d.dataV2(h, body)
	}
	return took
}

// tooLarge ends the work: something takes more than the limit.
func tooLarge(limit int64, got any) {
	if n, ok := got.(int64); ok {
		got = fmt.Sprintf("at least %d", n)
	}
	guard.Fail(robocache.ResourceLimit("parquet", nil, "").
		Expected(fmt.Sprintf("at most %d bytes", limit), fmt.Sprint(got)).
		WithHint("raise the memory budget, or write smaller row groups"))
}

func (d *decoder) unpack(codec int32, size int, body []byte) []byte {
	if codec == 0 {
		if len(body) != size {
			bad("an uncompressed page of another size than declared")
		}
		return body
	}
	if cap(d.plainPage) < size {
		d.plainPage = make([]byte, size)
	}
	out := d.plainPage[:size]
	guard.Check(decompress(codec, out, body))
	return out
}

func (d *decoder) dictionary(h pageHeader, body []byte) {
	if d.dict != nil || d.col.Entries > 0 {
		bad("a second dictionary page")
	}
	if h.encoding != encPlain && h.encoding != encPlainDict {
		d.encoding(h.encoding)
	}
	b := d.unpack(d.codec, int(h.unpacked), body)
	if d.leaf.Type == Boolean {
		bad("a dictionary of booleans")
	}
	// Every value takes at least a byte (byte arrays four), so a lying count cannot make plain
	// allocate more than the page.
	d.dict = &values{width: d.col.width}
	d.dict.plain(b, int(h.values), d.leaf.Type, d.limit)
}

// encoding ends the work: values are encoded in a way that is not read.
func (d *decoder) encoding(e int32) {
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

func (d *decoder) dataV1(h pageHeader, body []byte) {
	b := d.unpack(d.codec, int(h.unpacked), body)
	var levels [2][]byte
	for i, part := range []struct {
		most int
		enc  int32
	}{{d.leaf.MaxRep, h.repEnc}, {d.leaf.MaxDef, h.defEnc}} {
		if part.most == 0 {
			continue
		}
		if part.enc != encRLE {
			d.encoding(part.enc)
		}
		levels[i], b = lengthed(b, "levels longer than their page")
	}
	d.data(h, levels[0], levels[1], b)
}

// lengthed takes what follows a length of four bytes off b.
func lengthed(b []byte, wrong string) (part, rest []byte) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		bad("%s", wrong)
	}
	n := 4 + int(binary.LittleEndian.Uint32(b))
	return b[4:n], b[n:]
}

func (d *decoder) dataV2(h pageHeader, body []byte) {
	if int64(h.repLen)+int64(h.defLen) > int64(min(len(body), int(h.unpacked))) {
		bad("levels longer than their page")
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
	d.data(h, rep, def, d.unpack(codec, size, b))
}

func (d *decoder) decode(enc int32, b []byte, n int) {
	v := &d.col.values
	switch {
	case n == 0:
	case enc == encPlain:
		v.plain(b, n, d.leaf.Type, d.limit)
	case enc == encRLEDict || enc == encPlainDict:
		if d.dict == nil {
			bad("dictionary indices without a dictionary page")
		}
		if len(b) == 0 || b[0] > 32 {
			bad("dictionary indices: bad bit width")
		}
		if cap(d.idx) < n {
			d.idx = make([]uint32, n)
		}
		idx := d.idx[:n]
		if b[0] == 0 {
			clear(idx)
		} else {
			h := hybrid{b: b[1:], width: uint(b[0]), what: "dictionary indices end early"}
			for left := idx; len(left) > 0; left = left[h.take(left):] {
			}
		}
		v.gather(d.dict, idx, d.limit)
	case enc == encRLE && d.leaf.Type == Boolean:
		v.rleBool(b, n)
	case enc == encDelta:
		v.delta(b, n, d.leaf.Type)
	case enc == encDeltaLength && d.leaf.Type == ByteArray:
		v.deltaLength(b, n, d.limit)
	case enc == encDeltaBytes:
		v.deltaBytes(b, n, d.limit)
	case enc == encSplit:
		v.split(b, n)
	default:
		d.encoding(enc)
	}
}

// differs ends the work: a row is not as it must be.
func differs(row any, want, got string) {
	guard.Fail(robocache.Malformed("parquet", robocache.Where{"row": row}, "").Expected(want, got))
}

// finish checks the column as a whole.
func (d *decoder) finish(rows int64) *Column {
	c := d.col
	n := int64(c.Entries)
	switch {
	case d.leaf.MaxRep == 0:
		if n != rows {
			bad("%d values for %d rows", n, rows)
		}
	case d.shape != nil:
		if n != rows*int64(d.rowSize()) {
			differs(
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
			bad("%d lists for %d rows", starts, rows)
		}
	}
	if c.width == 0 && c.offsets == nil {
		c.offsets = []uint32{0}
	}
	return c
}

// data decodes levels and values of a data page.
func (d *decoder) data(h pageHeader, rep, def, b []byte) {
	n := int(h.values)
	if int64(d.col.Entries)+int64(n) > d.want {
		bad("the footer claims %d values, the pages hold at least %d", d.want, d.col.Entries+n)
	}
	present := n
	if d.leaf.MaxRep > 0 {
		d.repetition(rep, n)
	}
	if d.leaf.MaxDef > 0 {
		lv, all := levels(
			d.lv[:0],
			def,
			n,
			d.leaf.MaxDef,
			"definition levels end early or are out of range",
		)
		if cap(lv) > cap(d.lv) {
			d.lv = lv
		}
		switch {
		case !all:
			if null := slices.IndexFunc(
				lv,
				func(v uint8) bool { return int(v) != d.leaf.MaxDef },
			); d.shape != nil {
				differs((d.col.Entries+null)/d.rowSize(), "a value", "null")
			}
			present = d.keepDef(lv, n)
		case d.col.Def != nil:
			d.col.Def = append(d.col.Def, bytes.Repeat([]byte{uint8(d.leaf.MaxDef)}, n)...)
		}
	}
	if size := int64(d.col.Len()+present) * int64(max(1, d.col.width)); size > d.limit {
		tooLarge(d.limit, size)
	}
	d.col.Entries += n
	d.decode(h.encoding, b, present)
}

func (d *decoder) keepDef(lv []uint8, n int) int {
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

// rowSize is the number of elements of a row of the shape.
func (d *decoder) rowSize() int {
	n := 1
	for _, s := range d.shape {
		n *= s
	}
	return max(1, n)
}

// repetition checks the levels against the shape, or keeps them.
func (d *decoder) repetition(b []byte, n int) {
	dims := d.shape
	lv, _ := levels(
		d.lv[:0],
		b,
		n,
		d.leaf.MaxRep,
		"repetition levels end early or are out of range",
	)
	if lv == nil {
		if cap(d.lv) < n {
			d.lv = make([]uint8, n)
		}
		lv = d.lv[:n]
		for i := range lv {
			lv[i] = uint8(d.leaf.MaxRep)
		}
	}
	d.lv = lv[:0]
	if dims == nil {
		d.col.Rep = append(d.col.Rep, lv...)
		return
	}
	if len(dims) != d.leaf.MaxRep {
		bad("expected rows of shape %v, found lists %d deep", dims, d.leaf.MaxRep)
	}
	size := d.rowSize()
	inner := dims[len(dims)-1]
	top := uint8(d.leaf.MaxRep)
	at := d.col.Entries % size
	for i, v := range lv {
		want := top
		if at%inner == 0 {
			want = restart(at, dims)
		}
		if v != want {
			row := (d.col.Entries + i) / size
			if v != 0 && want == 0 {
				row-- // the row before goes on where it should have ended
			}
			differs(max(0, row), fmt.Sprintf("an array of shape %v", dims), "another length")
		}
		if at++; at == size {
			at = 0
		}
	}
}

// restart is the repetition level of element at of a row.
func restart(at int, dims []int) uint8 {
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
