package container

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// Records are the records of a chunk, held: they stand until Release, and are then used again for
// others.
type Records struct {
	b    []byte
	buf  *[]byte // what b is of
	from *pool
	all  bool // else the chunk goes on behind b
	uses atomic.Int32
}

// Bytes gives the records. They are not changed.
func (r *Records) Bytes() []byte { return r.b }

// Release gives them back; nil has none.
func (r *Records) Release() {
	if r != nil && r.uses.Add(-1) == 0 {
		if Poison {
			clear((*r.buf)[:cap(*r.buf)])
		}
		r.from.Put(r.buf)
	}
}

// acquire holds them once more; false where nobody does any longer.
func (r *Records) acquire() bool {
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

// Poison makes tests see who reads records that were given back: they are zeros.
var Poison bool

// pool keeps buffers of about one size.
type pool struct{ sync.Pool }

var (
	raws   pool // for what is read, a moment each
	opened pool // for records
)

// borrow gives a buffer. One that is much too large is left to others: caches count what they hold.
func (p *pool) borrow(n int) *[]byte {
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

// read opens a chunk; raw is its record where that was fetched with others, else nil. Of one that
// was found whole before, need > 0 takes no more than it has to for so many bytes.
func (f *File) read(ctx context.Context, i int, need int64, raw *[]byte) *Records {
	k := &f.Chunks[i]
	if raw == nil {
		raw = raws.borrow(int(k.Length))
		guard.Check(f.r.ReadAt(ctx, *raw, k.Offset))
	}
	r := &Records{b: *raw, buf: raw, from: &raws, all: true}
	r.uses.Store(1)
	if k.Bare {
		return r
	}
	body, crc := bodyOf(*raw, k, f.lim)
	if k.Compression != None {
		defer raws.Put(raw)
		_, whole := f.whole.Load(i)
		r.buf, r.from = opened.borrow(int(k.Size)), &opened
		if need > 0 && need < k.Size && !k.Cut && whole {
			if out := decompressPart(
				k.Compression,
				body,
				*r.buf,
				int(k.Size),
				int(need),
			); out != nil {
				r.b, r.all = out, int64(len(out)) == k.Size
				return r
			}
		}
	}
	r.b = openChunk(body, crc, k, *r.buf)
	f.whole.Store(i, true)
	return r
}
