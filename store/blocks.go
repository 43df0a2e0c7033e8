package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// BlockCache keeps blocks of bytes by key. All its methods may be called from many goroutines. It
// answers for its own limits and failures: a Put that fails is a block that will be read again.
type BlockCache interface {
	// Get gives a block. data is valid until release, which must be called where ok is true.
	Get(key [16]byte) (data []byte, release func(), ok bool)
	Put(key [16]byte, data []byte) error
}

// defaultBlock holds some ten frames: a block read for one of them serves its neighbours in the
// same epoch.
const defaultBlock = 128 << 10

// CachedRanged reads a file in blocks of the given size (0 = 128 KiB) through a cache, so that each
// is asked for once: readers that want the same block at the same time share one read. id names the
// file beyond this process, without secrets: its dataset's URI and its path.
//
// A block's key is a hash of id, version, size and place, so that another version never meets the
// blocks of this one. A file whose version does not tell it from another of the same size is not
// cached: it is given back as it is. Close closes r; the cache is the caller's.
func CachedRanged(r robocache.Ranged, id string, c BlockCache, block int64) robocache.Ranged {
	if h, ok := r.(*httpFile); c == nil || !Versioned(r) || ok && h.h.kept.Load().last() != nil {
		return r
	}
	return blocksOf(r, id, c, block)
}

func blocksOf(r robocache.Ranged, id string, c BlockCache, block int64) *cachedFile {
	if block <= 0 {
		block = defaultBlock
	}
	f := &cachedFile{
		Ranged:  r,
		cache:   c,
		block:   min(block, maxMerged),
		reading: map[int64]*blockRead{},
	}
	h := sha256.New()
	for _, s := range []string{"robocache block 1", id, r.Version()} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	var n [16]byte
	binary.LittleEndian.PutUint64(n[:], uint64(r.Size()))
	binary.LittleEndian.PutUint64(n[8:], uint64(f.block))
	h.Write(n[:])
	copy(f.seed[:], h.Sum(nil))
	return f
}

// cachedFile is a file read through a BlockCache.
type cachedFile struct {
	robocache.Ranged
	cache  BlockCache
	block  int64
	seed   [32]byte // of every key
	closed atomic.Bool

	mu      sync.Mutex
	reading map[int64]*blockRead // by block
}

// blockRead is a read of neighbouring blocks that others may wait for.
type blockRead struct {
	first, last int64 // blocks, both included
	done        chan struct{}
	data        []byte // from the first block's begin; valid when done, unless err
	err         error
}

// errRetry says that a blockRead brought nothing and says nothing: those who waited look again.
var errRetry = errors.New("look again")

// ReadAt copies what the cache has, and reads what it has not.
func (f *cachedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 || f.closed.Load() || outside(off, len(p), f.Size()) {
		return f.Ranged.ReadAt(ctx, p, off) // which says what is wrong
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	last := (off + int64(len(p)) - 1) / f.block
	for b := off / f.block; b <= last; {
		if f.cached(b, p, off) {
			b++
			continue
		}
		br, own := f.join(b, last, p, off)
		if own {
			f.read(ctx, br)
		} else {
			select {
			case <-br.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch {
		case br.err == nil:
			to := min(br.last, last)
			f.copyOut(p, off, br.data[(b-br.first)*f.block:], b)
			b = to + 1
		case !errors.Is(br.err, errRetry):
			return br.err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
	return nil
}

// ReadRanges reads near spans together and several at once, as the file below would.
func (f *cachedFile) ReadRanges(ctx context.Context, spans []Span) error {
	return readMerged(ctx, f, spans, httpGap, httpParallel)
}

func (f *cachedFile) Close() error {
	f.closed.Store(true)
	return f.Ranged.Close()
}

// Remote is that of the file below: what is not cached is a request.
func (f *cachedFile) Remote() bool { return Remote(f.Ranged) }

func (f *cachedFile) key(b int64) (k [16]byte) {
	var m [40]byte
	copy(m[:], f.seed[:])
	binary.LittleEndian.PutUint64(m[32:], uint64(b))
	sum := sha256.Sum256(m[:])
	copy(k[:], sum[:])
	return k
}

// length is the size of a block: the last one is shorter.
func (f *cachedFile) length(b int64) int64 { return min(f.block, f.Size()-b*f.block) }

// copyOut copies what of p lies in data, which begins with block b.
func (f *cachedFile) copyOut(p []byte, off int64, data []byte, b int64) {
	if at := b*f.block - off; at >= 0 {
		copy(p[at:], data)
	} else {
		copy(p, data[-at:])
	}
}

// cached copies a block's part of p out of the cache. A block of another length than it must have
// counts as none.
func (f *cachedFile) cached(b int64, p []byte, off int64) bool {
	data, release, ok := f.cache.Get(f.key(b))
	if !ok {
		return false
	}
	fits := int64(len(data)) == f.length(b)
	if fits {
		f.copyOut(p, off, data, b)
	}
	release()
	return fits
}

// join gives the read that brings block b: one that is under way, or one of the caller's own for b
// and what follows up to last that is neither under way nor cached.
func (f *cachedFile) join(b, last int64, p []byte, off int64) (br *blockRead, own bool) {
	to := b
	for to < last && (to+2-b)*f.block <= maxMerged && !f.cached(to+1, p, off) {
		to++
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if br := f.reading[b]; br != nil {
		return br, false
	}
	br = &blockRead{first: b, last: b, done: make(chan struct{})}
	f.reading[b] = br
	for br.last < to && f.reading[br.last+1] == nil {
		br.last++
		f.reading[br.last] = br
	}
	return br, true
}

// read reads the blocks of a blockRead and puts them into the cache. It leaves the table when they
// are there, so that a reader that finds neither a blockRead nor a cached block has looked before
// it began.
func (f *cachedFile) read(ctx context.Context, br *blockRead) {
	// unless something better is said below: nobody may be left waiting, not where the file below
	// panics either
	br.err = errRetry
	done := sync.OnceFunc(func() { close(br.done) })
	defer func() {
		done()
		f.mu.Lock()
		defer f.mu.Unlock()
		for b := br.first; b <= br.last; b++ {
			delete(f.reading, b)
		}
	}()
	for b := br.first; b <= br.last; b++ {
		// another read finished since the caller looked
		if data, release, ok := f.cache.Get(f.key(b)); ok {
			whole := int64(len(data)) == f.length(b)
			if release(); whole {
				return
			}
		}
	}
	begin := br.first * f.block
	data := make([]byte, min((br.last+1)*f.block, f.Size())-begin)
	if err := f.Ranged.ReadAt(ctx, data, begin); err != nil {
		if ctx.Err() == nil { // the end of this caller is not that of the others
			br.err = err
		}
		return
	}
	br.data, br.err = data, nil
	done()
	f.put(br.first, data)
}

// put keeps blocks from one on.
func (f *cachedFile) put(b int64, data []byte) {
	for ; len(data) > 0; b++ {
		_ = f.cache.Put(f.key(b), data[:f.length(b)]) // the cache counts its failures
		data = data[f.length(b):]
	}
}
