package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"syscall"

	"github.com/ncruces/go-sqlite3"

	"github.com/goatnote-inc/robocache"
)

const (
	headSize  = 100
	leastHeap = 32 << 20 // heap of a connection, reserved as address space
	mostHeap  = 1 << 30
)

// Row is one row of a query's result.
type Row = sqlite3.Stmt

// DB is an open file. It is safe for concurrent use.
type DB struct {
	file     robocache.Ranged
	size     int64 // bytes of the whole pages
	wal      []byte
	logPages int // number of pages in the log

	mu      sync.Mutex
	largest int64 // bytes of the largest value known so far
	closed  bool
}

// Conn is one connection to a file. It is not safe for concurrent use.
type Conn struct {
	db    *DB
	heap  int64
	c     *sqlite3.Conn
	src   *source
	stmts map[string]*sqlite3.Stmt
}

// IsDB reports whether head begins like a SQLite 3 file.
func IsDB(head []byte) bool { return len(head) >= 16 && string(head[:16]) == "SQLite format 3\x00" }

// Open reads the header and the schema. wal is the content of the write-ahead log, or nil if there
// is none. Close of the DB does not close f.
func Open(ctx context.Context, f robocache.Ranged, wal []byte) (*DB, error) {
	if f.Size() < headSize {
		return nil, robocache.Malformed("sqlite", nil, "").
			Expected("a head of 100 bytes", strconv.FormatInt(f.Size(), 10)+" bytes")
	}
	head := make([]byte, 18)
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if !IsDB(head) {
		return nil, robocache.Malformed("sqlite", nil, "not a SQLite 3 file")
	}
	d := &DB{file: f, size: f.Size(), wal: wal}
	if page := int64(binary.BigEndian.Uint16(head[16:])); page == 1 {
		d.size -= d.size % 65536
	} else if page > 0 { // SQLite would read the missing part of a cut last page as zeros
		d.size -= d.size % page
	}
	return d, d.Use(ctx, func(c *Conn) error {
		// a log below 32 bytes has no complete header
		err := c.Query("SELECT count(*) FROM sqlite_schema", func(*Row) error { return nil })
		if err != nil || len(wal) < 32 {
			return err
		}
		frames, _, err := c.c.WALCheckpoint("main", sqlite3.CHECKPOINT_NOOP)
		if err != nil {
			return c.classifyError(err)
		}
		pages := map[uint32]bool{}
		size := int(binary.BigEndian.Uint32(wal[8:]))
		for at := 32; frames > 0 && at+4 <= len(wal); at, frames = at+24+size, frames-1 {
			pages[binary.BigEndian.Uint32(wal[at:])] = true
		}
		d.logPages = len(pages)
		return nil
	})
}

// LogPages returns the number of pages that are read from the write-ahead log.
func (d *DB) LogPages() int { return d.logPages }

// Expect announces that values of size bytes will be read. New connections get a heap that can hold
// such a value.
func (d *DB) Expect(size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.largest = max(d.largest, min(size, d.size)) // a value is not larger than its file
}

// heapBytes returns the heap of a new connection. SQLite holds a value and a copy of it.
func (d *DB) heapBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(leastHeap+3*d.largest, mostHeap)
}

// Use runs fn with a connection. A connection on which fn failed is closed.
func (d *DB) Use(ctx context.Context, fn func(c *Conn) error) (err error) {
	c, err := d.acquireConn(ctx)
	if err != nil {
		return err
	}
	isDone := false
	defer func() {
		if isDone && err == nil {
			idle.keepIdle(c)
		} else {
			_ = c.close()
		}
	}()
	defer outOfMemory(&err)
	c.src.ctx = ctx
	c.c.SetInterrupt(ctx)
	err = fn(c)
	isDone = true
	return err
}

// outOfMemory converts a panic of go-sqlite3 to an error. go-sqlite3 panics with the system's error
// if the heap cannot be reserved or enlarged. Other panics are passed on.
func outOfMemory(err *error) {
	switch r := recover().(type) {
	case nil:
	case syscall.Errno:
		*err = robocache.ResourceLimit(
			"sqlite",
			nil,
			"no address space for the heap of a connection",
		).
			WithCause(r).
			WithHint("Raise the limit of the process (ulimit -v), or read fewer files at once.")
	default:
		panic(r)
	}
}

func (d *DB) acquireConn(ctx context.Context) (*Conn, error) {
	heap := d.heapBytes()
	if c := idle.takeIdle(d, heap); c != nil {
		return c, nil
	}
	c, err := d.openConn(ctx, heap)
	if errors.Is(err, robocache.ErrResourceLimit) && idle.closeIdle(nil) {
		c, err = d.openConn(ctx, heap)
	}
	return c, err
}

func (d *DB) openConn(ctx context.Context, heap int64) (_ *Conn, err error) {
	defer outOfMemory(&err)
	c := &Conn{
		db:    d,
		heap:  heap,
		src:   &source{ctx: ctx, file: d.file, size: d.size, wal: d.wal},
		stmts: map[string]*sqlite3.Stmt{},
	}
	name := sources.register(c.src)
	// the files are open after the first read, so the name is no longer needed
	defer sources.at.Delete(name)
	if c.c, err = sqlite3.OpenContext(sqlite3.WithMaxMemory(ctx, heap), "file:"+name+"?vfs="+
		vfsName+"&mode=rw"); err != nil {
		return nil, c.classifyError(err)
	}
	if _, err = c.c.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err == nil {
		// An exclusive lock keeps the index of the log in memory. A writable schema allows reading
		// cut files up to the damage.
		err = c.c.Exec(
			"PRAGMA locking_mode=exclusive; PRAGMA writable_schema=on; PRAGMA " +
				"trusted_schema=off; PRAGMA cell_size_check=on; PRAGMA temp_store=memory; " +
				"PRAGMA query_only=on; SELECT 1 FROM sqlite_schema LIMIT 1",
		)
	}
	if err != nil {
		_ = c.c.Close()
		return nil, c.classifyError(err)
	}
	return c, nil
}

// Close closes the idle connections. A connection in use is closed when it is released.
func (d *DB) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	idle.closeIdle(d)
	return nil
}

func (d *DB) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

func (c *Conn) close() error {
	for _, s := range c.stmts {
		_ = s.Close() // returns the error of the last step again
	}
	return c.c.Close()
}

// Columns returns the columns of a table, or none if there is no such table.
func (c *Conn) Columns(table string) (out []string, err error) {
	err = c.Query(
		"SELECT t.name FROM sqlite_schema s, pragma_table_info(s.name) t WHERE s.type='table' "+
			"AND s.name='"+table+"' AND s.sql NOT LIKE 'CREATE VIRTUAL%'",
		func(r *Row) error {
			out = append(out, r.ColumnText(0))
			return nil
		},
	)
	return out, err
}

// Query calls fn for each row of a query's result. Values of the row are valid until fn returns.
// The prepared query is kept with the connection.
func (c *Conn) Query(sql string, fn func(r *Row) error, args ...int64) error {
	s := c.stmts[sql]
	if s == nil {
		var err error
		if s, _, err = c.c.Prepare(sql); err != nil {
			return c.classifyError(err)
		}
		c.stmts[sql] = s
	}
	for k, v := range args {
		if err := s.BindInt64(k+1, v); err != nil {
			return c.classifyError(err)
		}
	}
	for s.Step() {
		if err := fn(s); err != nil {
			return err
		}
	}
	return c.classifyError(s.Reset())
}

// classifyError returns the cause of an error of SQLite: a failed read of the file, a canceled
// context, a resource limit, or a malformed file.
func (c *Conn) classifyError(err error) error {
	switch {
	case err == nil:
		return nil
	case c.src.err != nil:
		return c.src.err
	case c.src.ctx.Err() != nil:
		return c.src.ctx.Err()
	case errors.Is(err, sqlite3.NOMEM),
		errors.Is(err, sqlite3.TOOBIG),
		errors.Is(err, sqlite3.FULL):
		return robocache.ResourceLimit("sqlite", nil, "").WithCause(err)
	}
	return robocache.Malformed("sqlite", nil, "").WithCause(err)
}
