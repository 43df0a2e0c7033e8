package h5

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Cache keeps what was read and decoded (rows, chunk indexes, pieces of metadata) of any number of files below a budget in bytes, least
// recently used out first. One goroutine loads a thing; others that want it wait. Values never change, so an evicted one stays good for
// who holds it.
type Cache struct {
	mu     sync.Mutex
	things map[key]*thing
	recent list.List
	stats  CacheStats
	files  atomic.Uint32
}

// CacheStats counts what a cache did.
type CacheStats struct {
	Hits, Loads, Evictions, Bytes, Peak, Budget int64
}

// kind is what a key names.
type kind uint8

const (
	kindBand  kind = iota // decoded rows: number of the band
	kindIndex             // where a data set's chunks lie
	kindBlock             // a block of the file: its number
	kindHeap              // a global heap collection
)

type key struct {
	file uint32
	kind kind
	addr uint64
	part int64
}

type thing struct {
	key   key
	done  chan struct{}
	value any
	err   error
	size  int64
	place *list.Element
}

// NewCache makes a cache of so many bytes.
func NewCache(budget int64) *Cache {
	c := &Cache{things: map[key]*thing{}}
	c.stats.Budget = budget
	return c
}

// Stats gives the counts.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Limit lowers the budget.
func (c *Cache) Limit(budget int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Budget = min(c.stats.Budget, budget)
	c.shrink()
}

// Budget is how many bytes it keeps.
func (c *Cache) Budget() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats.Budget
}

// peek gives what is there.
func (c *Cache) peek(k key) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.things[k]
	if t == nil || t.place == nil {
		return nil, false
	}
	c.recent.MoveToFront(t.place)
	c.stats.Hits++
	return t.value, true
}

// get gives the thing, loading it where it is not there. A load that was cancelled by its own caller is tried again by a waiter.
func (c *Cache) get(ctx context.Context, k key, load func() (any, int64, error)) (any, error) {
	for {
		c.mu.Lock()
		t, ok := c.things[k]
		if !ok {
			t = &thing{key: k, done: make(chan struct{})}
			c.things[k] = t
			c.stats.Loads++
			c.mu.Unlock()
			c.fill(t, load)
			return t.value, t.err
		}
		if t.place != nil {
			c.recent.MoveToFront(t.place)
			c.stats.Hits++
			c.mu.Unlock()
			return t.value, nil
		}
		c.mu.Unlock()
		select {
		case <-t.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if t.err == nil {
			return t.value, nil
		}
		if !errors.Is(t.err, context.Canceled) && !errors.Is(t.err, context.DeadlineExceeded) {
			return nil, t.err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

var errPanicked = errors.New("the load of an HDF5 structure failed")

// fill runs the load. Waiters are released also when it panics; the panic goes on to the border of the format.
func (c *Cache) fill(t *thing, load func() (any, int64, error)) {
	t.err = errPanicked
	defer func() {
		c.mu.Lock()
		if t.err != nil {
			delete(c.things, t.key)
		} else {
			t.place = c.recent.PushFront(t)
			c.stats.Bytes += t.size
			c.stats.Peak = max(c.stats.Peak, c.stats.Bytes)
			c.shrink()
		}
		c.mu.Unlock()
		close(t.done)
	}()
	t.value, t.size, t.err = load()
	t.size += 160 // the entry itself
}

// shrink lets go of the least recently used. c.mu is held.
func (c *Cache) shrink() {
	for c.stats.Bytes > c.stats.Budget && c.recent.Len() > 1 {
		c.drop(c.recent.Back().Value.(*thing))
		c.stats.Evictions++
	}
}

func (c *Cache) drop(t *thing) {
	c.recent.Remove(t.place)
	delete(c.things, t.key)
	c.stats.Bytes -= t.size
}

// forget drops all that is kept of a file.
func (c *Cache) forget(file uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, t := range c.things {
		if k.file == file && t.place != nil {
			c.drop(t)
		}
	}
}
