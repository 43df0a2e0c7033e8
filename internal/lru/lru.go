// Package lru implements a cache of loaded values with a budget in bytes.
//
// # Contract
//
//	lru.C1  One goroutine loads a value; other callers of Get for the same key wait for it.
//	        Failed loads are not cached.
//	lru.C2  Values are immutable and remain valid for their holders after eviction. If values use
//	        memory that is reused, the function set with Gone is called once for each value that
//	        the cache removes. The owner of the memory counts its other users.
//	lru.C3  The cached values take at most the budget; the least recently used ones are evicted
//	        first. A value larger than the budget is returned and not cached.
//	lru.C4  If a load fails because its own caller was canceled, a waiting caller repeats the
//	        load.
//	lru.C5  A hit takes no lock and writes no memory that other cores read, so that hits scale
//	        with cores. All uses between two insertions therefore count as equally recent.
package lru

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/internal/crash"
)

// Cache is a cache of values by key. Safe for concurrent use.
type Cache[K comparable, V any] struct {
	items      sync.Map     // K → *item[K, V]
	insertions atomic.Int64 // counts insertions; it is the clock of lru.C3

	mu sync.Mutex // guards the fields below
	// cached items, *item[K, V]; the order is updated when an item must be evicted
	recent   list.List
	bytes    int64
	budget   int64
	stats    Stats
	onRemove func(V)
}

// Stats holds the counters of a cache, in bytes except for Loads and Evictions.
type Stats struct {
	Loads, Evictions, Bytes, Peak, Budget int64
}

type item[K comparable, V any] struct {
	key      K
	loaded   atomic.Bool // value may be read without waiting
	lastUsed atomic.Int64
	done     chan struct{}
	value    V
	err      error

	// The fields below are guarded by Cache.mu.
	size        int64
	listedUse   int64         // value of lastUsed when the item was moved to the front of recent
	listElement *list.Element // nil if the item is not cached
}

// New returns a cache with a budget in bytes.
func New[K comparable, V any](budget int64) *Cache[K, V] {
	return &Cache[K, V]{budget: budget, onRemove: func(V) {}}
}

// Gone sets the function that is called with each value that the cache removes or does not cache.
// The function is called with the lock of the cache held, so it must not call the cache. Gone must
// be called before the first use of the cache.
func (c *Cache[K, V]) Gone(fn func(V)) { c.onRemove = fn }

// lookupItem returns the item of a key, or nil, and records its use.
func (c *Cache[K, V]) lookupItem(key K) *item[K, V] {
	v, ok := c.items.Load(key)
	if !ok {
		return nil
	}
	it := v.(*item[K, V])
	if now := c.insertions.Load(); it.lastUsed.Load() != now {
		it.lastUsed.Store(now)
	}
	return it
}

// Get returns the value of a key. On a miss it calls load, which returns the value and its size in
// bytes. Blocks while another goroutine loads the same key, or until ctx is canceled.
func (c *Cache[K, V]) Get(ctx context.Context, key K, load func() (V, int64, error)) (V, error) {
	var zero V
	for {
		it := c.lookupItem(key)
		if it == nil {
			it = &item[K, V]{key: key, done: make(chan struct{})}
			if _, there := c.items.LoadOrStore(key, it); there {
				continue
			}
			c.runLoad(it, load)
			return it.value, it.err
		}
		if it.loaded.Load() {
			return it.value, nil
		}
		select {
		case <-it.done:
		case <-ctx.Done():
			return zero, ctx.Err()
		}
		if it.err == nil {
			return it.value, nil
		}
		if !errors.Is(it.err, context.Canceled) && !errors.Is(it.err, context.DeadlineExceeded) {
			return zero, it.err
		}
		if err := ctx.Err(); err != nil {
			return zero, err
		}
	}
}

// Load is Get with a zero value on errors.
func (c *Cache[K, V]) Load(ctx context.Context, key K, load func() (V, int64, error)) (V, error) {
	if v, ok := c.Peek(key); ok {
		return v, nil
	}
	return c.Get(ctx, key, func() (V, int64, error) {
		v, size, err := load()
		if err != nil {
			var zero V
			return zero, 0, err
		}
		return v, size, nil
	})
}

// runLoad calls load and releases the waiters. A panic of load becomes an error for its caller and
// for all waiters.
func (c *Cache[K, V]) runLoad(it *item[K, V], load func() (V, int64, error)) {
	defer func() {
		c.mu.Lock()
		c.stats.Loads++
		if it.err != nil {
			c.items.Delete(it.key)
		} else {
			c.insertItem(it)
		}
		c.mu.Unlock()
		close(it.done)
	}()
	defer crash.Recover("load", &it.err)
	it.value, it.size, it.err = load()
}

// insertItem adds a loaded item to the list and evicts items beyond the budget. Caller must hold
// c.mu.
func (c *Cache[K, V]) insertItem(it *item[K, V]) {
	it.loaded.Store(true)
	if it.size > c.budget {
		c.items.Delete(it.key)
		c.onRemove(it.value)
		return
	}
	it.listedUse = c.insertions.Add(1)
	it.lastUsed.Store(it.listedUse)
	it.listElement = c.recent.PushFront(it)
	c.bytes += it.size
	c.evictOverBudget()
	c.stats.Peak = max(c.stats.Peak, c.bytes)
}

// evictOverBudget removes the least recently used items until the budget holds. Caller must hold
// c.mu.
func (c *Cache[K, V]) evictOverBudget() {
	for c.bytes > c.budget {
		old := c.recent.Back().Value.(*item[K, V])
		if used := old.lastUsed.Load(); used != old.listedUse {
			old.listedUse = used
			c.recent.MoveToFront(old.listElement)
			continue
		}
		c.removeItem(old)
		c.stats.Evictions++
	}
}

// removeItem removes a cached item. Caller must hold c.mu.
func (c *Cache[K, V]) removeItem(it *item[K, V]) {
	c.recent.Remove(it.listElement)
	it.listElement = nil
	c.bytes -= it.size
	c.items.Delete(it.key)
	c.onRemove(it.value)
}

// cachedItem returns the item of a key if it is cached, or nil. Caller must hold c.mu.
func (c *Cache[K, V]) cachedItem(key K) *item[K, V] {
	if v, ok := c.items.Load(key); ok && v.(*item[K, V]).listElement != nil {
		return v.(*item[K, V])
	}
	return nil
}

// Limit lowers the budget. It never raises it.
func (c *Cache[K, V]) Limit(budget int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = min(c.budget, budget)
	c.evictOverBudget()
}

// Peek returns the value of a key if it is loaded. It never blocks.
func (c *Cache[K, V]) Peek(key K) (V, bool) {
	if it := c.lookupItem(key); it != nil && it.loaded.Load() {
		return it.value, true
	}
	var zero V
	return zero, false
}

// Grow adds by bytes to the size of a cached value, for a value that takes more memory after it was
// loaded.
func (c *Cache[K, V]) Grow(key K, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.cachedItem(key); it != nil {
		it.size += by
		c.bytes += by
		c.evictOverBudget()
		c.stats.Peak = max(c.stats.Peak, c.bytes)
	}
}

// Drop removes the value of a key if it is cached.
func (c *Cache[K, V]) Drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.cachedItem(key); it != nil {
		c.removeItem(it)
	}
}

// Put caches a value that the caller made. It does nothing if the key is already present.
func (c *Cache[K, V]) Put(key K, value V, size int64) {
	it := &item[K, V]{key: key, value: value, size: size, done: make(chan struct{})}
	close(it.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.items.LoadOrStore(key, it); !there {
		c.insertItem(it)
	}
}

// Clear removes all cached values.
func (c *Cache[K, V]) Clear() { c.Forget(func(K) bool { return true }) }

// Forget removes the cached values for whose key so returns true.
func (c *Cache[K, V]) Forget(so func(key K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.recent.Front(); e != nil; {
		it := e.Value.(*item[K, V])
		e = e.Next()
		if so(it.key) {
			c.removeItem(it)
		}
	}
}

// Stats returns the current counters.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Budget = c.bytes, c.budget
	return s
}
