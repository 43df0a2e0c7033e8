package cache

import (
	"cmp"
	"slices"
)

// touched counts an entry's pages as this process's memory, once until they are let go of, and lets
// go of some where they are too many.
func (r *rec) touched() {
	s := r.sh
	round := s.round.Load() + 1
	if r.round.Load() == round || r.round.Swap(round) == round {
		return
	}
	s.mapped.Add(r.n)
	d := s.d
	total := d.mapped.Add(r.n)
	for peak := d.peak.Load(); total > peak && !d.peak.CompareAndSwap(peak, total); {
		peak = d.peak.Load()
	}
	if total > d.opt.Resident {
		d.trim()
	}
}

// trim lets go of the pages of shards, the least recently used first. A reader in the middle of one
// faults its pages in again: they are still in the system's page cache, which alone decides about
// them.
func (d *Dir) trim() {
	if !d.trimMu.TryLock() {
		return
	}
	defer d.trimMu.Unlock()
	type candidate struct {
		s    *shard
		used int64
	}
	var all []candidate
	d.mu.Lock()
	for _, s := range d.shards {
		if s.mapped.Load() > 0 {
			s.refs.Add(1)
			all = append(all, candidate{s, s.used.Load()})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	for _, c := range all {
		if d.mapped.Load() > d.opt.Resident/8*7 {
			c.s.round.Add(1)
			d.mapped.Add(-c.s.mapped.Swap(0))
			letGo(c.s.mem)
		}
		c.s.unref()
	}
}
