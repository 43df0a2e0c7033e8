package cache

// Blocks is the cache for those who know it by an interface of their own (store.BlockCache).
type Blocks struct{ Dir *Dir }

// Get gives an entry; data is valid until release.
func (b Blocks) Get(key [16]byte) (data []byte, release func(), ok bool) {
	e, ok := b.Dir.Get(key)
	if !ok {
		return nil, nil, false
	}
	return e.Data, func() { e.Release() }, true
}

// Put keeps an entry.
func (b Blocks) Put(key [16]byte, data []byte) error { return b.Dir.Put(key, data) }
