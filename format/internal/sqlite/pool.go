package sqlite

import (
	"context"
	"slices"
	"sync"
)

// idleHeaps limits the heaps of all idle connections of the process.
const idleHeaps = 256 << 20

// connPool keeps idle connections of all files, the most recent last. Safe for concurrent use.
type connPool struct {
	mu    sync.Mutex
	conns []*Conn
	bytes int64
}

var idle connPool

// takeIdle returns an idle connection of d with a heap of at least heap bytes, or nil.
func (p *connPool) takeIdle(d *DB, heap int64) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range slices.Backward(p.conns) {
		if c.db == d && c.heap >= heap {
			p.conns = slices.Delete(p.conns, i, i+1)
			p.bytes -= c.heap
			return c
		}
	}
	return nil
}

// keepIdle keeps c for later use, and closes the oldest connections above idleHeaps.
func (p *connPool) keepIdle(c *Conn) {
	c.c.SetInterrupt(context.Background())
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.bytes += c.heap
	var surplus []*Conn
	for p.bytes > idleHeaps {
		surplus = append(surplus, p.conns[0])
		p.bytes -= p.conns[0].heap
		p.conns = slices.Delete(p.conns, 0, 1)
	}
	p.mu.Unlock()
	for _, c := range surplus {
		_ = c.close()
	}
	if c.db.isClosed() {
		p.closeIdle(c.db)
	}
}

// closeIdle closes the idle connections of d, or of all files if d is nil. It reports whether there
// were any.
func (p *connPool) closeIdle(d *DB) bool {
	p.mu.Lock()
	var closing []*Conn
	p.conns = slices.DeleteFunc(p.conns, func(c *Conn) bool {
		if d != nil && c.db != d {
			return false
		}
		closing = append(closing, c)
		p.bytes -= c.heap
		return true
	})
	p.mu.Unlock()
	for _, c := range closing {
		_ = c.close()
	}
	return len(closing) > 0
}
