package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// httpFile is a file behind a server, pinned to the version that Open saw.
type httpFile struct {
	h      *HTTP
	name   string
	pin    pin
	head   []byte // what Open read; nobody writes to it
	closed atomic.Bool
	once   sync.Once
	block  robocache.Ranged // the same file, read through the store's cache
}

func (f *httpFile) Size() int64     { return f.pin.size }
func (f *httpFile) Version() string { return f.pin.version() }

// ReadAt fills p with one request, and after a reset or a short body with another for the rest;
// through a cache with those for the blocks that it lacks.
func (f *httpFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.closed.Load() {
		return closed("read", f.h.uri, f.name)
	}
	if outside(off, len(p), f.pin.size) {
		return pastEnd(f.h.uri, f.name, off, len(p), f.pin.size)
	}
	if k := f.h.kept.Load(); k.last() != nil {
		f.once.Do(func() { f.block = CachedRanged(asked{f}, f.h.id(f.name), k, k.block) })
		return f.block.ReadAt(ctx, p, off)
	}
	return f.ask(ctx, p, off)
}

// asked is a file whose reads are requests.
type asked struct{ *httpFile }

func (f asked) ReadAt(ctx context.Context, p []byte, off int64) error { return f.ask(ctx, p, off) }

// ask fills p, which lies in the file, from its beginning that Open read, or with a request.
func (f *httpFile) ask(ctx context.Context, p []byte, off int64) error {
	if off <= int64(len(f.head)-len(p)) {
		copy(p, f.head[off:])
		return nil
	}
	done := 0
	return f.h.do(ctx, "read", f.name, int64(len(p)), func(a *attempt) error {
		if done == len(p) {
			return nil
		}
		r, err := a.get(f.name, off+int64(done), off+int64(len(p)), &f.pin)
		if err != nil {
			return err
		}
		if !r.ranged {
			return unsupported(
				"read",
				f.h.uri,
				"the server stopped answering ranges",
				"look for a proxy between here and the server",
			)
		}
		n, err := a.fill(r, p[done:])
		done += n
		return err
	})
}

// httpGap and httpParallel: a request costs about as much as 256 KiB; more than some streams to a
// host only add latency.
const (
	httpGap      = 256 << 10
	httpParallel = 16
)

// ReadRanges fills many spans with few requests, several at once.
func (f *httpFile) ReadRanges(ctx context.Context, spans []Span) error {
	return readMerged(ctx, f, spans, httpGap, httpParallel)
}

func (f *httpFile) Close() error {
	f.closed.Store(true)
	return nil
}
