package h5

import (
	"context"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/internal/guard/leafcache"

	"github.com/goatnote-inc/robocache/internal/lru"
)

// Cache keeps what was read and decoded (rows, chunk indexes, pieces of metadata) of any number of
// files below a budget in bytes.
type Cache struct {
	things *lru.Cache[key, any]
	files  atomic.Uint32
}

// CacheStats counts what a cache did.
type CacheStats = lru.Stats

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

// entry is what a thing takes besides its own bytes.
const entry = 160

// NewCache makes a cache of so many bytes.
func NewCache(budget int64) *Cache { return &Cache{things: lru.New[key, any](budget)} }

// Stats gives the counts.
func (c *Cache) Stats() CacheStats { return c.things.Stats() }

// Limit lowers the budget.
func (c *Cache) Limit(budget int64) { c.things.Limit(budget) }

// Budget is how many bytes it keeps.
func (c *Cache) Budget() int64 { return c.things.Stats().Budget }

// cached gives a thing of a file, loading it where it is not there. What fails in the load ends the
// reading, for all who wait for it.
func cached[T any](ctx context.Context, f *File, k key, load func() (T, int64)) T {
	return leafcache.Load(ctx, f.cache.things, k, func() (any, int64) {
		v, n := load()
		return v, n + entry
	}).(T)
}
