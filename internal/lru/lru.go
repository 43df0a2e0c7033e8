// Package lru keeps what was loaded below a budget in bytes.
//
// # Contract
//
//	C1  One goroutine loads a value, others that want it wait. What failed is not kept.
//	C2  Values are immutable: one that was let go stays good for who holds it. Where they are made of memory that is used again, Gone hears
//	    of each value that the cache lets go of, once; who else uses it is for them to count.
//	C3  At most the budget is kept, least recently used out first; a value above the budget is given and not kept.
//	C4  A load that its own caller cancelled is tried again by who waits.
//	C5  A hit takes no lock and writes nothing that another core reads, so that many goroutines share a cache: uses between two loads count as one moment.
package lru

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/internal/crash"
)

// Cache is a cache of values by key.
type Cache[K comparable, V any] struct {
	items sync.Map     // K → *item[K, V]
	now   atomic.Int64 // counts what was kept: the time of C3

	mu sync.Mutex // of what follows
	// of *item[K, V] that are kept; the order is brought up to date when one must go
	recent list.List
	bytes  int64
	budget int64
	stats  Stats
	gone   func(V)
}

// Stats counts what a cache did.
type Stats struct {
	Loads, Evictions, Bytes, Peak, Budget int64
}

type item[K comparable, V any] struct {
	key    K
	loaded atomic.Bool // value may be read without waiting
	used   atomic.Int64
	done   chan struct{}
	value  V
	err    error

	// Of the cache's lock.
	size   int64
	listed int64         // used, when it took its place in recent
	place  *list.Element // nil: not kept
}

// New makes a cache of so many bytes.
func New[K comparable, V any](budget int64) *Cache[K, V] {
	return &Cache[K, V]{budget: budget, gone: func(V) {}}
}

// Gone sets what hears of a value that the cache no longer holds, or did not keep. It is called
// with the cache locked: it does not call back.
func (c *Cache[K, V]) Gone(fn func(V)) { c.gone = fn }

// find gives the item of a key, and notes its use.
func (c *Cache[K, V]) find(key K) *item[K, V] {
	v, ok := c.items.Load(key)
	if !ok {
		return nil
	}
	it := v.(*item[K, V])
	if now := c.now.Load(); it.used.Load() != now {
		it.used.Store(now)
	}
	return it
}

// Get gives a value, loading it where it is not there. load says how large it is.
func (c *Cache[K, V]) Get(ctx context.Context, key K, load func() (V, int64, error)) (V, error) {
	var zero V
	for {
		it := c.find(key)
		if it == nil {
			it = &item[K, V]{key: key, done: make(chan struct{})}
			if _, there := c.items.LoadOrStore(key, it); there {
				continue
			}
			c.fill(it, load)
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

// Load returns the value of a key. On a miss it calls load.
func (c *Cache[K, V]) Load(ctx context.Context, key K, load func() (V, int64, error)) (V, error) {
	if v, ok := c.Peek(key); ok {
		return v, nil
	}
	return c.Get(ctx, key, func() (v V, n int64, err error) {
		err = func() error {
			loaded, loadedValue, err := load()
			if err != nil {
				return err
			}
			v, n = loaded, loadedValue
			return nil
		}()
		return v, n, err
	})
}

// fill runs the load and releases the waiters. A panic of the load is an error for its caller and
// for all who wait.
func (c *Cache[K, V]) fill(it *item[K, V], load func() (V, int64, error)) {
	defer func() {
		c.mu.Lock()
		c.stats.Loads++
		if it.err != nil {
			c.items.Delete(it.key)
		} else {
			c.keep(it)
		}
		c.mu.Unlock()
		close(it.done)
	}()
	defer crash.Recover("load", &it.err)
	it.value, it.size, it.err = load()
}

// keep puts a loaded item into the list and lets go of the least recently used. c.mu is held.
func (c *Cache[K, V]) keep(it *item[K, V]) {
	it.loaded.Store(true)
	if it.size > c.budget {
		c.items.Delete(it.key)
		c.gone(it.value)
		return
	}
	it.listed = c.now.Add(1)
	it.used.Store(it.listed)
	it.place = c.recent.PushFront(it)
	c.bytes += it.size
	c.shrink()
	c.stats.Peak = max(c.stats.Peak, c.bytes)
}

// shrink lets go of the least recently used. c.mu is held.
func (c *Cache[K, V]) shrink() {
	for c.bytes > c.budget {
		old := c.recent.Back().Value.(*item[K, V])
		if used := old.used.Load(); used != old.listed {
			old.listed = used
			c.recent.MoveToFront(old.place)
			continue
		}
		c.remove(old)
		c.stats.Evictions++
	}
}

// remove lets go of an item that is kept. c.mu is held.
func (c *Cache[K, V]) remove(it *item[K, V]) {
	c.recent.Remove(it.place)
	it.place = nil
	c.bytes -= it.size
	c.items.Delete(it.key)
	c.gone(it.value)
}

// kept gives the item of a key where it is kept. c.mu is held.
func (c *Cache[K, V]) kept(key K) *item[K, V] {
	if v, ok := c.items.Load(key); ok && v.(*item[K, V]).place != nil {
		return v.(*item[K, V])
	}
	return nil
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
	if it := c.find(key); it != nil && it.loaded.Load() {
		return it.value, true
	}
	var zero V
	return zero, false
}

// Grow tells that a value that is kept takes more memory than when it was loaded: it was unfolded
// further.
func (c *Cache[K, V]) Grow(key K, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.kept(key); it != nil {
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
	if it := c.kept(key); it != nil {
		c.remove(it)
	}
}

// Put keeps a value that was made elsewhere, where its key is free.
func (c *Cache[K, V]) Put(key K, value V, size int64) {
	it := &item[K, V]{key: key, value: value, size: size, done: make(chan struct{})}
	close(it.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.items.LoadOrStore(key, it); !there {
		c.keep(it)
	}
}

// Clear lets go of all.
func (c *Cache[K, V]) Clear() { c.Forget(func(K) bool { return true }) }

// Forget lets go of the values whose keys are so.
func (c *Cache[K, V]) Forget(so func(key K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.recent.Front(); e != nil; {
		it := e.Value.(*item[K, V])
		e = e.Next()
		if so(it.key) {
			c.remove(it)
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
