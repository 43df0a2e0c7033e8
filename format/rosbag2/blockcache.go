package rosbag2

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
)

// SQLite reads a database in pages of 4 KiB. For a remote file, larger blocks are read and the last
// ones are cached, because rows are stored in the order of recording.
const (
	aheadBlock = 256 << 10
	// Minimum number of blocks for all files of a dataset. The blocks are not counted with the
	// indexes of files, because indexes would then be evicted for them.
	aheadKept = 16
)

// readAhead returns a remote file that is read in blocks through cache. It returns a local file
// unchanged.
func readAhead(f robocache.Ranged, name string, cache *blockCache) robocache.Ranged {
	if !store.Remote(f) || cache == nil {
		return f
	}
	return store.CachedRanged(f, name, cache, aheadBlock)
}

// blockCache holds the most recently used blocks of a dataset, up to an eighth of its budget.
type blockCache struct{ blocks *lru.Cache[[16]byte, []byte] }

func newBlockCache(budget int64) *blockCache {
	return &blockCache{lru.New[[16]byte, []byte](max(aheadKept*aheadBlock, budget/8))}
}

// Get returns a block, which must not be modified.
func (c *blockCache) Get(key [16]byte) (data []byte, release func(), ok bool) {
	data, ok = c.blocks.Peek(key)
	return data, func() {}, ok
}

// Put stores a copy of a block.
func (c *blockCache) Put(key [16]byte, data []byte) error {
	c.blocks.Put(key, slices.Clone(data), int64(len(data)))
	return nil
}
