package rosbag2

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
)

// A database is read page by page, 4 KiB each. Where each read is a request, blocks are read
// instead, and the last few are kept: rows lie in the order in which they were recorded.
const (
	aheadBlock = 256 << 10
	// blocks at least, of all files of a dataset: were they counted with each file's index, indexes
	// would be closed for them
	aheadKept = 16
)

// ahead reads a distant file in blocks, which kept holds; a file near by is given back as it is.
func ahead(f robocache.Ranged, name string, kept *lastBlocks) robocache.Ranged {
	if !store.Remote(f) || kept == nil {
		return f
	}
	return store.CachedRanged(f, name, kept, aheadBlock)
}

// lastBlocks keeps the blocks of a dataset that came last: an eighth of its budget.
type lastBlocks struct{ kept *lru.Cache[[16]byte, []byte] }

func newLastBlocks(budget int64) *lastBlocks {
	return &lastBlocks{lru.New[[16]byte, []byte](max(aheadKept*aheadBlock, budget/8))}
}

// Get gives a block; it is never written to again.
func (c *lastBlocks) Get(key [16]byte) (data []byte, release func(), ok bool) {
	data, ok = c.kept.Peek(key)
	return data, func() {}, ok
}

// Put keeps a copy of a block.
func (c *lastBlocks) Put(key [16]byte, data []byte) error {
	c.kept.Put(key, slices.Clone(data), int64(len(data)))
	return nil
}
