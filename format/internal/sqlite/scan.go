package sqlite

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Place is where a row lies: it can be read again without a search.
type Place struct {
	Page uint32
	Cell uint16 // its offset in the page
}

// Row is one row while it is scanned or read. Values inside the page are at hand; larger ones are read when asked for.
type Row struct {
	Place Place
	ID    int64 // rowid
	d     *DB
	table *Table
	size  int64  // of the record
	local []byte // what of it lies in the page
	next  uint32 // first page of the rest; 0 = none
	types []int64
	at    []int64 // offset of each value in the record; one more for the end
	buf   []byte
	ctx   context.Context // of the scan: a number can lie in another page
	small [8]byte
}

func varint(p []byte) (v int64, n int) {
	var u uint64
	for k := range min(len(p), 9) {
		if k == 8 {
			return int64(u<<8 | uint64(p[8])), 9
		}
		u = u<<7 | uint64(p[k]&0x7f)
		if p[k] < 0x80 {
			return int64(u), k + 1
		}
	}
	return 0, 0
}

// Scan gives the rows of a table in order of their rowid. r and its bytes hold until fn returns.
func (d *DB) Scan(ctx context.Context, t *Table, fn func(r *Row) error) error {
	s := &scan{d: d, table: t, seen: make([]uint64, d.filed/64+1), fn: fn}
	s.row.d, s.row.table, s.row.ctx = d, t, ctx
	p, err := d.page(ctx, t.root)
	if err != nil {
		return err
	}
	return s.visit(ctx, t.root, p, 0)
}

type scan struct {
	d     *DB
	table *Table
	seen  []uint64            // pages of the file
	added map[uint32]struct{} // pages of the log alone
	fn    func(r *Row) error
	row   Row
}

// twice marks a page as visited, and says whether it was.
func (s *scan) twice(number uint32) bool {
	if int64(number) > s.d.filed {
		_, was := s.added[number]
		if s.added == nil {
			s.added = map[uint32]struct{}{}
		}
		s.added[number] = struct{}{}
		return was
	}
	bit := uint64(1) << (number % 64)
	was := s.seen[number/64]&bit != 0
	s.seen[number/64] |= bit
	return was
}

// fan is how many pages of a level are read at once: neighbours come in one request.
const fan = 256

func (s *scan) visit(ctx context.Context, number uint32, p []byte, depth int) error {
	if s.twice(number) {
		return malformed(number, "the page stands twice in the tree")
	}
	if depth > maxDepth {
		return malformed(number, "the tree is deeper than "+strconv.Itoa(maxDepth))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	head := 0
	if number == 1 {
		head = headSize
	}
	count := int(binary.BigEndian.Uint16(p[head+3:]))
	switch p[head] {
	case 0x0d:
		if head+8+2*count > s.d.usable {
			return malformed(number, "more cells than the page has room for")
		}
		for k := range count {
			at := binary.BigEndian.Uint16(p[head+8+2*k:])
			if err := s.row.load(Place{number, at}, p); err != nil {
				return err
			}
			if err := s.fn(&s.row); err != nil {
				return err
			}
		}
		return nil
	case 0x05:
		if head+12+2*count > s.d.usable {
			return malformed(number, "more cells than the page has room for")
		}
		children := make([]uint32, 0, count+1)
		for k := range count {
			at := int(binary.BigEndian.Uint16(p[head+12+2*k:]))
			if at+4 > s.d.usable {
				return malformed(number, "a cell outside its page")
			}
			children = append(children, binary.BigEndian.Uint32(p[at:]))
		}
		children = append(children, binary.BigEndian.Uint32(p[head+8:]))
		for len(children) > 0 {
			some := children[:min(fan, len(children))]
			children = children[len(some):]
			pages, err := s.d.pagesOf(ctx, some)
			if err != nil {
				return err
			}
			for k, c := range some {
				if err := s.visit(ctx, c, pages[k], depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return malformed(number, "not a page of a table")
}

// load reads a cell: the record's size and rowid, its header, and where its values lie.
func (r *Row) load(place Place, p []byte) error {
	d := r.d
	at := int(place.Cell)
	bad := func(msg string) error { return malformed(place.Page, msg) }
	if at >= d.usable {
		return bad("a cell outside its page")
	}
	cell := p[at:d.usable]
	size, n := varint(cell)
	id, m := varint(cell[n:])
	if n == 0 || m == 0 || size < 1 {
		return bad("a cell that is not whole")
	}
	if size > maxRecord || size > d.most() {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Where: robocache.Where{"page": place.Page}, Want: "a record inside the file", Got: strconv.FormatInt(size, 10) + " bytes"}
	}
	cell = cell[n+m:]
	// The file format's rule: what fits stays, else between m and x bytes, so that the rest fills whole pages.
	local := int(size)
	r.next = 0
	if x := d.usable - 35; local > x {
		least := (d.usable-12)*32/255 - 23
		if local = least + (int(size)-least)%(d.usable-4); local > x {
			local = least
		}
		if local+4 > len(cell) {
			return bad("a cell outside its page")
		}
		r.next = binary.BigEndian.Uint32(cell[local:])
	}
	if local > len(cell) {
		return bad("a cell outside its page")
	}
	r.Place, r.ID, r.size, r.local = place, id, size, cell[:local]
	return r.head()
}

// head reads the record's header. Headers that reach into other pages (of thousands of columns) are not read.
func (r *Row) head() error {
	bad := func() error { return malformed(r.Place.Page, "a record whose header is not whole") }
	n, at := varint(r.local)
	if at == 0 || n < int64(at) || n > int64(len(r.local)) {
		return bad()
	}
	r.types, r.at = r.types[:0], r.at[:0]
	body := n
	for h := r.local[at:n]; len(h) > 0; {
		t, k := varint(h)
		if k == 0 || t < 0 {
			return bad()
		}
		h = h[k:]
		r.types, r.at = append(r.types, t), append(r.at, body)
		body += width(t)
		if body > r.size {
			return malformed(r.Place.Page, "a record whose values are larger than it is")
		}
	}
	r.at = append(r.at, body)
	return nil
}

// width is the size of a value by its type.
func width(t int64) int64 {
	switch {
	case t >= 12:
		return (t - 12) / 2
	case t == 5:
		return 6
	case t == 6 || t == 7:
		return 8
	case t <= 4:
		return t
	}
	return 0
}

// Int gives an integer; !ok for another type. Of the rowid's column it is the rowid.
func (r *Row) Int(col int) (v int64, ok bool) {
	if col >= 0 && col == r.table.rowid {
		return r.ID, true
	}
	if col < 0 || col >= len(r.types) {
		return 0, false
	}
	t := r.types[col]
	if t == 8 || t == 9 {
		return t - 8, true
	}
	if t < 1 || t > 6 {
		return 0, false
	}
	p := r.number(col)
	if p == nil {
		return 0, false
	}
	v = int64(int8(p[0]))
	for _, b := range p[1:] {
		v = v<<8 | int64(b)
	}
	return v, true
}

// Float gives a number.
func (r *Row) Float(col int) (float64, bool) {
	if v, ok := r.Int(col); ok {
		return float64(v), true
	}
	if col < 0 || col >= len(r.types) || r.types[col] != 7 {
		return 0, false
	}
	p := r.number(col)
	if p == nil {
		return 0, false
	}
	return math.Float64frombits(binary.BigEndian.Uint64(p)), true
}

// number is the bytes of a number; nil where they cannot be read.
func (r *Row) number(col int) []byte {
	from, to := r.at[col], r.at[col+1]
	if to <= int64(len(r.local)) {
		return r.local[from:to]
	}
	p := r.small[:to-from]
	if r.rest(r.ctx, p, from) != nil {
		return nil
	}
	return p
}

// Size is the number of bytes of a text or blob; 0 for anything else.
func (r *Row) Size(col int) int64 {
	if col < 0 || col >= len(r.types) || r.types[col] < 12 {
		return 0
	}
	return r.at[col+1] - r.at[col]
}

// Text gives a text, "" for NULL and what is none.
func (r *Row) Text(ctx context.Context, col int) (string, error) {
	if col < 0 || col >= len(r.types) || r.types[col] < 13 || r.types[col]%2 == 0 {
		return "", nil
	}
	p, err := r.Bytes(ctx, col)
	return string(p), err
}

// Bytes gives a text's or blob's bytes; they hold until the next call.
func (r *Row) Bytes(ctx context.Context, col int) ([]byte, error) {
	n := r.Size(col)
	if n == 0 {
		return nil, nil
	}
	from, to := r.at[col], r.at[col+1]
	if to <= int64(len(r.local)) {
		return r.local[from:to], nil
	}
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	out := r.buf[:n]
	return out, r.rest(ctx, out, from)
}

// burst is how much of a value is read at once, in the hope that its pages lie one behind the other, as they do in a recording.
const burst = 256 << 10

// rest reads [from, from+len(out)) of the record, which reaches beyond the page, from the chain of pages that holds the rest.
func (r *Row) rest(ctx context.Context, out []byte, from int64) error {
	d := r.d
	at := int64(len(r.local)) // place in the record
	if from < at {
		out = out[copy(out, r.local[from:]):]
		from = at
	}
	page := r.next
	room := int64(d.usable - 4)
	var run []byte // pages read ahead, from number first on
	var first uint32
	for len(out) > 0 {
		if err := d.check(page); err != nil {
			return err
		}
		p := d.log[page]
		if p == nil {
			if k := int64(page) - int64(first); run == nil || k < 0 || (k+1)*int64(d.size) > int64(len(run)) {
				left := (r.size - at + room - 1) / room
				n := max(1, min(left, int64(max(1, burst/d.size)), d.filed-int64(page)+1))
				if int64(cap(run)) < n*int64(d.size) {
					run = make([]byte, n*int64(d.size))
				}
				run, first = run[:n*int64(d.size)], page
				if err := d.f.ReadAt(ctx, run, int64(page-1)*int64(d.size)); err != nil {
					return err
				}
			}
			k := (int64(page) - int64(first)) * int64(d.size)
			p = run[k : k+int64(d.size)]
		}
		body := p[4 : 4+min(room, r.size-at)]
		if skip := from - at; skip < int64(len(body)) {
			n := copy(out, body[max(skip, 0):])
			out, from = out[n:], from+int64(n)
		}
		at += int64(len(body))
		page = binary.BigEndian.Uint32(p)
		if at >= r.size && len(out) > 0 {
			return malformed(r.Place.Page, "a record that ends before its values")
		}
	}
	return nil
}

// Reader reads rows of a table by their places.
type Reader struct {
	row Row
}

// Reader makes a reader; it is for one goroutine.
func (d *DB) Reader(t *Table) *Reader { return &Reader{row: Row{d: d, table: t}} }

// Row reads the row at a place that Scan gave. It holds until the next call.
func (r *Reader) Row(ctx context.Context, at Place) (*Row, error) {
	p, err := r.row.d.leaf(ctx, at.Page)
	if err != nil {
		return nil, err
	}
	r.row.ctx = ctx
	return &r.row, r.row.load(at, p)
}
