package cache

import (
	"cmp"
	"slices"
)

// countMapped adds the entry's bytes to the mapped bytes of its shard and of the process. An entry
// is counted only once until the pages of its shard are dropped. If the total exceeds
// Options.Resident, countMapped drops pages.
func (r *indexedEntry) countMapped() {
	s := r.shard
	round := s.dropRound.Load() + 1 // 0 is the round of an entry that was never counted
	if r.countedRound.Load() == round || r.countedRound.Swap(round) == round {
		return
	}
	s.mappedBytes.Add(r.n)
	d := s.dir
	total := d.mappedBytes.Add(r.n)
	for {
		peak := d.mappedPeak.Load()
		if total <= peak || d.mappedPeak.CompareAndSwap(peak, total) {
			break
		}
	}
	if total > d.options.Resident {
		d.dropMappedPages()
	}
}

// dropMappedPages drops the pages of shards from this process's memory, the least recently used
// shards first, until the total is at most 7/8 of Options.Resident. A concurrent reader of such a
// shard causes page faults. Its pages are usually still in the system's page cache.
func (d *Dir) dropMappedPages() {
	if !d.dropMu.TryLock() {
		return
	}
	defer d.dropMu.Unlock()
	type candidate struct {
		s    *shard
		used int64
	}
	var all []candidate
	d.mu.Lock()
	for _, s := range d.shards {
		if s.mappedBytes.Load() > 0 {
			s.refs.Add(1)
			all = append(all, candidate{s, s.lastUsed.Load()})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	for _, c := range all {
		if d.mappedBytes.Load() > d.options.Resident/8*7 {
			c.s.dropRound.Add(1)
			d.mappedBytes.Add(-c.s.mappedBytes.Swap(0))
			dropPages(c.s.mem)
		}
		c.s.releaseRef()
	}
}
