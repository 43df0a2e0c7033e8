// Package buffers holds the memory of batches.
package buffers

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// A Pool's buffers are anonymous mappings, or what an Allocator gives: page aligned, invisible to Go's collector, never moved, and zero where they are new.
// A mapping that came back is given out again. Idle ones make room: together with those in use they stay below limit, where those in use do.
type Pool struct {
	mu     sync.Mutex
	free   map[int][][]byte // by size
	idle   int64
	limit  int64
	memory Allocator
	closed bool
	InUse  atomic.Int64
	Peak   atomic.Int64
	back   chan struct{} // holds a token when a large one came back
}

// Buffer is one mapping, shared by the tensors that lie in it.
type Buffer struct {
	pool *Pool
	Mem  []byte
	refs atomic.Int32
}

// New takes its memory from an allocator; nil: anonymous mappings.
func New(limit int64, memory Allocator) *Pool {
	if memory == nil {
		memory = Mappings{}
	}
	return &Pool{free: map[int][][]byte{}, limit: limit, memory: memory, back: make(chan struct{}, 1)}
}

// SizeClass rounds up by at most an eighth, to whole pages (huge pages from 16 MiB on), so that near sizes share buffers.
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

// Get gives a buffer of at least n bytes, with one reference. Its bytes are whatever they were.
func (p *Pool) Get(n int) (*Buffer, error) {
	size := SizeClass(n)
	p.mu.Lock()
	var mem []byte
	var out [][]byte
	if size >= waitFrom && len(p.free[size]) == 0 && p.InUse.Load() > 0 && p.InUse.Load()+int64(size) > p.limit {
		p.awaitReturn(size)
	}
	if list := p.free[size]; len(list) > 0 {
		mem = list[len(list)-1]
		p.free[size] = list[:len(list)-1]
		p.idle -= int64(size)
	} else {
		out = p.makeRoom(int64(size))
	}
	used := p.InUse.Add(int64(size))
	p.Peak.Store(max(p.Peak.Load(), used))
	p.mu.Unlock()
	for _, m := range out {
		p.memory.Free(m)
	}
	if mem == nil {
		m, err := p.memory.Alloc(size)
		if err != nil {
			p.InUse.Add(-int64(size))
			return nil, robocache.ResourceLimit("loader", nil, "no memory for a batch buffer of %d bytes", size).
				WithCause(err).WithHint("a smaller batch_size or prefetch; ulimit -v")
		}
		mem = m
	}
	b := &Buffer{pool: p, Mem: mem}
	b.refs.Store(1)
	return b, nil
}

const (
	waitFrom   = 32 << 20
	returnWait = 5 * time.Millisecond
)

// awaitReturn waits a moment for a large buffer to come back: a loop lets go of a batch just after it was given the next, and touching
// new memory costs more than the moment. mu is held, but not meanwhile.
func (p *Pool) awaitReturn(size int) {
	select {
	case <-p.back: // of long ago
	default:
	}
	late := time.NewTimer(returnWait)
	defer late.Stop()
	for len(p.free[size]) == 0 {
		p.mu.Unlock()
		over := false
		select {
		case <-p.back:
		case <-late.C:
			over = true
		}
		p.mu.Lock()
		if over || p.closed {
			return
		}
	}
}

// makeRoom takes idle buffers of other sizes out, until one of size more stays below the limit. mu is held.
func (p *Pool) makeRoom(size int64) (out [][]byte) {
	for class, list := range p.free {
		for len(list) > 0 && p.idle+p.InUse.Load()+size > p.limit {
			out = append(out, list[len(list)-1])
			list = list[:len(list)-1]
			p.idle -= int64(class)
		}
		p.free[class] = list
	}
	return out
}

// Ref adds a reference.
func (b *Buffer) Ref() *Buffer {
	b.refs.Add(1)
	return b
}

// Unref takes one back; with the last one the buffer is given out again.
func (b *Buffer) Unref() {
	if b.refs.Add(-1) != 0 {
		return
	}
	p, mem := b.pool, b.Mem
	p.mu.Lock()
	p.InUse.Add(-int64(len(mem)))
	keep := !p.closed && p.idle+p.InUse.Load()+int64(len(mem)) <= p.limit
	if keep {
		p.free[len(mem)] = append(p.free[len(mem)], mem)
		p.idle += int64(len(mem))
	}
	p.mu.Unlock()
	if !keep {
		p.memory.Free(mem)
	}
	select {
	case p.back <- struct{}{}:
	default:
	}
}

// Close unmaps the idle buffers; those that users hold are unmapped when they come back.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	free := p.free
	p.free, p.idle = nil, 0
	p.mu.Unlock()
	for _, list := range free {
		for _, m := range list {
			p.memory.Free(m)
		}
	}
}
