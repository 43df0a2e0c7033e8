// Package handles keeps a bounded number of objects open. These are mostly files that are read in
// pieces, because opening a file again costs more than reading a piece.
//
// # Contract
//
//	handles.H1  The value of a Get stays open until its Put, whatever else is opened or closed.
//	handles.H2  In addition to values in use, at most max values stay open, whose additional bytes
//	            (Grow) are at most the limit. The least recently used are closed first.
//	handles.H3  After Close only values in use stay open, and their last Put closes them. Get still
//	            works, but keeps nothing.
//
// Intuitively, a Pool is an LRU cache of open files whose entries are pinned by Get and unpinned by
// Put.
package handles

import (
	"container/list"
	"errors"
	"io"
	"sync"
)

// Pool keeps values open by key. Use New to create one. Safe for concurrent use.
type Pool[K comparable, T io.Closer] struct {
	mu     sync.Mutex
	open   map[K]*Handle[K, T]
	recent list.List // handles in the map, the most recently used first
	max    int
	limit  int64
	bytes  int64
	closed bool
}

// Handle is an open value in use.
type Handle[K comparable, T io.Closer] struct {
	Value T
	key   K
	refs  int
	bytes int64
	place *list.Element // nil if not in the map; the last Put then closes the value
}

// New returns a pool of at most max values that hold at most limit bytes.
func New[K comparable, T io.Closer](max int, limit int64) *Pool[K, T] {
	return &Pool[K, T]{open: map[K]*Handle[K, T]{}, max: max, limit: limit}
}

// Peek returns the value of a key if it is open, and nil otherwise. The caller must call Put for a
// value.
func (p *Pool[K, T]) Peek(key K) *Handle[K, T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.open[key]
	if h != nil {
		h.refs++
		p.recent.MoveToFront(h.place)
	}
	return h
}

// Get returns the value of a key. It calls open if the value is not open. The caller must call Put.
func (p *Pool[K, T]) Get(key K, open func() (T, error)) (*Handle[K, T], error) {
	if h := p.Peek(key); h != nil {
		return h, nil
	}
	v, err := open()
	if err != nil {
		return nil, err
	}
	h := &Handle[K, T]{Value: v, key: key, refs: 1}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.open[key] != nil {
		return h, nil // Another goroutine was faster. This value is used by its caller only.
	}
	p.open[key] = h
	h.place = p.recent.PushFront(h)
	p.closeOldest()
	return h, nil
}

// closeOldest closes the least recently used values above the limits. Caller must hold p.mu.
func (p *Pool[K, T]) closeOldest() {
	for (len(p.open) > p.max || p.bytes > p.limit) && p.recent.Len() > 1 {
		_ = p.removeHandle(p.recent.Back().Value.(*Handle[K, T]))
	}
}

// removeHandle removes a handle from the map, and closes its value if it is unused. Caller must
// hold p.mu.
func (p *Pool[K, T]) removeHandle(h *Handle[K, T]) error {
	delete(p.open, h.key)
	p.recent.Remove(h.place)
	h.place = nil
	p.bytes -= h.bytes
	if h.refs == 0 {
		return h.Value.Close()
	}
	return nil
}

// Put ends the use of a handle by the caller.
func (p *Pool[K, T]) Put(h *Handle[K, T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.refs--; h.refs == 0 && h.place == nil {
		_ = h.Value.Close()
	}
}

// Grow records that a value in use holds by more bytes until it is closed.
func (p *Pool[K, T]) Grow(h *Handle[K, T], by int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.bytes += by
	if h.place != nil {
		p.bytes += by
		p.closeOldest()
	}
}

// Limit lowers the limit of the values' bytes.
func (p *Pool[K, T]) Limit(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = min(p.limit, bytes)
	p.closeOldest()
}

// Forget closes all unused values. The pool remains usable.
func (p *Pool[K, T]) Forget() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, h := range p.open {
		errs = append(errs, p.removeHandle(h))
	}
	return errors.Join(errs...)
}

// Close closes all unused values, and makes later values close at their last Put.
func (p *Pool[K, T]) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.Forget()
}
