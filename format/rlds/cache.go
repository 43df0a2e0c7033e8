package rlds

import (
	lru "container/list"
	"context"
	"errors"
	"sync"
)

// cache keeps parsed records below a budget in bytes, the least recently used out first. One goroutine loads a record; others that want
// it wait. A record does not change, so one that was let go stays good for who holds it.
type cache struct {
	mu      sync.Mutex
	entries map[int]*entry
	recent  lru.List
	stats   CacheStats
}

type entry struct {
	key   int
	done  chan struct{}
	rec   *record
	err   error
	size  int64
	place *lru.Element
}

// CacheStats counts what the cache of records did.
type CacheStats struct {
	Hits, Loads, Evictions, Bytes, Peak, Budget int64
}

var errPanicked = errors.New("the load of a record failed")

func newCache(budget int64) *cache {
	return &cache{entries: map[int]*entry{}, stats: CacheStats{Budget: budget}}
}

// get gives a record, loading it where it is not there. A load that was cancelled by its own caller is tried again by a waiter.
func (c *cache) get(ctx context.Context, key int, load func() (*record, int64, error)) (*record, error) {
	for {
		c.mu.Lock()
		e := c.entries[key]
		if e == nil {
			e = &entry{key: key, done: make(chan struct{})}
			c.entries[key] = e
			c.stats.Loads++
			c.mu.Unlock()
			c.fill(e, load)
			return e.rec, e.err
		}
		if e.place != nil {
			c.recent.MoveToFront(e.place)
			c.stats.Hits++
			c.mu.Unlock()
			return e.rec, nil
		}
		c.mu.Unlock()
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if e.err == nil {
			return e.rec, nil
		}
		if errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		return nil, e.err
	}
}

// peek gives a record that is there.
func (c *cache) peek(key int) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.place != nil {
		c.recent.MoveToFront(e.place)
		c.stats.Hits++
		return e.rec
	}
	return nil
}

// fill runs the load. Waiters are released also when it panics; the panic goes on to the package's border.
func (c *cache) fill(e *entry, load func() (*record, int64, error)) {
	e.err = errPanicked
	defer func() {
		c.mu.Lock()
		if e.err != nil {
			delete(c.entries, e.key)
		} else {
			e.place = c.recent.PushFront(e)
			c.stats.Bytes += e.size
			c.shrink()
		}
		c.mu.Unlock()
		close(e.done)
	}()
	e.rec, e.size, e.err = load()
}

// grow tells that a record takes more memory than when it was loaded.
func (c *cache) grow(key int, rec *record, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.place != nil && e.rec == rec {
		e.size += by
		c.stats.Bytes += by
		c.shrink()
	}
}

// limit lowers the budget.
func (c *cache) limit(budget int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Budget = min(c.stats.Budget, budget)
	c.shrink()
}

// shrink lets go of the least recently used. c.mu is held.
func (c *cache) shrink() {
	for c.stats.Bytes > c.stats.Budget && c.recent.Len() > 1 {
		old := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, old.key)
		c.stats.Bytes -= old.size
		c.stats.Evictions++
	}
	c.stats.Peak = max(c.stats.Peak, c.stats.Bytes)
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if e.place != nil {
			c.recent.Remove(e.place)
			c.stats.Bytes -= e.size
			delete(c.entries, k)
		}
	}
}
