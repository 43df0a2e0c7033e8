package cache

import "time"

// Get returns the entry of a key, or false. The caller must release the entry.
func (d *Dir) Get(k Key) (Entry, bool) {
	now := time.Now().UnixNano()
	r := d.lookupEntry(k)
	if d.claimScan(now, r == nil) {
		_ = d.scanDir(false)
		if r == nil {
			r = d.lookupEntry(k)
		}
	}
	if r != nil && !r.verifyOnce() {
		d.dropDamaged(r)
		r.shard.releaseRef()
		r = nil
	}
	if r == nil {
		d.updateStats(func(s *Stats) { s.Misses++ })
		return Entry{}, false
	}
	r.shard.noteUse(now)
	r.countMapped()
	d.updateStats(func(s *Stats) {
		s.Hits++
		s.HitBytes += r.n
	})
	return Entry{Data: r.mappedData(), shard: r.shard}, true
}

// Has reports whether an entry is in the index. It does not read the entry, so a later Get may
// still find it damaged.
func (d *Dir) Has(k Key) bool {
	if d.isIndexed(k) {
		return true
	}
	if d.claimScan(time.Now().UnixNano(), true) {
		_ = d.scanDir(false)
		return d.isIndexed(k)
	}
	return false
}

func (d *Dir) isIndexed(k Key) bool {
	st := d.stripeOf(k)
	st.RLock()
	r := st.m[k]
	st.RUnlock()
	return r != nil
}

// lookupEntry returns the entry of a key with a reference to its shard, or nil.
func (d *Dir) lookupEntry(k Key) *indexedEntry {
	st := d.stripeOf(k)
	st.RLock()
	r := st.m[k]
	if r != nil {
		// The shard is still mapped: the index holds a reference until all entries of the shard have
		// left their stripes.
		r.shard.refs.Add(1)
	}
	st.RUnlock()
	return r
}

func (d *Dir) stripeOf(k Key) *stripe { return &d.index[k[0]%uint8(len(d.index))] }

// insertEntry adds an entry to the index unless the key is present.
func (d *Dir) insertEntry(r *indexedEntry) {
	st := d.stripeOf(r.key)
	st.Lock()
	defer st.Unlock()
	if st.m[r.key] == nil {
		st.m[r.key] = r
		d.entryCount.Add(1)
	}
}

// removeEntry removes an entry from the index.
func (d *Dir) removeEntry(r *indexedEntry) {
	st := d.stripeOf(r.key)
	st.Lock()
	defer st.Unlock()
	if st.m[r.key] == r {
		delete(st.m, r.key)
		d.entryCount.Add(-1)
	}
}

// dropDamaged removes a damaged entry from the index and counts it.
func (d *Dir) dropDamaged(r *indexedEntry) {
	d.removeEntry(r)
	if r.state.Swap(bad) != bad {
		d.updateStats(func(s *Stats) { s.BadEntries++ })
		r.shard.markDamaged()
	}
}

// dropShard removes a shard and its entries from the index. The last reader unmaps it.
func (d *Dir) dropShard(s *shard) {
	d.mu.Lock()
	if d.shards[s.id] != s {
		d.mu.Unlock()
		return
	}
	delete(d.shards, s.id)
	d.mu.Unlock()
	s.mu.Lock()
	recs := s.entries
	s.entries, s.dropped = nil, true
	s.mu.Unlock()
	for _, r := range recs {
		d.removeEntry(r)
	}
	d.unlinkedBytes.Add(s.size)
	s.releaseRef()
}

// Blocks adapts a Dir to interfaces without Entry, such as store.BlockCache.
type Blocks struct{ Dir *Dir }

// Get returns the data of an entry. The data is valid until release is called.
func (b Blocks) Get(key [16]byte) (data []byte, release func(), ok bool) {
	e, ok := b.Dir.Get(key)
	return e.Data, e.Release, ok
}

// Put stores an entry.
func (b Blocks) Put(key [16]byte, data []byte) error { return b.Dir.Put(key, data) }
