package store

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Keep makes a remote store read its files through a cache, including open ones. block is the block
// size; 0 means 128 KiB. Each block is requested once. While the store is open, a file stays at the
// version that was read first. The effect lasts until end is called. If Keep is called several
// times, the last cache is used with the first block size. Local stores are not affected.
func Keep(s Store, c BlockCache, block int64) (end func()) {
	if k, ok := s.(interface {
		Keep(BlockCache, int64) (end func())
	}); ok {
		return k.Keep(c, block)
	}
	return func() {}
}

// Keep implements the function Keep.
func (h *HTTP) Keep(c BlockCache, block int64) (end func()) {
	h.readCache.CompareAndSwap(
		nil,
		&readCache{blockSize: block, pins: map[string]pin{}, folders: map[string]*folderListing{}},
	)
	k := h.readCache.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.caches = append(k.caches, &c) // the address identifies this registration
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.caches = slices.DeleteFunc(k.caches, func(x *BlockCache) bool { return x == &c })
	}
}

// readCache holds the caches of a store and is itself a BlockCache that uses the current one. A nil
// readCache caches nothing.
type readCache struct {
	blockSize int64

	mu      sync.RWMutex
	caches  []*BlockCache
	pins    map[string]pin // versions of files that were read; opening them again needs no request
	folders map[string]*folderListing
	listed  int // number of files in folders
}

// currentCache returns the cache that was added last, or nil.
func (k *readCache) currentCache() BlockCache {
	if k == nil {
		return nil
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.caches) == 0 {
		return nil
	}
	return *k.caches[len(k.caches)-1]
}

// Get reads from the current cache.
func (k *readCache) Get(key [16]byte) (data []byte, release func(), ok bool) {
	if c := k.currentCache(); c != nil {
		return c.Get(key)
	}
	return nil, nil, false
}

// Put writes to the current cache.
func (k *readCache) Put(key [16]byte, data []byte) error {
	if c := k.currentCache(); c != nil {
		return c.Put(key, data)
	}
	return nil
}

// folderListing is the listing of a folder whose files are read whole.
type folderListing struct {
	once  sync.Once
	files map[string]Entry
}

const (
	maxPins = 1 << 18
	// maxListTime limits the time of a listing. A folder that takes longer has so many files that
	// requests for single versions are not slower.
	maxListTime = 3 * time.Second
)

// cacheID identifies a file across processes. It contains no secrets.
func (h *HTTP) cacheID(name string) string { return h.base.Host + " " + h.uri + "/" + name }

// pinnedVersion returns the version at which a file was read.
func (k *readCache) pinnedVersion(name string) (p pin, ok bool) {
	if k.currentCache() == nil {
		return p, false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	p, ok = k.pins[name]
	return p, ok
}

// pinVersion records the version at which a file was read.
func (k *readCache) pinVersion(name string, p pin) {
	if k == nil || p.etag == "" && !p.isSettled {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.pins) < maxPins {
		k.pins[name] = p
	}
}

// cachedWhole returns a file if all of it is cached. Its version is the one that was read before,
// or the one in a listing of its folder. Otherwise it returns nil.
func (k *readCache) cachedWhole(ctx context.Context, h *HTTP, name string, limit int64) []byte {
	if k.currentCache() == nil {
		return nil
	}
	p, ok := k.pinnedVersion(name)
	if !ok && h.options.Versions != nil {
		e := k.listedEntry(ctx, h, name)
		p = pin{size: e.Size, etag: e.Version}
		ok = e.Version != ""
	}
	if !ok || p.size > limit || p.size <= 0 { // a listing may be wrong
		return nil
	}
	data := make([]byte, p.size)
	f := newCachedFile(&httpFile{h: h, name: name, pin: p}, h.cacheID(name), k, k.blockSize)
	for b := int64(0); b*f.block < p.size; b++ {
		if !f.copyCached(b, data, 0) {
			return nil
		}
	}
	return data
}

// putWhole caches a file that was read whole.
func (k *readCache) putWhole(h *HTTP, name string, p pin, data []byte) {
	if k == nil {
		return
	}
	f := &httpFile{h: h, name: name, pin: p}
	if f.Versioned() {
		k.pinVersion(name, p)
		newCachedFile(f, h.cacheID(name), k, k.blockSize).putBlocks(0, data)
	}
}

// listedEntry returns the entry of a file in a listing of its folder. A listing takes one request
// for a thousand chunks of an array; requesting each version would take a thousand.
func (k *readCache) listedEntry(ctx context.Context, h *HTTP, name string) Entry {
	parentOf := func(p string) string {
		dir, _ := path.Split(p)
		return strings.TrimSuffix(dir, "/")
	}
	isNumber := func(dir string) bool { return strings.Trim(path.Base(dir), "0123456789") == "" }
	dir := parentOf(name)
	// Chunks may be in folders with numbers as names; list the folder above them.
	for dir != "" && isNumber(dir) {
		dir = parentOf(dir)
	}
	k.mu.Lock()
	d := k.folders[dir]
	if d == nil {
		d = &folderListing{}
		k.folders[dir] = d
	}
	k.mu.Unlock()
	d.once.Do(func() {
		ctx, stop := context.WithTimeout(ctx, maxListTime)
		defer stop()
		list, err := h.options.Versions(ctx, dir)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil || k.listed+len(list) > maxPins {
			return
		}
		k.listed += len(list)
		d.files = make(map[string]Entry, len(list))
		for _, e := range list {
			d.files[e.Name] = e
		}
	})
	return d.files[name]
}
