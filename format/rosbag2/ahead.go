package rosbag2

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// A database is read page by page, 4 KiB each. Where each read is a request, blocks are read instead, and the last few are kept: rows lie in
// the order in which they were recorded.
const (
	aheadBlock = 256 << 10
	aheadKept  = 16 // blocks at least, of all files of a dataset: were they counted with each file's index, indexes would be closed for them
)

// ahead reads a distant file in blocks, which kept holds; a file near by is given back as it is.
func ahead(f robocache.Ranged, name string, kept *lastBlocks) robocache.Ranged {
	if !store.Remote(f) || kept == nil {
		return f
	}
	return store.CachedRanged(f, name, kept, aheadBlock)
}

// newLastBlocks makes room for the blocks of a dataset: an eighth of its budget.
func newLastBlocks(budget int64) *lastBlocks {
	return &lastBlocks{at: map[[16]byte][]byte{}, most: max(aheadKept, int(budget/8/aheadBlock))}
}

// lastBlocks keeps the blocks that came last.
type lastBlocks struct {
	mu    sync.Mutex
	at    map[[16]byte][]byte
	order [][16]byte
	most  int
}

// Get gives a block; it is never written to again.
func (c *lastBlocks) Get(key [16]byte) (data []byte, release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, ok = c.at[key]
	return data, func() {}, ok
}

// Put keeps a copy of a block, and lets the oldest go.
func (c *lastBlocks) Put(key [16]byte, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.at[key]; ok {
		return nil
	}
	if len(c.order) == c.most {
		delete(c.at, c.order[0])
		c.order = c.order[1:]
	}
	c.at[key], c.order = slices.Clone(data), append(c.order, key)
	return nil
}
