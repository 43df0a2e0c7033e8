package lerobot

import "github.com/goatnote-inc/robocache/internal/lru"

// cacheStats says what the table cache holds and did.
func (d *Dataset) cacheStats() lru.Stats { return d.tab.cache.Stats() }

// memoryBytes is what the dataset holds besides its caches: the episodes table and what follows
// from it.
func (d *Dataset) memoryBytes() int64 {
	e := d.eps
	n := 8*cap(
		e.index,
	) + 4*cap(
		e.length,
	) + 8*cap(
		e.from,
	) + 4*cap(
		e.file,
	) + 8*cap(
		e.start,
	) + 16*cap(
		e.files,
	)
	for _, c := range e.cams {
		n += 4*cap(c.file) + 16*cap(c.files) + 8*cap(c.from) + 8*cap(c.to)
	}
	for _, c := range d.cams {
		n += 8*len(c.files) + 4*cap(c.byFile.episodes) + 4*cap(c.byFile.first)
	}
	return int64(n + 4*cap(d.tab.byFile.episodes) + 4*cap(d.tab.byFile.first))
}
