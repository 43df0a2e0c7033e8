package h5

import (
	"context"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/internal/guard/leafcache"

	"github.com/goatnote-inc/robocache/internal/lru"
)

// Cache holds decoded rows, chunk indexes and pieces of metadata of any number of files. Its size
// stays below a budget in bytes.
type Cache struct {
	entries *lru.Cache[key, any]
	files   atomic.Uint32
}

// CacheStats counts hits, misses and evictions of a cache.
type CacheStats = lru.Stats

// kind is the type of a cache entry.
type kind uint8

const (
	kindBand  kind = iota // decoded rows; part is the number of the band
	kindIndex             // chunk index of a data set
	kindBlock             // block of the file; part is its number
	kindHeap              // global heap collection
)

type key struct {
	file uint32
	kind kind
	addr uint64
	part int64
}

// entryOverhead is the memory that a cache entry takes in addition to its own bytes.
const entryOverhead = 160

// NewCache returns a cache with a budget of the given number of bytes.
func NewCache(budget int64) *Cache { return &Cache{entries: lru.New[key, any](budget)} }

// Stats returns the counters of the cache.
func (c *Cache) Stats() CacheStats { return c.entries.Stats() }

// Limit lowers the budget.
func (c *Cache) Limit(budget int64) { c.entries.Limit(budget) }

// Budget returns the maximum number of bytes that the cache holds.
func (c *Cache) Budget() int64 { return c.entries.Stats().Budget }

// loadCached returns the entry with key k, and calls load if the cache does not have it. If load
// fails, the read fails for every caller that waits for the entry.
func loadCached[T any](ctx context.Context, f *File, k key, load func() (T, int64)) T {
	return leafcache.Load(ctx, f.cache.entries, k, func() (any, int64) {
		v, n := load()
		return v, n + entryOverhead
	}).(T)
}
