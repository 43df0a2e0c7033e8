package loader

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// buffers are anonymous mappings: page aligned, invisible to Go's collector, never moved, and zero where they are new.
// A mapping that came back is given out again; the idle ones are bounded in bytes.
type buffers struct {
	mu      sync.Mutex
	free    map[int][][]byte // by size
	idle    int64
	maxIdle int64
	closed  bool
	inUse   atomic.Int64
	peak    atomic.Int64
	maps    atomic.Int64
	spare   []*buffer
}

// buffer is one mapping, shared by the tensors that lie in it.
type buffer struct {
	pool *buffers
	mem  []byte
	refs atomic.Int32
}

const (
	pageSize = 4096
	hugePage = 2 << 20
)

func newBuffers(maxIdle int64) *buffers {
	return &buffers{free: map[int][][]byte{}, maxIdle: maxIdle}
}

// sizeClass rounds up by at most an eighth, to whole pages (huge pages from 16 MiB on), so that near sizes share buffers.
func sizeClass(n int) int {
	if n <= pageSize {
		return pageSize
	}
	step := max(pageSize, 1<<max(bits.Len(uint(n-1))-4, 0))
	if n >= 8*hugePage {
		step = max(step, hugePage)
	}
	return (n + step - 1) / step * step
}

// get gives a buffer of at least n bytes, with one reference. Its bytes are whatever they were.
func (p *buffers) get(n int) (*buffer, error) {
	size := sizeClass(n)
	p.mu.Lock()
	var mem []byte
	if list := p.free[size]; len(list) > 0 {
		mem = list[len(list)-1]
		p.free[size] = list[:len(list)-1]
		p.idle -= int64(size)
	}
	var b *buffer
	if k := len(p.spare); k > 0 {
		b, p.spare = p.spare[k-1], p.spare[:k-1]
	} else {
		b = &buffer{pool: p}
	}
	p.mu.Unlock()
	if mem == nil {
		m, err := mapMemory(size)
		if err != nil {
			return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "loader", Msg: fmt.Sprintf("no memory for a batch buffer of %d bytes", size), Hint: "a smaller batch_size or prefetch; ulimit -v", Err: err}
		}
		mem = m
		p.maps.Add(1)
	}
	b.mem = mem
	b.refs.Store(1)
	used := p.inUse.Add(int64(size))
	for {
		old := p.peak.Load()
		if used <= old || p.peak.CompareAndSwap(old, used) {
			return b, nil
		}
	}
}

func (b *buffer) ref() *buffer {
	b.refs.Add(1)
	return b
}

func (b *buffer) unref() {
	if b.refs.Add(-1) != 0 {
		return
	}
	p, mem := b.pool, b.mem
	p.inUse.Add(-int64(len(mem)))
	p.mu.Lock()
	keep := !p.closed && p.idle+int64(len(mem)) <= p.maxIdle
	if keep {
		p.free[len(mem)] = append(p.free[len(mem)], mem)
		p.idle += int64(len(mem))
		b.mem = nil
		p.spare = append(p.spare, b)
	}
	p.mu.Unlock()
	if !keep {
		unmapMemory(mem)
	}
}

// close unmaps the idle buffers; those that users hold are unmapped when they come back.
func (p *buffers) close() {
	p.mu.Lock()
	p.closed = true
	free := p.free
	p.free, p.idle, p.spare = nil, 0, nil
	p.mu.Unlock()
	for _, list := range free {
		for _, m := range list {
			unmapMemory(m)
		}
	}
}
