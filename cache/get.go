package cache

import "time"

// Get gives the entry of a key, or false. The caller releases it.
func (d *Dir) Get(k Key) (Entry, bool) {
	now := time.Now().UnixNano()
	r := d.find(k)
	if d.lookDue(now, r == nil) {
		_ = d.look(false)
		if r == nil {
			r = d.find(k)
		}
	}
	if r != nil && !r.check() {
		d.dropEntry(r)
		r.sh.unref()
		r = nil
	}
	if r == nil {
		d.count(func(s *Stats) { s.Misses++ })
		return Entry{}, false
	}
	r.sh.use(now)
	r.touched()
	d.count(func(s *Stats) { s.Hits, s.HitBytes = s.Hits+1, s.HitBytes+r.n })
	return Entry{Data: r.data(), sh: r.sh}, true
}

// Has says whether Get would look at an entry. It reads none, so the entry may still turn out
// damaged.
func (d *Dir) Has(k Key) bool {
	if d.known(k) {
		return true
	}
	if d.lookDue(time.Now().UnixNano(), true) {
		_ = d.look(false)
		return d.known(k)
	}
	return false
}

func (d *Dir) known(k Key) bool {
	st := d.stripe(k)
	st.RLock()
	r := st.m[k]
	st.RUnlock()
	return r != nil
}

// find gives an entry with a reference of its shard.
func (d *Dir) find(k Key) *rec {
	st := d.stripe(k)
	st.RLock()
	r := st.m[k]
	if r != nil {
		r.sh.refs.Add(1) // the index's own reference goes only after the entry left the stripe
	}
	st.RUnlock()
	return r
}

func (d *Dir) stripe(k Key) *stripe { return &d.index[k[0]%uint8(len(d.index))] }

// insert puts an entry into the index, unless another has its key.
func (d *Dir) insert(r *rec) {
	st := d.stripe(r.key)
	st.Lock()
	defer st.Unlock()
	if st.m[r.key] == nil {
		st.m[r.key] = r
		d.entries.Add(1)
	}
}

// forget takes an entry out of the index.
func (d *Dir) forget(r *rec) {
	st := d.stripe(r.key)
	st.Lock()
	defer st.Unlock()
	if st.m[r.key] == r {
		delete(st.m, r.key)
		d.entries.Add(-1)
	}
}

// dropEntry takes a damaged entry out of the index.
func (d *Dir) dropEntry(r *rec) {
	d.forget(r)
	if r.state.Swap(bad) != bad {
		d.count(func(s *Stats) { s.BadEntries++ })
		r.sh.spoil()
	}
}

// drop takes a shard out of the index; its mapping goes with the last reader.
func (d *Dir) drop(s *shard) {
	d.mu.Lock()
	if d.shards[s.id] != s {
		d.mu.Unlock()
		return
	}
	delete(d.shards, s.id)
	d.mu.Unlock()
	s.mu.Lock()
	recs := s.recs
	s.recs, s.dropped = nil, true
	s.mu.Unlock()
	for _, r := range recs {
		d.forget(r)
	}
	d.zombies.Add(s.size)
	s.unref()
}

// Blocks is the cache for those who know it by an interface of their own (store.BlockCache).
type Blocks struct{ Dir *Dir }

// Get gives an entry; data is valid until release.
func (b Blocks) Get(key [16]byte) (data []byte, release func(), ok bool) {
	e, ok := b.Dir.Get(key)
	return e.Data, e.Release, ok
}

// Put keeps an entry.
func (b Blocks) Put(key [16]byte, data []byte) error { return b.Dir.Put(key, data) }
