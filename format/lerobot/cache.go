package lerobot

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// unit names one thing that is decoded as a whole.
type unit struct {
	file, group int32
	col         int32 // column number, or one of the unit… constants
	page        int32 // 1 + page for columns that are read by the page, -1 for the list of pages
}

const (
	unitFooter = -1 - iota
	unitProof
	unitTimes
	unitCluster // page is its number
)

// cache keeps decoded units below a budget in bytes, least recently used out first. One goroutine loads a unit; others
// that want it wait. Values are immutable, so an evicted one stays good for who holds it.
type cache struct {
	mu     sync.Mutex
	units  map[unit]*entry
	recent list.List
	bytes  int64
	budget int64
	stats  CacheStats
}

type entry struct {
	key   unit
	done  chan struct{}
	value any
	err   error
	size  int64
	place *list.Element
}

// CacheStats counts what the table cache did.
type CacheStats struct {
	Hits, Loads, Evictions, Bytes, Peak, Budget int64
}

// limit lowers the budget.
func (c *cache) limit(budget int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = min(c.budget, budget)
	c.shrink()
}

func newCache(budget int64) *cache { return &cache{units: map[unit]*entry{}, budget: budget} }

// get gives the unit, loading it where it is not there. A load that was cancelled by its own caller is tried again by a waiter.
func (c *cache) get(ctx context.Context, key unit, load func() (any, int64, error)) (any, error) {
	for {
		c.mu.Lock()
		e, ok := c.units[key]
		if ok {
			if e.place != nil {
				c.recent.MoveToFront(e.place)
				c.stats.Hits++
				c.mu.Unlock()
				return e.value, nil
			}
			c.mu.Unlock()
			select {
			case <-e.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if e.err == nil {
				return e.value, nil
			}
			if errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				continue
			}
			return nil, e.err
		}
		e = &entry{key: key, done: make(chan struct{})}
		c.units[key] = e
		c.stats.Loads++
		c.mu.Unlock()
		c.fill(e, load)
		return e.value, e.err
	}
}

// peek gives a unit that is there.
func (c *cache) peek(key unit) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.units[key]; e != nil && e.place != nil {
		return e.value, true
	}
	return nil, false
}

// fill runs the load. Waiters are released also when it panics; the panic goes on to the package's border.
func (c *cache) fill(e *entry, load func() (any, int64, error)) {
	e.err = errPanicked
	defer func() {
		c.mu.Lock()
		if e.err != nil {
			delete(c.units, e.key)
		} else {
			e.place = c.recent.PushFront(e)
			c.bytes += e.size
			c.stats.Peak = max(c.stats.Peak, c.bytes)
			c.shrink()
		}
		c.mu.Unlock()
		close(e.done)
	}()
	e.value, e.size, e.err = load()
}

// shrink lets go of the least recently used. c.mu is held.
func (c *cache) shrink() {
	for c.bytes > c.budget && c.recent.Len() > 1 {
		old := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.units, old.key)
		c.bytes -= old.size
		c.stats.Evictions++
	}
}

var errPanicked = errors.New("the load of a table failed")

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.units {
		if e.place != nil {
			c.recent.Remove(e.place)
			c.bytes -= e.size
			delete(c.units, k)
		}
	}
}
