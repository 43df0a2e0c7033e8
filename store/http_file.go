package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// httpFile is a file on a server, pinned to the version that Open found.
type httpFile struct {
	h            *HTTP
	name         string
	pin          pin
	head         []byte // bytes that Open read; never modified
	closed       atomic.Bool
	once         sync.Once
	cachedReader robocache.Ranged // the same file, read through the store's cache
}

func (f *httpFile) Size() int64     { return f.pin.size }
func (f *httpFile) Version() string { return f.pin.versionText() }

// ReadAt fills p with one request. After a reset or a short body it requests the rest. If the store
// has a cache, ReadAt requests only the missing blocks.
func (f *httpFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.closed.Load() {
		return closedError("read", f.h.uri, f.name)
	}
	if isOutside(off, len(p), f.pin.size) {
		return rangeError(f.h.uri, f.name, off, len(p), f.pin.size)
	}
	if k := f.h.readCache.Load(); k.currentCache() != nil {
		f.once.Do(func() {
			f.cachedReader = CachedRanged(uncachedFile{f}, f.h.cacheID(f.name), k, k.blockSize)
		})
		return f.cachedReader.ReadAt(ctx, p, off)
	}
	return f.readUncached(ctx, p, off)
}

// uncachedFile is an httpFile that reads without a cache.
type uncachedFile struct{ *httpFile }

func (f uncachedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	return f.readUncached(ctx, p, off)
}

// readUncached fills p from the bytes that Open read, or with a request. p must be inside the file.
func (f *httpFile) readUncached(ctx context.Context, p []byte, off int64) error {
	if off <= int64(len(f.head)-len(p)) {
		copy(p, f.head[off:])
		return nil
	}
	done := 0
	return f.h.runOperation(ctx, "read", f.name, int64(len(p)), func(a *attempt) error {
		if done == len(p) {
			return nil
		}
		r, err := a.getRange(f.name, off+int64(done), off+int64(len(p)), &f.pin)
		if err != nil {
			return err
		}
		if !r.ranged {
			return unsupportedError(
				"read",
				f.h.uri,
				"the server stopped answering ranges",
				"look for a proxy between here and the server",
			)
		}
		n, err := a.fillBuffer(r, p[done:])
		done += n
		return err
	})
}

// A request costs about as much as 256 KiB. More than about 16 streams to a host only add latency.
const (
	httpGap      = 256 << 10
	httpParallel = 16
)

// ReadRanges fills many spans with few requests, several of them at once.
func (f *httpFile) ReadRanges(ctx context.Context, spans []Span) error {
	return readMerged(ctx, f, spans, httpGap, httpParallel)
}

func (f *httpFile) Close() error {
	f.closed.Store(true)
	return nil
}
