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

// BlockCache stores blocks of bytes by key. All methods are safe for concurrent use. The cache
// handles its own limits and failures: a block that Put could not store is read again later.
type BlockCache interface {
	// Get returns a block. If ok is true, data is valid until release is called, and the caller
	// must call release.
	Get(key [16]byte) (data []byte, release func(), ok bool)
	// Put stores a block.
	Put(key [16]byte, data []byte) error
}

// defaultBlock is large enough for about ten frames. A block that was read for one frame also
// serves its neighbors in the same epoch.
const defaultBlock = 128 << 10

// CachedRanged returns a file that reads r in blocks through a cache. block is the size of a block,
// and 0 means 128 KiB. Concurrent readers of a block share one read. id identifies the file across
// processes, for example by the dataset's URI and the path. It must contain no secrets.
//
// The key of a block is a hash of id, version, size and position, so different versions never share
// blocks. If the version does not distinguish the file from another one of the same size, r is
// returned unchanged and not cached. Close closes r. The caller owns the cache.
func CachedRanged(r robocache.Ranged, id string, c BlockCache, block int64) robocache.Ranged {
	if c == nil || !Versioned(r) {
		return r
	}
	if h, ok := r.(*httpFile); ok && h.h.readCache.Load().currentCache() != nil {
		return r // its store reads through a cache already
	}
	return newCachedFile(r, id, c, block)
}

// newCachedFile returns r behind a cache. It computes the seed of the block keys, which is a hash of
// everything that identifies the bytes of the file.
func newCachedFile(r robocache.Ranged, id string, c BlockCache, block int64) *cachedFile {
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

// cachedFile is a file that is read through a BlockCache.
type cachedFile struct {
	robocache.Ranged
	cache  BlockCache
	block  int64
	seed   [32]byte // prefix of every key
	closed atomic.Bool

	mu      sync.Mutex
	reading map[int64]*blockRead // by block number
}

// blockRead is a read of neighboring blocks that several callers may wait for.
type blockRead struct {
	first, last int64 // block numbers, both included
	done        chan struct{}
	// from the beginning of the first block; valid when done is closed and err is nil
	data []byte
	err  error
}

// errRetry means that the caller that ran a blockRead was canceled. Other callers that wait for the
// blocks try again.
var errRetry = errors.New("read the block again")

// ReadAt copies blocks from the cache and reads the missing ones.
func (f *cachedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) == 0 || f.closed.Load() || isOutside(off, len(p), f.Size()) {
		return f.Ranged.ReadAt(ctx, p, off) // returns the error
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	last := (off + int64(len(p)) - 1) / f.block
	for b := off / f.block; b <= last; {
		if f.copyCached(b, p, off) {
			b++
			continue
		}
		br, mustRead := f.joinRead(b, last, p, off)
		if mustRead {
			f.readBlocks(ctx, br)
		} else { // another caller reads b
			select {
			case <-br.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch {
		case br.err == nil:
			f.copyBlocks(p, off, br.data[(b-br.first)*f.block:], b)
			b = min(br.last, last) + 1
		case !errors.Is(br.err, errRetry):
			return br.err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
	return nil
}

// ReadRanges merges neighboring spans and reads several at once, like the underlying file.
func (f *cachedFile) ReadRanges(ctx context.Context, spans []Span) error {
	return readMerged(ctx, f, spans, httpGap, httpParallel)
}

func (f *cachedFile) Close() error {
	f.closed.Store(true)
	return f.Ranged.Close()
}

// Remote reports whether the underlying file is remote, because a miss is a request.
func (f *cachedFile) Remote() bool { return Remote(f.Ranged) }

// blockKey returns the key of block b: a hash of the file's seed and b.
func (f *cachedFile) blockKey(b int64) (k [16]byte) {
	var m [40]byte
	copy(m[:], f.seed[:])
	binary.LittleEndian.PutUint64(m[32:], uint64(b))
	sum := sha256.Sum256(m[:])
	copy(k[:], sum[:])
	return k
}

// blockLength returns the size of a block. The last block may be shorter.
func (f *cachedFile) blockLength(b int64) int64 { return min(f.block, f.Size()-b*f.block) }

// copyBlocks copies the part of p that is in data. data begins with block b.
func (f *cachedFile) copyBlocks(p []byte, off int64, data []byte, b int64) {
	if at := b*f.block - off; at >= 0 {
		copy(p[at:], data)
	} else {
		copy(p, data[-at:])
	}
}

// copyCached copies a block's part of p from the cache. It ignores a block whose length is wrong.
func (f *cachedFile) copyCached(b int64, p []byte, off int64) bool {
	data, release, ok := f.cache.Get(f.blockKey(b))
	if !ok {
		return false
	}
	fits := int64(len(data)) == f.blockLength(b)
	if fits {
		f.copyBlocks(p, off, data, b)
	}
	release()
	return fits
}

// joinRead returns the read that provides block b. If no read of b is running, it creates one. The
// new read includes the blocks after b, up to last, until one is cached or being read. mustRead
// reports whether the caller must run the read. p and off are the arguments of the caller's ReadAt.
func (f *cachedFile) joinRead(b, last int64, p []byte, off int64) (br *blockRead, mustRead bool) {
	// Testing whether a block is cached also copies it to p, which ReadAt would do later.
	to := b
	for to < last {
		mergedBytes := (to + 1 - b + 1) * f.block // of blocks b to to+1
		if mergedBytes > maxMerged || f.copyCached(to+1, p, off) {
			break
		}
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

// readBlocks reads the blocks of a blockRead and puts them into the cache. It removes the blockRead
// only after the blocks are cached. A reader that finds neither of them therefore started earlier.
func (f *cachedFile) readBlocks(ctx context.Context, br *blockRead) {
	br.err = errRetry // stays if the underlying file panics, so that waiting readers try again
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
		// Another read may have finished since the caller looked.
		if data, release, ok := f.cache.Get(f.blockKey(b)); ok {
			isWhole := int64(len(data)) == f.blockLength(b)
			release()
			if isWhole {
				return
			}
		}
	}
	begin := br.first * f.block
	data := make([]byte, min((br.last+1)*f.block, f.Size())-begin)
	if err := f.Ranged.ReadAt(ctx, data, begin); err != nil {
		if ctx.Err() == nil { // if only this caller was canceled, the others try again
			br.err = err
		}
		return
	}
	br.data, br.err = data, nil
	done()
	f.putBlocks(br.first, data)
}

// putBlocks caches the blocks of data, starting with block b.
func (f *cachedFile) putBlocks(b int64, data []byte) {
	for ; len(data) > 0; b++ {
		_ = f.cache.Put(f.blockKey(b), data[:f.blockLength(b)]) // the cache counts its failures
		data = data[f.blockLength(b):]
	}
}
