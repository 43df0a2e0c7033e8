package store

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Keep makes a remote store read its files, open ones too, through a cache, in blocks of the given
// size (0 = 128 KiB): each is asked for once. While the store is open, a file that was read stays
// at the version that was read first. It lasts until end is called; of several caches the last
// counts, and the first says the size of blocks. Local stores are left alone.
func Keep(s Store, c BlockCache, block int64) (end func()) {
	if k, ok := s.(interface {
		Keep(BlockCache, int64) (end func())
	}); ok {
		return k.Keep(c, block)
	}
	return func() {}
}

// Keep is for the function of that name.
func (h *HTTP) Keep(c BlockCache, block int64) (end func()) {
	h.kept.CompareAndSwap(
		nil,
		&keeping{block: block, pins: map[string]pin{}, folders: map[string]*folder{}},
	)
	k := h.kept.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.caches = append(k.caches, &c)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.caches = slices.DeleteFunc(k.caches, func(x *BlockCache) bool { return x == &c })
	}
}

// keeping is the caches that a store reads through, and itself the one that counts. A nil one keeps
// nothing.
type keeping struct {
	block int64

	mu      sync.RWMutex
	caches  []*BlockCache
	pins    map[string]pin // of files that were read: opening them again asks nobody
	folders map[string]*folder
	listed  int // files in folders
}

// last is the cache that counts; nil: none.
func (k *keeping) last() BlockCache {
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

// Get is that of the cache that counts.
func (k *keeping) Get(key [16]byte) (data []byte, release func(), ok bool) {
	if c := k.last(); c != nil {
		return c.Get(key)
	}
	return nil, nil, false
}

// Put is that of the cache that counts.
func (k *keeping) Put(key [16]byte, data []byte) error {
	if c := k.last(); c != nil {
		return c.Put(key, data)
	}
	return nil
}

// folder is what a list said of the files of a folder that are read whole.
type folder struct {
	once  sync.Once
	files map[string]Entry
}

const (
	maxPins = 1 << 18
	// a list that takes longer is of so many files that asking for those that are wanted is as good
	listsTake = 3 * time.Second
)

// id names a file beyond this process, without secrets.
func (h *HTTP) id(name string) string { return h.base.Host + " " + h.uri + "/" + name }

// pin is the version that a file was read at.
func (k *keeping) pin(name string) (p pin, ok bool) {
	if k.last() == nil {
		return p, false
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	p, ok = k.pins[name]
	return p, ok
}

// note remembers that a file was read at a version.
func (k *keeping) note(name string, p pin) {
	if k == nil || p.etag == "" && !p.settled {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.pins) < maxPins {
		k.pins[name] = p
	}
}

// whole gives a file that lies whole in the cache, under the version that was read before or that a
// list of its folder names; else nil.
func (k *keeping) whole(ctx context.Context, h *HTTP, name string, limit int64) []byte {
	if k.last() == nil {
		return nil
	}
	p, ok := k.pin(name)
	if !ok && h.opt.Versions != nil {
		e := k.list(ctx, h, name)
		p = pin{size: e.Size, etag: e.Version}
		ok = e.Version != ""
	}
	if !ok || p.size > limit || p.size <= 0 { // a list may say anything
		return nil
	}
	data := make([]byte, p.size)
	f := blocksOf(&httpFile{h: h, name: name, pin: p}, h.id(name), k, k.block)
	for b := int64(0); b*f.block < p.size; b++ {
		if !f.cached(b, data, 0) {
			return nil
		}
	}
	return data
}

// keep keeps a file that was read whole.
func (k *keeping) keep(h *HTTP, name string, p pin, data []byte) {
	if f := (&httpFile{h: h, name: name, pin: p}); k != nil && f.Versioned() {
		k.note(name, p)
		blocksOf(f, h.id(name), k, k.block).put(0, data)
	}
}

// list is what a list says of a file: a request for a thousand chunks of an array, where asking for
// the version of each would be a thousand.
func (k *keeping) list(ctx context.Context, h *HTTP, name string) Entry {
	dir, _ := path.Split(name)
	// chunks in folders called by numbers
	for dir = strings.TrimSuffix(dir, "/"); dir != "" && strings.Trim(path.Base(dir), "0123456789") == ""; {
		dir, _ = path.Split(dir)
		dir = strings.TrimSuffix(dir, "/")
	}
	k.mu.Lock()
	d := k.folders[dir]
	if d == nil {
		d = &folder{}
		k.folders[dir] = d
	}
	k.mu.Unlock()
	d.once.Do(func() {
		ctx, stop := context.WithTimeout(ctx, listsTake)
		defer stop()
		list, err := h.opt.Versions(ctx, dir)
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
