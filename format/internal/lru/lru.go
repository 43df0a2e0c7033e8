// Package lru keeps what was loaded below a budget in bytes.
//
// # Contract
//
//	C1  One goroutine loads a value, others that want it wait. What failed is not kept.
//	C2  Values are immutable: one that was let go stays good for who holds it. Where they are made of memory that is used again, Gone hears
//	    of each value that the cache lets go of, once; who else uses it is for them to count.
//	C3  At most the budget is kept, least recently used out first; a value above the budget is given and not kept.
//	C4  A load that its own caller cancelled is tried again by who waits.
package lru

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// Cache is a cache of values by key.
type Cache[K comparable, V any] struct {
	mu     sync.Mutex
	items  map[K]*item[K, V]
	recent list.List
	bytes  int64
	budget int64
	stats  Stats
	gone   func(V)
}

// Stats counts what a cache did.
type Stats struct {
	Hits, Loads, Evictions, Bytes, Peak, Budget int64
}

type item[K comparable, V any] struct {
	key   K
	done  chan struct{}
	value V
	err   error
	size  int64
	place *list.Element
}

// New makes a cache of so many bytes.
func New[K comparable, V any](budget int64) *Cache[K, V] {
	return &Cache[K, V]{items: map[K]*item[K, V]{}, budget: budget}
}

// Gone sets what hears of a value that the cache no longer holds, or did not keep. It is called with the cache locked: it does not call back.
func (c *Cache[K, V]) Gone(fn func(V)) { c.gone = fn }

// letGo tells of a value. c.mu is held.
func (c *Cache[K, V]) letGo(v V) {
	if c.gone != nil {
		c.gone(v)
	}
}

var errPanicked = errors.New("the load failed")

// Get gives a value, loading it where it is not there. load says how large it is.
func (c *Cache[K, V]) Get(ctx context.Context, key K, load func() (V, int64, error)) (V, error) {
	var zero V
	for {
		c.mu.Lock()
		if it, ok := c.items[key]; ok {
			if it.place != nil {
				c.recent.MoveToFront(it.place)
				c.stats.Hits++
				c.mu.Unlock()
				return it.value, nil
			}
			c.mu.Unlock()
			select {
			case <-it.done:
			case <-ctx.Done():
				return zero, ctx.Err()
			}
			if it.err == nil {
				return it.value, nil
			}
			if errors.Is(it.err, context.Canceled) || errors.Is(it.err, context.DeadlineExceeded) {
				if err := ctx.Err(); err != nil {
					return zero, err
				}
				continue
			}
			return zero, it.err
		}
		it := &item[K, V]{key: key, done: make(chan struct{})}
		c.items[key] = it
		c.stats.Loads++
		c.mu.Unlock()
		c.fill(it, load)
		return it.value, it.err
	}
}

// fill runs the load. Waiters are released also when it panics; the panic goes on to the caller's border.
func (c *Cache[K, V]) fill(it *item[K, V], load func() (V, int64, error)) {
	it.err = errPanicked
	defer func() {
		c.mu.Lock()
		if it.err != nil {
			delete(c.items, it.key)
		} else {
			c.keep(it)
		}
		c.mu.Unlock()
		close(it.done)
	}()
	it.value, it.size, it.err = load()
}

// keep puts a loaded item into the list and lets go of the least recently used. c.mu is held.
func (c *Cache[K, V]) keep(it *item[K, V]) {
	if it.size > c.budget {
		delete(c.items, it.key)
		c.letGo(it.value)
		return
	}
	it.place = c.recent.PushFront(it)
	c.bytes += it.size
	c.shrink()
	c.stats.Peak = max(c.stats.Peak, c.bytes)
}

// shrink lets go of the least recently used. c.mu is held.
func (c *Cache[K, V]) shrink() {
	for c.bytes > c.budget {
		old := c.recent.Remove(c.recent.Back()).(*item[K, V])
		delete(c.items, old.key)
		c.bytes -= old.size
		c.stats.Evictions++
		c.letGo(old.value)
	}
}

// Limit lowers the budget; it never raises it.
func (c *Cache[K, V]) Limit(budget int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = min(c.budget, budget)
	c.shrink()
}

// Peek gives a value that is there.
func (c *Cache[K, V]) Peek(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.items[key]; it != nil && it.place != nil {
		c.recent.MoveToFront(it.place)
		c.stats.Hits++
		return it.value, true
	}
	var zero V
	return zero, false
}

// Grow tells that a value that is kept takes more memory than when it was loaded: it was unfolded further.
func (c *Cache[K, V]) Grow(key K, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.items[key]; it != nil && it.place != nil {
		it.size += by
		c.bytes += by
		c.shrink()
		c.stats.Peak = max(c.stats.Peak, c.bytes)
	}
}

// Drop lets go of one value, where it is kept.
func (c *Cache[K, V]) Drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.items[key]; it != nil && it.place != nil {
		c.recent.Remove(it.place)
		c.bytes -= it.size
		delete(c.items, key)
		c.letGo(it.value)
	}
}

// Put keeps a value that was made elsewhere, where its key is free.
func (c *Cache[K, V]) Put(key K, value V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.items[key]; ok {
		return
	}
	it := &item[K, V]{key: key, value: value, size: size, done: make(chan struct{})}
	close(it.done)
	c.items[key] = it
	c.keep(it)
}

// Clear lets go of all.
func (c *Cache[K, V]) Clear() { c.Forget(func(K) bool { return true }) }

// Forget lets go of the values whose keys are so.
func (c *Cache[K, V]) Forget(so func(key K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, it := range c.items {
		if it.place != nil && so(k) {
			c.recent.Remove(it.place)
			c.bytes -= it.size
			delete(c.items, k)
			c.letGo(it.value)
		}
	}
}

// Stats says what the cache did so far.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Budget = c.bytes, c.budget
	return s
}
