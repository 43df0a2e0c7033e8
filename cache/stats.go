package cache

import "sync/atomic"

type counters struct {
	entries                                  atomic.Int64
	hits, misses, hitBytes                   atomic.Int64
	puts, putBytes, declined                 atomic.Int64
	verified, badEntries, badShards          atomic.Int64
	evicted, evictedBytes                    atomic.Int64
	recovered, recoveredEntries, removedOpen atomic.Int64
	full                                     atomic.Bool
}

// Stats is what the cache holds and what it did since Open.
type Stats struct {
	Dir     string `json:"dir"`
	Budget  int64  `json:"budget_bytes"` // as asked
	Limit   int64  `json:"limit_bytes"`  // what budget and file system permitted at the last look
	Bytes   int64  `json:"bytes"`        // files of all processes at the last look, unsealed shards with what they may grow to
	Shards  int    `json:"shards"`       // mapped here
	Mapped  int64  `json:"mapped_bytes"` // of entries whose pages count as this process's memory
	Peak    int64  `json:"mapped_peak_bytes"`
	Entries int64  `json:"entries"` // known here

	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"`
	HitBytes int64 `json:"hit_bytes"`
	Puts     int64 `json:"puts"` // written by this process
	PutBytes int64 `json:"put_bytes"`
	Declined int64 `json:"declined"` // not written: no room, or no longer writing

	VerifiedBytes    int64 `json:"verified_bytes"`
	BadEntries       int64 `json:"bad_entries"`       // failed their checksum
	BadShards        int64 `json:"bad_shards"`        // removed as unreadable
	Evicted          int64 `json:"evicted_shards"`    // by this process
	EvictedBytes     int64 `json:"evicted_bytes"`     //
	Recovered        int64 `json:"recovered_shards"`  // left by dead writers, sealed by this process
	RecoveredEntries int64 `json:"recovered_entries"` //
	RemovedLeftovers int64 `json:"removed_leftovers"` // left by dead writers with nothing in them

	Full    bool   `json:"full"`              // a Put found no room since Open
	Stopped string `json:"stopped,omitempty"` // why nothing is written any more; empty while it is
}

// Stats may be called at any time.
func (d *Dir) Stats() Stats {
	d.mu.Lock()
	shards := len(d.shards)
	d.mu.Unlock()
	s := Stats{
		Dir: d.dir, Budget: d.opt.Budget, Limit: d.limit.Load(), Bytes: d.onDisk.Load(), Shards: shards, Mapped: d.mapped.Load(), Peak: d.peak.Load(), Entries: d.entries.Load(),
		Hits: d.hits.Load(), Misses: d.misses.Load(), HitBytes: d.hitBytes.Load(),
		Puts: d.puts.Load(), PutBytes: d.putBytes.Load(), Declined: d.declined.Load(),
		VerifiedBytes: d.verified.Load(), BadEntries: d.badEntries.Load(), BadShards: d.badShards.Load(),
		Evicted: d.evicted.Load(), EvictedBytes: d.evictedBytes.Load(),
		Recovered: d.recovered.Load(), RecoveredEntries: d.recoveredEntries.Load(), RemovedLeftovers: d.removedOpen.Load(),
		Full: d.full.Load(),
	}
	if h := d.stopped.Load(); h != nil {
		s.Stopped = h.err.Error()
	}
	return s
}

// Err is why nothing is written any more, nil while it is.
func (d *Dir) Err() error {
	if h := d.stopped.Load(); h != nil {
		return h.err
	}
	return nil
}
