package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/goatnote-inc/robocache"
)

const (
	headSize = 100
	keptOpen = 4       // connections of a file that nobody uses
	mostHeap = 1 << 30 // of a connection; the largest message has to fit
)

// Row is one row of a query's result.
type Row = sqlite3.Stmt

// DB is an open file. Its methods may be called from many goroutines.
type DB struct {
	file robocache.Ranged
	size int64 // of the whole pages
	wal  []byte
	log  int // pages

	mu     sync.Mutex
	idle   []*Conn
	closed bool
}

// Conn is one connection to a file, for one goroutine.
type Conn struct {
	c     *sqlite3.Conn
	src   *source
	stmts map[string]*sqlite3.Stmt
}

// IsDB says whether the first bytes are those of a SQLite 3 file.
func IsDB(head []byte) bool { return len(head) >= 16 && string(head[:16]) == "SQLite format 3\x00" }

// Open looks at the head and the schema. wal is the write-ahead log beside the file; nil where there is none. The file stays the caller's.
func Open(ctx context.Context, f robocache.Ranged, wal []byte) (*DB, error) {
	if f.Size() < headSize {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Want: "a head of 100 bytes", Got: strconv.FormatInt(f.Size(), 10) + " bytes"}
	}
	head := make([]byte, 18)
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if !IsDB(head) {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Msg: "not a SQLite 3 file"}
	}
	d := &DB{file: f, size: f.Size(), wal: wal}
	if page := int64(binary.BigEndian.Uint16(head[16:])); page == 1 {
		d.size -= d.size % 65536
	} else if page > 0 { // of a page that the file's end cuts, SQLite would take the rest for zeros
		d.size -= d.size % page
	}
	return d, d.Use(ctx, func(c *Conn) error {
		if err := c.Query("SELECT count(*) FROM sqlite_schema", func(*Row) error { return nil }); err != nil || len(wal) == 0 {
			return err
		}
		frames, _, err := c.c.WALCheckpoint("main", sqlite3.CHECKPOINT_NOOP)
		if err != nil {
			return c.failed(err)
		}
		pages := map[uint32]bool{}
		size := int(binary.BigEndian.Uint32(wal[8:]))
		for at := 32; frames > 0 && at+4 <= len(wal); at, frames = at+24+size, frames-1 {
			pages[binary.BigEndian.Uint32(wal[at:])] = true
		}
		d.log = len(pages)
		return nil
	})
}

// LogPages is the number of pages taken from the write-ahead log.
func (d *DB) LogPages() int { return d.log }

// Use runs fn with a connection. One that failed is not used again.
func (d *DB) Use(ctx context.Context, fn func(c *Conn) error) error {
	c, err := d.take(ctx)
	if err != nil {
		return err
	}
	err = errors.New("a panic")
	defer func() {
		if err == nil {
			d.give(c)
		} else {
			_ = c.close()
		}
	}()
	c.src.ctx = ctx
	c.c.SetInterrupt(ctx)
	err = fn(c)
	return err
}

func (d *DB) take(ctx context.Context) (*Conn, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	c := &Conn{src: &source{ctx: ctx, file: d.file, size: d.size, wal: d.wal}, stmts: map[string]*sqlite3.Stmt{}}
	name := sources.add(c.src)
	defer sources.at.Delete(name) // its files are open when it has read once
	var err error
	if c.c, err = sqlite3.OpenContext(sqlite3.WithMaxMemory(ctx, mostHeap), "file:"+name+"?vfs="+vfsName+"&mode=rw"); err != nil {
		return nil, c.failed(err)
	}
	if _, err = c.c.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err == nil {
		// An exclusive lock keeps the log's index in memory. A writable schema lets cut files be read as far as they go.
		err = c.c.Exec("PRAGMA locking_mode=exclusive; PRAGMA writable_schema=on; PRAGMA trusted_schema=off; PRAGMA cell_size_check=on; PRAGMA temp_store=memory; PRAGMA query_only=on; SELECT 1 FROM sqlite_schema LIMIT 1")
	}
	if err != nil {
		_ = c.c.Close()
		return nil, c.failed(err)
	}
	return c, nil
}

func (d *DB) give(c *Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.c.SetInterrupt(context.Background())
	if d.closed || len(d.idle) == keptOpen {
		_ = c.close()
		return
	}
	d.idle = append(d.idle, c)
}

// Close closes the connections; those in use are closed when they are given back.
func (d *DB) Close() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, c := range d.idle {
		err = errors.Join(err, c.close())
	}
	d.idle = nil
	return err
}

func (c *Conn) close() error {
	for _, s := range c.stmts {
		_ = s.Close() // says again what its last step met
	}
	return c.c.Close()
}

// Columns lists the columns of a table; none where there is no such table.
func (c *Conn) Columns(table string) (out []string, err error) {
	err = c.Query("SELECT t.name FROM sqlite_schema s, pragma_table_info(s.name) t WHERE s.type='table' AND s.name='"+table+"' AND s.sql NOT LIKE 'CREATE VIRTUAL%'", func(r *Row) error {
		out = append(out, r.ColumnText(0))
		return nil
	})
	return out, err
}

// Query calls fn for each row of a query's result; what the row gives stands until fn returns. The prepared query is kept with the connection.
func (c *Conn) Query(sql string, fn func(r *Row) error, args ...int64) error {
	s := c.stmts[sql]
	if s == nil {
		var err error
		if s, _, err = c.c.Prepare(sql); err != nil {
			return c.failed(err)
		}
		c.stmts[sql] = s
	}
	for k, v := range args {
		if err := s.BindInt64(k+1, v); err != nil {
			return c.failed(err)
		}
	}
	for s.Step() {
		if err := fn(s); err != nil {
			return err
		}
	}
	return c.failed(s.Reset())
}

// failed gives an error its class: what reading the file met, what the caller ended, or what the file holds.
func (c *Conn) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case c.src.err != nil:
		return c.src.err
	case c.src.ctx.Err() != nil:
		return c.src.ctx.Err()
	case errors.Is(err, sqlite3.NOMEM) || errors.Is(err, sqlite3.TOOBIG) || errors.Is(err, sqlite3.FULL):
		return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "sqlite", Err: err}
	}
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "sqlite", Err: err}
}
