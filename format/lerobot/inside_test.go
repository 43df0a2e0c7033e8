package lerobot

import "github.com/goatnote-inc/robocache/internal/lru"

// cacheStats returns the counters of the table cache.
func (d *Dataset) cacheStats() lru.Stats { return d.tables.cache.Stats() }

// memoryBytes returns the memory of the dataset without its caches. This is mainly the episodes
// table.
func (d *Dataset) memoryBytes() int64 {
	e := d.episodes
	n := 8*cap(e.index) + 4*cap(e.length) + 8*cap(e.from) + 4*cap(e.file) + 8*cap(e.start) +
		16*cap(e.files)
	for _, c := range e.cameras {
		n += 4*cap(c.file) + 16*cap(c.files) + 8*cap(c.from) + 8*cap(c.to)
	}
	for _, c := range d.cameras {
		n += 8*len(c.files) + 4*cap(c.byFile.episodes) + 4*cap(c.byFile.first)
	}
	return int64(n + 4*cap(d.tables.byFile.episodes) + 4*cap(d.tables.byFile.first))
}
