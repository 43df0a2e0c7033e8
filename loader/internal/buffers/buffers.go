// Package buffers allocates and reuses the memory of batches.
package buffers

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Pool allocates buffers and reuses them. Buffers begin at a page boundary, are outside the Go heap
// and never move. New ones are zeroed. Idle and used buffers together stay below limit as long as
// the used ones do. Safe for concurrent use.
type Pool struct {
	mu          sync.Mutex
	freeBuffers map[int][][]byte // by size
	idleBytes   int64
	limit       int64
	memory      Allocator
	isClosed    bool
	InUse       atomic.Int64
	Peak        atomic.Int64
	returned    chan struct{} // holds a token after a buffer was released
}

// Buffer is one allocation, shared by tensors through a reference count.
type Buffer struct {
	pool *Pool
	Mem  []byte
	refs atomic.Int32
}

// New returns an empty pool. A nil allocator means anonymous mappings. The caller must call Close.
func New(limit int64, memory Allocator) *Pool {
	if memory == nil {
		memory = Mappings{}
	}
	return &Pool{
		freeBuffers: map[int][][]byte{},
		limit:       limit,
		memory:      memory,
		returned:    make(chan struct{}, 1),
	}
}

// SizeClass rounds n up to whole pages, and to huge pages from 16 MiB on. It adds at most an
// eighth, so that similar sizes share buffers.
func SizeClass(n int) int {
	if n <= PageSize {
		return PageSize
	}
	step := max(PageSize, 1<<max(bits.Len(uint(n-1))-4, 0))
	if n >= 8*HugePage {
		step = max(step, HugePage)
	}
	return (n + step - 1) / step * step
}

// Get returns a buffer of at least n bytes with one reference. Its content is arbitrary. The caller
// must call Unref.
func (p *Pool) Get(n int) (*Buffer, error) {
	size := SizeClass(n)
	p.mu.Lock()
	var mem []byte
	var evicted [][]byte
	inUse := p.InUse.Load()
	exceedsLimit := inUse > 0 && inUse+int64(size) > p.limit
	if size >= minAwaitedBytes && len(p.freeBuffers[size]) == 0 && exceedsLimit {
		p.awaitReturn(size)
	}
	if list := p.freeBuffers[size]; len(list) > 0 {
		mem = list[len(list)-1]
		p.freeBuffers[size] = list[:len(list)-1]
		p.idleBytes -= int64(size)
	} else {
		evicted = p.evictIdle(int64(size))
	}
	used := p.InUse.Add(int64(size))
	p.Peak.Store(max(p.Peak.Load(), used))
	p.mu.Unlock()
	for _, m := range evicted {
		p.memory.Free(m)
	}
	if mem == nil {
		m, err := p.memory.Alloc(size)
		if err != nil {
			p.InUse.Add(-int64(size))
			return nil, robocache.ResourceLimit("loader", nil, "cannot allocate a batch buffer "+
				"of %d bytes", size).
				WithCause(err).
				WithHint("lower batch_size or prefetch, or raise ulimit -v")
		}
		mem = m
	}
	b := &Buffer{pool: p, Mem: mem}
	b.refs.Store(1)
	return b, nil
}

// Limits of awaitReturn: smaller buffers are allocated at once.
const (
	minAwaitedBytes = 32 << 20
	maxReturnWait   = 5 * time.Millisecond
)

// awaitReturn waits up to maxReturnWait for a large buffer to be released. A training loop often
// releases a batch just after it received the next one, and the page faults of new memory cost more
// than this wait. Caller must hold p.mu, which is unlocked during the wait.
func (p *Pool) awaitReturn(size int) {
	select {
	case <-p.returned: // a token from before this call
	default:
	}
	late := time.NewTimer(maxReturnWait)
	defer late.Stop()
	for len(p.freeBuffers[size]) == 0 {
		p.mu.Unlock()
		over := false
		select {
		case <-p.returned:
		case <-late.C:
			over = true
		}
		p.mu.Lock()
		if over || p.isClosed {
			return
		}
	}
}

// evictIdle removes idle buffers of other sizes until size more bytes stay below the limit. It
// returns them for the caller to free. Caller must hold p.mu.
func (p *Pool) evictIdle(size int64) (evicted [][]byte) {
	for class, list := range p.freeBuffers {
		for len(list) > 0 && p.idleBytes+p.InUse.Load()+size > p.limit {
			evicted = append(evicted, list[len(list)-1])
			list = list[:len(list)-1]
			p.idleBytes -= int64(class)
		}
		p.freeBuffers[class] = list
	}
	return evicted
}

// Ref adds a reference and returns b.
func (b *Buffer) Ref() *Buffer {
	b.refs.Add(1)
	return b
}

// Unref removes a reference. The last call makes the buffer available for reuse.
func (b *Buffer) Unref() {
	if b.refs.Add(-1) != 0 {
		return
	}
	p, mem := b.pool, b.Mem
	p.mu.Lock()
	p.InUse.Add(-int64(len(mem)))
	keep := !p.isClosed && p.idleBytes+p.InUse.Load()+int64(len(mem)) <= p.limit
	if keep {
		p.freeBuffers[len(mem)] = append(p.freeBuffers[len(mem)], mem)
		p.idleBytes += int64(len(mem))
	}
	p.mu.Unlock()
	if !keep {
		p.memory.Free(mem)
	}
	select {
	case p.returned <- struct{}{}:
	default:
	}
}

// Close frees the idle buffers. Buffers in use are freed by their last Unref.
func (p *Pool) Close() {
	p.mu.Lock()
	p.isClosed = true
	free := p.freeBuffers
	p.freeBuffers, p.idleBytes = nil, 0
	p.mu.Unlock()
	for _, list := range free {
		for _, m := range list {
			p.memory.Free(m)
		}
	}
}
