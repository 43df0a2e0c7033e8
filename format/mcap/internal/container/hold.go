package container

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// Records holds the records of a chunk. They are valid until Release, which makes their buffer
// available for other chunks.
type Records struct {
	b       []byte
	buf     *[]byte // buffer that contains b
	pool    *bufferPool
	isWhole bool // whether b is the whole chunk and not only its beginning
	uses    atomic.Int32
}

// Bytes returns the records, which must not be modified.
func (r *Records) Bytes() []byte { return r.b }

// Release releases the records. It does nothing for nil.
func (r *Records) Release() {
	if r != nil && r.uses.Add(-1) == 0 {
		if Poison {
			clear((*r.buf)[:cap(*r.buf)])
		}
		r.pool.Put(r.buf)
	}
}

// tryAcquire adds a user. It returns false if the records were already released by all users.
func (r *Records) tryAcquire() bool {
	for {
		n := r.uses.Load()
		if n == 0 {
			return false
		}
		if r.uses.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Poison makes released records zero, so that tests detect reads after Release.
var Poison bool

// bufferPool is a pool of buffers of similar size.
type bufferPool struct{ sync.Pool }

var (
	rawBuffers    bufferPool // for compressed records, used briefly
	recordBuffers bufferPool // for decompressed records
)

// borrowBuffer returns a buffer of n bytes. It does not use a buffer that is much too large,
// because caches count the capacity.
func (p *bufferPool) borrowBuffer(n int) *[]byte {
	if b, ok := p.Get().(*[]byte); ok {
		if cap(*b) >= n && cap(*b) <= n+n/2+64<<10 {
			*b = (*b)[:n]
			return b
		}
		if cap(*b) >= n {
			defer p.Put(b)
		}
	}
	b := make([]byte, n)
	return &b
}

// readChunk reads and decompresses a chunk. raw is its record if it was fetched with others, or
// nil. If the chunk was read completely before and need > 0, only about need bytes are
// decompressed.
func (f *File) readChunk(ctx context.Context, i int, need int64, raw *[]byte) *Records {
	k := &f.Chunks[i]
	if raw == nil {
		raw = rawBuffers.borrowBuffer(int(k.Length))
		guard.Check(f.ranged.ReadAt(ctx, *raw, k.Offset))
	}
	r := &Records{b: *raw, buf: raw, pool: &rawBuffers, isWhole: true}
	r.uses.Store(1)
	if k.Bare {
		return r
	}
	body, crc := chunkBody(*raw, k, f.limits)
	if k.Compression != None {
		defer rawBuffers.Put(raw)
		_, whole := f.wholeChunks.Load(i)
		r.buf, r.pool = recordBuffers.borrowBuffer(int(k.Size)), &recordBuffers
		if need > 0 && need < k.Size && !k.Cut && whole {
			if out := decompressPart(k.Compression, body, *r.buf, int(k.Size), int(need)); out !=
				nil {
				r.b, r.isWhole = out, int64(len(out)) == k.Size
				return r
			}
		}
	}
	r.b = openChunk(body, crc, k, *r.buf)
	f.wholeChunks.Store(i, true)
	return r
}
