package cache

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// Intervals between scans of the directory for shards of other processes.
const (
	scanOnMiss = time.Second
	scanOnHit  = 5 * time.Second
	// modTimeStep is the resolution of modification times. A second change within this time may not
	// alter the modification time, so a directory that changed so recently is scanned again.
	modTimeStep = time.Second
)

// claimScan reports whether the caller must scan the directory now. It sets lastScan, so that only
// one of several concurrent callers scans. After a miss, scans are more frequent than after a hit.
func (d *Dir) claimScan(now int64, miss bool) bool {
	every := scanOnHit
	if miss {
		every = scanOnMiss
	}
	last := d.lastScan.Load()
	return now-last > int64(every) && d.lastScan.CompareAndSwap(last, now)
}

// Refresh scans the directory now. It adds shards that other processes sealed and drops shards that
// they evicted.
func (d *Dir) Refresh() error {
	d.lastScan.Store(time.Now().UnixNano())
	return systemError("list cache", d.dir, "", d.scanDir(true))
}

// scanDir adds the sealed shards of the directory to the index and drops the shards that are no
// longer there. With wait, it always scans. Otherwise it returns at once if another scan is running
// or the directory is unchanged since the last scan.
func (d *Dir) scanDir(wait bool) (err error) {
	if wait {
		d.scanMu.Lock()
	} else if !d.scanMu.TryLock() {
		return nil
	}
	defer d.scanMu.Unlock()
	now := time.Now()
	info, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	if !wait && info.ModTime().Equal(d.scannedModTime) {
		return nil
	}
	names, err := listNames(d.root)
	if err != nil {
		return err
	}
	if now.Sub(info.ModTime()) > modTimeStep {
		d.scannedModTime = info.ModTime()
	}
	listed := make(map[uint64]bool, len(names))
	for _, name := range names {
		id, sealed, ok := parseShardFileName(name, d.id)
		if !ok || !sealed {
			continue
		}
		listed[id] = true
		d.mu.Lock()
		known := d.shards[id] != nil
		d.mu.Unlock()
		if !known {
			d.loadShard(name, id)
		}
	}
	d.mu.Lock()
	var gone []*shard
	for id, s := range d.shards {
		if !listed[id] && s.sealed.Load() {
			gone = append(gone, s)
		}
	}
	d.mu.Unlock()
	for _, s := range gone {
		// The shard may have been sealed after the listing, so look up its name.
		_, err := d.root.Lstat(shardFileName(d.id, s.id, sealedSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			d.dropShard(s)
		}
	}
	return nil
}

// loadShard maps a sealed shard and adds its entries to the index. An invalid shard is removed. A
// shard that cannot be opened or mapped now is tried again at the next scan.
func (d *Dir) loadShard(name string, id uint64) {
	f, info, err := openRegular(d.root, name, os.O_RDONLY)
	if err != nil {
		return
	}
	defer f.Close()
	size := info.Size()
	slots, ok, err := readTable(f, size, d.id, id)
	if err != nil {
		return
	}
	if !ok {
		if isOwnFile(f, size, d.id, id) && d.root.Remove(name) == nil {
			d.updateStats(func(s *Stats) { s.BadShards++ })
		}
		return
	}
	if int64(int(size)) != size {
		return // does not fit into the address space of a 32-bit process
	}
	mem, err := mapFile(f, size)
	if err != nil {
		return
	}
	s := &shard{dir: d, id: id, mem: mem, size: size}
	s.refs.Store(1)
	s.sealed.Store(true)
	used := info.ModTime().UnixNano()
	s.lastUsed.Store(used)
	s.writtenUse.Store(used)
	if info.ModTime().Unix() == 0 {
		s.damaged.Store(true) // marked by another process
	}
	recs := make([]indexedEntry, len(slots))
	s.entries = make([]*indexedEntry, len(slots))
	for i := range slots {
		recs[i].slot = slots[i]
		recs[i].shard = s
		s.entries[i] = &recs[i]
	}
	d.mu.Lock()
	if d.closed.Load() || d.shards[id] != nil {
		d.mu.Unlock()
		unmapFile(mem)
		return
	}
	d.shards[id] = s
	d.mu.Unlock()
	// Hold the lock while inserting, so that a concurrent dropShard sees all entries or none.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return
	}
	for _, r := range s.entries {
		d.insertEntry(r)
	}
}
