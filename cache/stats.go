package cache

// Stats is what the cache holds and what it did since Open.
type Stats struct {
	Dir    string `json:"dir"`
	Budget int64  `json:"budget_bytes"` // as asked
	Limit  int64  `json:"limit_bytes"`  // what budget and file system permitted at the last look
	// files of all processes at the last look, unsealed shards with what they may grow to
	Bytes   int64 `json:"bytes"`
	Shards  int   `json:"shards"`       // mapped here
	Mapped  int64 `json:"mapped_bytes"` // of entries whose pages count as this process's memory
	Peak    int64 `json:"mapped_peak_bytes"`
	Entries int64 `json:"entries"` // known here

	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"`
	HitBytes int64 `json:"hit_bytes"`
	Puts     int64 `json:"puts"` // written by this process
	PutBytes int64 `json:"put_bytes"`
	Declined int64 `json:"declined"` // not written: no room, or no longer writing

	VerifiedBytes int64 `json:"verified_bytes"`
	BadEntries    int64 `json:"bad_entries"`    // failed their checksum
	BadShards     int64 `json:"bad_shards"`     // removed as unreadable
	Evicted       int64 `json:"evicted_shards"` // by this process
	EvictedBytes  int64 `json:"evicted_bytes"`  //
	// left by dead writers, sealed by this process
	Recovered        int64 `json:"recovered_shards"`
	RecoveredEntries int64 `json:"recovered_entries"` //
	RemovedLeftovers int64 `json:"removed_leftovers"` // left by dead writers with nothing in them

	Full    bool   `json:"full"`              // a Put found no room since Open
	Stopped string `json:"stopped,omitempty"` // why nothing is written any more; empty while it is
}

// count changes what is counted.
func (d *Dir) count(change func(*Stats)) {
	d.statsMu.Lock()
	change(&d.stats)
	d.statsMu.Unlock()
}

// Stats may be called at any time.
func (d *Dir) Stats() (s Stats) {
	d.mu.Lock()
	shards := len(d.shards)
	d.mu.Unlock()
	d.count(func(counted *Stats) { s = *counted })
	s.Dir, s.Budget, s.Limit, s.Bytes, s.Shards = d.dir, d.opt.Budget, d.limit.Load(), d.onDisk.Load(), shards
	s.Mapped, s.Peak, s.Entries = d.mapped.Load(), d.peak.Load(), d.entries.Load()
	if err := d.Err(); err != nil {
		s.Stopped = err.Error()
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
