package sqlite

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

const (
	headSize  = 100
	maxRecord = 1 << 30
	maxDepth  = 24 // of a tree: 2 cells a page at least
	maxSchema = 4096
)

// DB is an open file. Its methods may be called from many goroutines.
type DB struct {
	f      robocache.Ranged
	size   int   // of a page
	usable int   // of a page, less what is reserved at its end
	pages  int64 // in the file, with those of the log
	filed  int64 // in the file itself
	log    map[uint32][]byte
	tables map[string]*Table

	mu    sync.Mutex
	cache map[uint32][]byte // of leaf pages, for reading values
	order []uint32
}

// Table is one table of a file.
type Table struct {
	Name    string
	Columns []string
	root    uint32
	rowid   int // column that is the rowid; -1 = none
}

// Column finds a column by name; -1 where there is none.
func (t *Table) Column(name string) int {
	for k, c := range t.Columns {
		if strings.EqualFold(c, name) {
			return k
		}
	}
	return -1
}

func malformed(page uint32, msg string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Where: robocache.Where{"page": page}, Msg: msg}
}

// IsDB says whether the first bytes are those of a SQLite 3 file.
func IsDB(head []byte) bool { return len(head) >= 16 && string(head[:16]) == "SQLite format 3\x00" }

// Open reads the head and the schema. wal is the write-ahead log beside the file; nil where there is none. The file stays the caller's.
func Open(ctx context.Context, f robocache.Ranged, wal []byte) (*DB, error) {
	if f.Size() < headSize {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Want: "a head of 100 bytes", Got: strconv.FormatInt(f.Size(), 10) + " bytes"}
	}
	head := make([]byte, headSize)
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if !IsDB(head) {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Msg: "not a SQLite 3 file"}
	}
	d := &DB{f: f, size: int(binary.BigEndian.Uint16(head[16:])), cache: map[uint32][]byte{}}
	if d.size == 1 {
		d.size = 65536
	}
	if d.size < 512 || d.size&(d.size-1) != 0 {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Msg: "pages of " + strconv.Itoa(d.size) + " bytes"}
	}
	d.usable = d.size - int(head[20])
	if d.usable < 480 {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Msg: "pages with " + strconv.Itoa(d.usable) + " usable bytes"}
	}
	if enc := binary.BigEndian.Uint32(head[56:]); enc > 1 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "sqlite", Msg: "texts in UTF-16 are not read"}
	}
	d.filed = f.Size() / int64(d.size)
	d.pages = d.filed
	d.readLog(wal)
	if d.pages == 0 {
		return nil, malformed(1, "the file ends inside its first page")
	}
	if err := d.schema(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// LogPages is the number of pages taken from the write-ahead log.
func (d *DB) LogPages() int { return len(d.log) }

// Table finds a table; nil where there is none.
func (d *DB) Table(name string) *Table { return d.tables[name] }

// readLog takes the pages of committed transactions from a write-ahead log. Frames after the last commit, of an earlier log, or with a
// wrong sum are passed over: SQLite does the same.
func (d *DB) readLog(wal []byte) {
	if len(wal) < 32 {
		return
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch binary.BigEndian.Uint32(wal) {
	case 0x377f0682:
	case 0x377f0683:
		order = binary.BigEndian
	default:
		return
	}
	if int(binary.BigEndian.Uint32(wal[8:])) != d.size {
		return
	}
	salt := string(wal[16:24])
	s0, s1 := sum(order, wal[:24], 0, 0)
	if s0 != binary.BigEndian.Uint32(wal[24:]) || s1 != binary.BigEndian.Uint32(wal[28:]) {
		return
	}
	frames := map[uint32][]byte{}
	for at := 32; at+24+d.size <= len(wal); at += 24 + d.size {
		h := wal[at : at+24]
		page := wal[at+24 : at+24+d.size]
		if string(h[8:16]) != salt {
			return
		}
		s0, s1 = sum(order, h[:8], s0, s1)
		s0, s1 = sum(order, page, s0, s1)
		if s0 != binary.BigEndian.Uint32(h[16:]) || s1 != binary.BigEndian.Uint32(h[20:]) {
			return
		}
		frames[binary.BigEndian.Uint32(h)] = page
		if pages := binary.BigEndian.Uint32(h[4:]); pages > 0 { // a commit: so many pages from here on
			if d.log == nil {
				d.log = map[uint32][]byte{}
			}
			for k, p := range frames {
				d.log[k] = p
			}
			clear(frames)
			d.pages = int64(pages)
		}
	}
}

func sum(order binary.ByteOrder, p []byte, s0, s1 uint32) (uint32, uint32) {
	for ; len(p) >= 8; p = p[8:] {
		s0 += order.Uint32(p) + s1
		s1 += order.Uint32(p[4:]) + s0
	}
	return s0, s1
}

// most is an upper bound of the bytes that the file holds.
func (d *DB) most() int64 { return (d.filed + int64(len(d.log))) * int64(d.size) }

// check says whether a page number lies in the file.
func (d *DB) check(page uint32) error {
	if page == 0 || int64(page) > d.pages || d.log[page] == nil && int64(page) > d.filed {
		return malformed(page, "the page lies outside the file of "+strconv.FormatInt(d.pages, 10)+" pages")
	}
	return nil
}

// page reads one page.
func (d *DB) page(ctx context.Context, n uint32) ([]byte, error) {
	if err := d.check(n); err != nil {
		return nil, err
	}
	if p := d.log[n]; p != nil {
		return p, nil
	}
	p := make([]byte, d.size)
	if err := d.f.ReadAt(ctx, p, int64(n-1)*int64(d.size)); err != nil {
		return nil, err
	}
	return p, nil
}

// leaf reads a page through a small cache: neighbouring rows share it.
func (d *DB) leaf(ctx context.Context, n uint32) ([]byte, error) {
	d.mu.Lock()
	p := d.cache[n]
	d.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := d.page(ctx, n)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cache[n] == nil {
		if len(d.order) == max(16, 1<<20/d.size) {
			delete(d.cache, d.order[0])
			d.order = d.order[1:]
		}
		d.cache[n] = p
		d.order = append(d.order, n)
	}
	return p, nil
}

// pagesOf reads several pages, neighbours in one request.
func (d *DB) pagesOf(ctx context.Context, numbers []uint32) ([][]byte, error) {
	out := make([][]byte, len(numbers))
	var spans []store.Span
	slab := make([]byte, len(numbers)*d.size)
	for k, n := range numbers {
		if err := d.check(n); err != nil {
			return nil, err
		}
		if out[k] = d.log[n]; out[k] == nil {
			out[k] = slab[k*d.size : (k+1)*d.size]
			spans = append(spans, store.Span{Off: int64(n-1) * int64(d.size), P: out[k]})
		}
	}
	return out, store.ReadRanges(ctx, d.f, spans)
}

// schema reads sqlite_schema, which is the table at page 1: type, name, tbl_name, rootpage, sql.
func (d *DB) schema(ctx context.Context) error {
	d.tables = map[string]*Table{}
	rows := 0
	return d.Scan(ctx, &Table{Name: "sqlite_schema", root: 1, rowid: -1, Columns: []string{"type", "name", "tbl_name", "rootpage", "sql"}}, func(r *Row) error {
		if rows++; rows > maxSchema {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "sqlite", Msg: "more than " + strconv.Itoa(maxSchema) + " tables and indexes"}
		}
		kind, err := r.Text(ctx, 0)
		if err != nil || kind != "table" {
			return err
		}
		name, err := r.Text(ctx, 1)
		if err != nil {
			return err
		}
		root, _ := r.Int(3)
		sql, err := r.Text(ctx, 4)
		if err != nil {
			return err
		}
		t := &Table{Name: name, root: uint32(root)}
		t.Columns, t.rowid = columnsOf(sql)
		if root > 0 && root <= int64(^uint32(0)) && t.Columns != nil {
			d.tables[name] = t
		}
		return nil
	})
}

// columnsOf reads the names of the columns of a CREATE TABLE text, and which of them is the rowid. nil for a table without rowid.
func columnsOf(sql string) (columns []string, rowid int) {
	rowid = -1
	from, to := strings.IndexByte(sql, '('), strings.LastIndexByte(sql, ')')
	if from < 0 || to < from || strings.Contains(strings.ToUpper(sql[to:]), "WITHOUT") {
		return nil, -1
	}
	depth, start := 0, from+1
	var quote byte
	for k := from + 1; k <= to; k++ {
		switch c := sql[k]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '[':
			quote = ']'
		case c == '(':
			depth++
		case (c == ',' || k == to) && depth == 0:
			name, rest := columnName(sql[start:k])
			start = k + 1
			switch up := strings.ToUpper(name); {
			case name == "":
				continue
			case up == "PRIMARY" || up == "UNIQUE" || up == "CHECK" || up == "FOREIGN" || up == "CONSTRAINT":
				continue // a constraint of the table
			}
			if words := strings.Fields(strings.ToUpper(rest)); len(words) >= 3 && words[0] == "INTEGER" && words[1] == "PRIMARY" && words[2] == "KEY" {
				rowid = len(columns)
			}
			columns = append(columns, name)
		case c == ')':
			depth--
		}
	}
	return columns, rowid
}

func columnName(def string) (name, rest string) {
	def = strings.TrimSpace(def)
	if def == "" {
		return "", ""
	}
	if k := strings.IndexByte("\"`['", def[0]); k >= 0 {
		if e := strings.IndexByte(def[1:], "\"`]'"[k]); e >= 0 {
			return def[1 : 1+e], def[2+e:]
		}
		return "", ""
	}
	if k := strings.IndexAny(def, " \t\r\n"); k >= 0 {
		return def[:k], def[k:]
	}
	return def, ""
}
