package pq

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"sync"

	"github.com/goatnote-inc/robocache"
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

// ReadColumn decodes one column of one row group. A non-nil shape says that every row must be an array of that shape
// without nulls: it is checked row by row while the levels are read, and a difference is Malformed with the row.
func ReadColumn(ctx context.Context, r robocache.Ranged, f *File, group int, leaf *Node, shape []int, lim Limits) (*Column, error) {
	where := robocache.Where{"row_group": group, "column": leaf.top}
	k, err := f.place(group, leaf, where)
	if err != nil {
		return nil, err
	}
	rows := f.Groups[group].Rows
	width := cmp.Or(int64(leaf.Width()), 4) // of byte arrays an offset a value
	if k.Size > lim.Bytes || k.Values > lim.Bytes/width {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "parquet", Where: where, Want: fmt.Sprintf("at most %d bytes", lim.Bytes), Got: fmt.Sprintf("%d values in %d bytes", k.Values, k.Size), Hint: "raise the memory budget, or write smaller row groups"}
	}
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	if int64(cap(*buf)) < k.Size {
		*buf = make([]byte, k.Size)
	}
	b := (*buf)[:k.Size]
	if err := r.ReadAt(ctx, b, k.Offset); err != nil {
		return nil, robocache.At(err, where)
	}
	d := newDecoder(leaf, k, lim, where)
	d.shape = shape
	if want := k.Values * int64(d.col.width); want <= 64*k.Size+64<<10 {
		// What the footer declares is plausible for the bytes that are there; else the array grows with the pages.
		d.col.flat = make([]byte, 0, want)
	}
	for len(b) > 0 && int64(d.col.Entries) < k.Values {
		n, err := d.page(b)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"offset": k.Offset + k.Size - int64(len(b))})
		}
		b = b[n:]
	}
	if int64(d.col.Entries) != k.Values {
		return nil, malformed(where, fmt.Sprintf("the footer claims %d values, the pages hold %d", k.Values, d.col.Entries))
	}
	return d.finish(rows)
}

// place is the chunk of a leaf, checked against the file.
func (f *File) place(group int, leaf *Node, where robocache.Where) (Chunk, error) {
	k, ok := f.Chunk(group, leaf)
	if !ok {
		return k, &robocache.Error{Class: robocache.ErrMisuse, Op: "parquet", Where: where, Msg: "the column was not asked for when the file was opened"}
	}
	if k.Offset < 4 || k.Size < 0 || k.Size > f.Size || k.Offset > f.Size-k.Size {
		return k, malformed(where, fmt.Sprintf("offset %d + size %d ends after the file (%d bytes)", k.Offset, k.Size, f.Size))
	}
	if rows := f.Groups[group].Rows; k.Values < rows {
		return k, malformed(where, fmt.Sprintf("%d values for %d rows", k.Values, rows))
	}
	return k, nil
}

// decoder turns the pages of one chunk into a Column.
type decoder struct {
	leaf  *Node
	codec int32
	limit int64 // bytes
	want  int64 // values of the whole chunk
	where robocache.Where
	dict  *values
	col   *Column
	shape []int
	// scratch
	plainPage []byte
	idx       []uint32
	lv        []uint8
}

func newDecoder(leaf *Node, k Chunk, lim Limits, where robocache.Where) *decoder {
	limit := min(lim.Bytes, math.MaxUint32)
	return &decoder{leaf: leaf, codec: k.Codec, limit: limit, want: k.Values, where: where, col: &Column{Leaf: leaf, values: values{width: leaf.Width()}}}
}

// page decodes the page at the start of b and says how many bytes it took.
func (d *decoder) page(b []byte) (int, error) {
	h, n, bad := readPageHeader(b)
	if bad != "" {
		return 0, malformed(d.where, bad)
	}
	if int64(h.packed) > int64(len(b)-n) {
		return 0, malformed(d.where, fmt.Sprintf("a page of %d bytes where %d are left: the file is cut or its header lies", h.packed, len(b)-n))
	}
	body := b[n : n+int(h.packed)]
	took := n + int(h.packed)
	if h.kind != 0 && h.kind != 2 && h.kind != 3 {
		return took, nil // an index page: nothing that is needed
	}
	if !h.seen {
		return 0, malformed(d.where, "page header: the part for its type is missing")
	}
	if h.hasCRC && crc32.ChecksumIEEE(body) != h.crc {
		return 0, &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Where: d.where, Msg: "the checksum of a page is wrong", Hint: "the file is damaged: fetch it again"}
	}
	if int64(h.unpacked) > d.limit {
		return 0, d.tooLarge(int64(h.unpacked))
	}
	var err error
	switch h.kind {
	case 2:
		err = d.dictionary(h, body)
	case 0:
		err = d.dataV1(h, body)
	case 3:
		err = d.dataV2(h, body)
	}
	return took, err
}

func (d *decoder) tooLarge(n int64) error {
	return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "parquet", Where: d.where, Want: fmt.Sprintf("at most %d bytes", d.limit), Got: fmt.Sprintf("at least %d", n), Hint: "raise the memory budget, or write smaller row groups"}
}

func (d *decoder) unpack(codec int32, size int, body []byte) ([]byte, error) {
	if codec == 0 {
		if len(body) != size {
			return nil, malformed(d.where, "an uncompressed page of another size than declared")
		}
		return body, nil
	}
	if cap(d.plainPage) < size {
		d.plainPage = make([]byte, size)
	}
	out := d.plainPage[:size]
	if err := decompress(codec, out, body); err != nil {
		return nil, robocache.At(err, d.where)
	}
	return out, nil
}

func (d *decoder) dictionary(h pageHeader, body []byte) error {
	if d.dict != nil || d.col.Entries > 0 {
		return malformed(d.where, "a second dictionary page")
	}
	if h.encoding != encPlain && h.encoding != encPlainDict {
		return d.encoding(h.encoding)
	}
	b, err := d.unpack(d.codec, int(h.unpacked), body)
	if err != nil {
		return err
	}
	if d.leaf.Type == Boolean {
		return malformed(d.where, "a dictionary of booleans")
	}
	// Every value takes at least a byte (byte arrays four), so a lying count cannot make plain allocate more than the page.
	dict := &values{width: d.col.width}
	if bad := dict.plain(b, int(h.values), d.leaf.Type, d.limit); bad != "" {
		return malformed(d.where, "dictionary: "+bad)
	}
	d.dict = dict
	return nil
}

func (d *decoder) encoding(e int32) error {
	name := cmp.Or(encodingNames[e], fmt.Sprintf("number %d", e))
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "parquet", Where: d.where, Msg: "encoding " + name + " of a column of " + d.leaf.Type.String()}
}

func (d *decoder) dataV1(h pageHeader, body []byte) error {
	b, err := d.unpack(d.codec, int(h.unpacked), body)
	if err != nil {
		return err
	}
	var levels [2][]byte
	for i, part := range []struct {
		most int
		enc  int32
	}{{d.leaf.MaxRep, h.repEnc}, {d.leaf.MaxDef, h.defEnc}} {
		if part.most == 0 {
			continue
		}
		if part.enc != encRLE {
			return d.encoding(part.enc)
		}
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return malformed(d.where, "levels longer than their page")
		}
		n := 4 + int(binary.LittleEndian.Uint32(b))
		levels[i], b = b[4:n], b[n:]
	}
	return d.data(h, levels[0], levels[1], b)
}

func (d *decoder) dataV2(h pageHeader, body []byte) error {
	if int64(h.repLen)+int64(h.defLen) > int64(len(body)) || int64(h.repLen)+int64(h.defLen) > int64(h.unpacked) {
		return malformed(d.where, "levels longer than their page")
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
	b, err := d.unpack(codec, size, b)
	if err != nil {
		return err
	}
	return d.data(h, rep, def, b)
}

func with(w robocache.Where, k string, v any) robocache.Where {
	out := maps.Clone(w)
	out[k] = v
	return out
}

func (d *decoder) decode(enc int32, b []byte, n int) error {
	v := &d.col.values
	var bad string
	switch {
	case n == 0:
	case enc == encPlain:
		bad = v.plain(b, n, d.leaf.Type, d.limit)
	case enc == encRLEDict || enc == encPlainDict:
		if d.dict == nil {
			return malformed(d.where, "dictionary indices without a dictionary page")
		}
		if len(b) == 0 || b[0] > 32 {
			return malformed(d.where, "dictionary indices: bad bit width")
		}
		if cap(d.idx) < n {
			d.idx = make([]uint32, n)
		}
		idx := d.idx[:n]
		if b[0] == 0 {
			clear(idx)
		} else if !indices(idx, b[1:], uint(b[0])) {
			return malformed(d.where, "dictionary indices end early")
		}
		bad = v.gather(d.dict, idx, d.limit)
	case enc == encRLE && d.leaf.Type == Boolean:
		bad = v.rleBool(b, n)
	case enc == encDelta:
		bad = v.delta(b, n, d.leaf.Type)
	case enc == encDeltaLength && d.leaf.Type == ByteArray:
		bad = v.deltaLength(b, n, d.limit)
	case enc == encDeltaBytes:
		bad = v.deltaBytes(b, n, d.limit)
	case enc == encSplit:
		bad = v.split(b, n)
	default:
		return d.encoding(enc)
	}
	if bad == tooLarge {
		return d.tooLarge(d.limit + 1)
	}
	if bad != "" {
		return malformed(d.where, bad)
	}
	return nil
}

// finish checks the column as a whole.
func (d *decoder) finish(rows int64) (*Column, error) {
	c := d.col
	n := int64(c.Entries)
	switch {
	case d.leaf.MaxRep == 0:
		if n != rows {
			return nil, malformed(d.where, fmt.Sprintf("%d values for %d rows", n, rows))
		}
	case d.shape != nil:
		if n != rows*int64(d.rowSize()) {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "parquet", Where: with(d.where, "row", max(0, rows-1)), Want: fmt.Sprintf("%d rows of shape %v", rows, d.shape), Got: fmt.Sprintf("%d values", n)}
		}
	default:
		var starts int64
		for _, r := range c.Rep {
			if r == 0 {
				starts++
			}
		}
		if starts != rows || len(c.Rep) > 0 && c.Rep[0] != 0 {
			return nil, malformed(d.where, fmt.Sprintf("%d lists for %d rows", starts, rows))
		}
	}
	if c.width == 0 && c.offsets == nil {
		c.offsets = []uint32{0}
	}
	return c, nil
}
