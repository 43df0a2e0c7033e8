package storetest

import (
	"context"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Counts holds the counters of a Counter. Failed operations count too.
type Counts struct {
	Opens, Stats, Lists   int64
	Reads, BytesRead      int64 // BytesRead counts successful reads
	Creates, Commits      int64
	Writes, BytesWritten  int64
	Removes               int64
	OpenFiles, UnderWrite int64 // handles that are not closed, writers that are not ended
}

// Requests returns the number of operations that a remote store would receive.
func (c Counts) Requests() int64 {
	return c.Opens + c.Stats + c.Lists + c.Reads + c.Commits + c.Removes
}

// Counter counts the operations on a store. It always implements store.Writable; if the wrapped
// store does not, writing returns ErrUnsupported.
type Counter struct {
	s                                      store.Store
	opens, stats, lists, reads, bytesRead  atomic.Int64
	creates, commits, writes, bytesWritten atomic.Int64
	removes, openFiles, underWrite         atomic.Int64
}

// Counting returns a Counter for a store.
func Counting(s store.Store) *Counter { return &Counter{s: s} }

// Counts returns the current counters.
func (c *Counter) Counts() Counts {
	return Counts{
		Opens:        c.opens.Load(),
		Stats:        c.stats.Load(),
		Lists:        c.lists.Load(),
		Reads:        c.reads.Load(),
		BytesRead:    c.bytesRead.Load(),
		Creates:      c.creates.Load(),
		Commits:      c.commits.Load(),
		Writes:       c.writes.Load(),
		BytesWritten: c.bytesWritten.Load(),
		Removes:      c.removes.Load(),
		OpenFiles:    c.openFiles.Load(),
		UnderWrite:   c.underWrite.Load(),
	}
}

func (c *Counter) URI() string  { return c.s.URI() }
func (c *Counter) Close() error { return store.Close(c.s) }

func (c *Counter) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	c.opens.Add(1)
	f, err := c.s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	c.openFiles.Add(1)
	return &countedFile{Ranged: f, c: c}, nil
}

func (c *Counter) Stat(ctx context.Context, name string) (store.Entry, error) {
	c.stats.Add(1)
	return c.s.Stat(ctx, name)
}

func (c *Counter) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	c.lists.Add(1)
	return c.s.List(ctx, prefix)
}

func (c *Counter) Create(ctx context.Context, name string) (store.Writer, error) {
	return c.create(func(w store.Writable) (store.Writer, error) { return w.Create(ctx, name) })
}

func (c *Counter) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return c.create(
		func(w store.Writable) (store.Writer, error) { return store.CreateNew(ctx, w, name) },
	)
}

func (c *Counter) create(make func(store.Writable) (store.Writer, error)) (store.Writer, error) {
	c.creates.Add(1)
	w, ok := c.s.(store.Writable)
	if !ok {
		return nil, unsupported("create", c.s.URI(), "this store cannot be written", "")
	}
	out, err := make(w)
	if err != nil {
		return nil, err
	}
	c.underWrite.Add(1)
	return &countedWriter{Writer: out, c: c}, nil
}

func (c *Counter) Remove(ctx context.Context, name string) error {
	c.removes.Add(1)
	w, ok := c.s.(store.Writable)
	if !ok {
		return unsupported("remove", c.s.URI(), "this store cannot be written", "")
	}
	return w.Remove(ctx, name)
}

type countedFile struct {
	robocache.Ranged
	c      *Counter
	closed atomic.Bool
}

func (f *countedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	f.c.reads.Add(1)
	err := f.Ranged.ReadAt(ctx, p, off)
	if err == nil {
		f.c.bytesRead.Add(int64(len(p)))
	}
	return err
}

// ReadRanges counts each span as a read, not the merged requests.
func (f *countedFile) ReadRanges(ctx context.Context, spans []store.Span) error {
	f.c.reads.Add(int64(len(spans)))
	err := store.ReadRanges(ctx, f.Ranged, spans)
	if err == nil {
		for _, s := range spans {
			f.c.bytesRead.Add(int64(len(s.P)))
		}
	}
	return err
}

func (f *countedFile) Close() error {
	if f.closed.CompareAndSwap(false, true) {
		f.c.openFiles.Add(-1)
	}
	return f.Ranged.Close()
}

type countedWriter struct {
	store.Writer
	c     *Counter
	ended atomic.Bool
}

func (w *countedWriter) Write(p []byte) (int, error) {
	w.c.writes.Add(1)
	n, err := w.Writer.Write(p)
	w.c.bytesWritten.Add(int64(n))
	return n, err
}

func (w *countedWriter) WriteAt(p []byte, off int64) (int, error) {
	w.c.writes.Add(1)
	n, err := w.Writer.WriteAt(p, off)
	w.c.bytesWritten.Add(int64(n))
	return n, err
}

func (w *countedWriter) end() {
	if w.ended.CompareAndSwap(false, true) {
		w.c.underWrite.Add(-1)
	}
}

func (w *countedWriter) Commit() error {
	w.c.commits.Add(1)
	w.end()
	return w.Writer.Commit()
}

func (w *countedWriter) Abort() {
	w.end()
	w.Writer.Abort()
}

func (c *Counter) Remote() bool        { return robocache.IsRemote(c.s) }
func (f *countedFile) Remote() bool    { return store.Remote(f.Ranged) }
func (f *countedFile) Versioned() bool { return store.Versioned(f.Ranged) }
