// Package handles keeps a bounded number of things open: files that are read piece by piece, and
// that opening again costs more than a piece.
//
// # Contract
//
//	H1  What Get gave stays open until its Put, whatever else is opened or closed meanwhile.
//	H2  At most max things, and what they hold beside (Grow) at most the limit in bytes, stay open besides those in use; the least recently
//	    used go first.
//	H3  After Close nothing stays open but what is in use, which its last Put closes. Get goes on serving, and keeps nothing.
package handles

import (
	"container/list"
	"errors"
	"io"
	"sync"
)

// Pool keeps things open by key. Its zero value is not usable: New makes one.
type Pool[K comparable, T io.Closer] struct {
	mu     sync.Mutex
	open   map[K]*Handle[K, T]
	recent list.List // of those in the map, the last used in front
	max    int
	limit  int64
	bytes  int64
	shut   bool
}

// Handle is an open thing in use.
type Handle[K comparable, T io.Closer] struct {
	Value T
	key   K
	refs  int
	bytes int64
	place *list.Element // nil: not in the map, closed by the last Put
}

// New makes a pool of max things that hold at most limit bytes.
func New[K comparable, T io.Closer](max int, limit int64) *Pool[K, T] {
	return &Pool[K, T]{open: map[K]*Handle[K, T]{}, max: max, limit: limit}
}

// Peek gives the thing of a key, to be followed by a Put, if it is open; else nil.
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

// Get gives the thing of a key, opened by open where it is not. Each Get is followed by a Put.
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
	if p.shut || p.open[key] != nil {
		return h, nil // another goroutine was faster: this one serves its caller and goes
	}
	p.open[key] = h
	h.place = p.recent.PushFront(h)
	p.trim()
	return h, nil
}

// trim lets go of what was not used for longest. p.mu is held.
func (p *Pool[K, T]) trim() {
	for (len(p.open) > p.max || p.bytes > p.limit) && p.recent.Len() > 1 {
		_ = p.drop(p.recent.Back().Value.(*Handle[K, T]))
	}
}

// drop takes a handle out of the map. p.mu is held.
func (p *Pool[K, T]) drop(h *Handle[K, T]) error {
	delete(p.open, h.key)
	p.recent.Remove(h.place)
	h.place = nil
	p.bytes -= h.bytes
	if h.refs == 0 {
		return h.Value.Close()
	}
	return nil
}

// Put gives a thing back.
func (p *Pool[K, T]) Put(h *Handle[K, T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.refs--; h.refs == 0 && h.place == nil {
		_ = h.Value.Close()
	}
}

// Grow tells that a thing in use holds so many bytes more, until it is closed.
func (p *Pool[K, T]) Grow(h *Handle[K, T], by int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.bytes += by
	if h.place != nil {
		p.bytes += by
		p.trim()
	}
}

// Limit lowers what the things may hold.
func (p *Pool[K, T]) Limit(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = min(p.limit, bytes)
	p.trim()
}

// Forget closes what is not in use. The pool goes on.
func (p *Pool[K, T]) Forget() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, h := range p.open {
		errs = append(errs, p.drop(h))
	}
	return errors.Join(errs...)
}

// Close is the end of the pool.
func (p *Pool[K, T]) Close() error {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	return p.Forget()
}
