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
	aheadKept  = 16 // blocks
)

// ahead reads a distant file in blocks, which it also gives; a file near by is given back as it is.
func ahead(f robocache.Ranged, name string) (robocache.Ranged, *lastBlocks) {
	if !store.Remote(f) {
		return f, nil
	}
	kept := &lastBlocks{at: map[[16]byte][]byte{}}
	return store.CachedRanged(f, name, kept, aheadBlock), kept
}

// lastBlocks keeps the blocks that came last.
type lastBlocks struct {
	mu    sync.Mutex
	at    map[[16]byte][]byte
	order [][16]byte
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
	if len(c.order) == aheadKept {
		delete(c.at, c.order[0])
		c.order = c.order[1:]
	}
	c.at[key], c.order = slices.Clone(data), append(c.order, key)
	return nil
}

// held is what the blocks take in memory; nil holds none.
func (c *lastBlocks) held() (n int64) {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.at {
		n += int64(len(b))
	}
	return n
}
