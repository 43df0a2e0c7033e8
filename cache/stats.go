package cache

// Stats is the state of a cache and its counters since Open.
type Stats struct {
	Dir    string `json:"dir"`
	Budget int64  `json:"budget_bytes"` // as configured
	// The smaller of the budget and of what the file system could hold. It was computed when files
	// were last created or evicted.
	Limit int64 `json:"limit_bytes"`
	// Bytes of the files of all processes when Limit was computed. Unsealed shards count with their
	// maximum size.
	Bytes  int64 `json:"bytes"`
	Shards int   `json:"shards"` // mapped by this process
	// bytes of entries whose pages count as this process's memory
	Mapped  int64 `json:"mapped_bytes"`
	Peak    int64 `json:"mapped_peak_bytes"` // maximum of Mapped since Open
	Entries int64 `json:"entries"`           // known to this process

	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"`
	HitBytes int64 `json:"hit_bytes"`
	Puts     int64 `json:"puts"` // written by this process
	PutBytes int64 `json:"put_bytes"`
	// not written, because there was no space or writing had stopped
	Declined int64 `json:"declined"`

	VerifiedBytes int64 `json:"verified_bytes"`
	BadEntries    int64 `json:"bad_entries"`    // entries with a wrong checksum
	BadShards     int64 `json:"bad_shards"`     // removed because they were unreadable
	Evicted       int64 `json:"evicted_shards"` // by this process
	EvictedBytes  int64 `json:"evicted_bytes"`
	// shards of dead writers that this process sealed
	Recovered        int64 `json:"recovered_shards"`
	RecoveredEntries int64 `json:"recovered_entries"`
	// shards of dead writers that were removed, because they had no entries or could not be sealed
	RemovedLeftovers int64 `json:"removed_leftovers"`

	Full    bool   `json:"full"`              // a Put found no space since Open
	Stopped string `json:"stopped,omitempty"` // why writing stopped; empty while it continues
}

// updateStats calls change with the counters locked.
func (d *Dir) updateStats(change func(*Stats)) {
	d.statsMu.Lock()
	change(&d.stats)
	d.statsMu.Unlock()
}

// Stats returns the current state. Safe for concurrent use.
func (d *Dir) Stats() (s Stats) {
	d.mu.Lock()
	shards := len(d.shards)
	d.mu.Unlock()
	d.updateStats(func(counted *Stats) { s = *counted })
	s.Dir = d.dir
	s.Budget = d.options.Budget
	s.Shards = shards
	s.Limit, s.Bytes = d.byteLimit.Load(), d.diskBytes.Load()
	s.Mapped, s.Peak, s.Entries = d.mappedBytes.Load(), d.mappedPeak.Load(), d.entryCount.Load()
	if err := d.Err(); err != nil {
		s.Stopped = err.Error()
	}
	return s
}

// Err returns the error that stopped writing, or nil.
func (d *Dir) Err() error {
	if h := d.writeHalt.Load(); h != nil {
		return h.err
	}
	return nil
}
