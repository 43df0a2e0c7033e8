package cache

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Key is the caller's hash of everything that determines the bytes of an entry.
type Key [16]byte

// Options configures Open. The zero value selects the defaults.
type Options struct {
	Budget int64 // bytes on disk of all processes together; 0 means 64 GiB
	// Size of a shard. 0 means 256 MiB, or Budget/4096 if that is larger. Small caches use smaller
	// shards.
	ShardBytes int64

	// KeepUsed never evicts entries that were written or read since Open. A Put that would need
	// their space is declined. It is meant for data that is read in many passes; see cache.C7.
	KeepUsed bool

	// Resident limits the mapped bytes that count as this process's memory (RSS). 0 means 1 GiB.
	// Pages beyond the limit stay in the page cache of the system and cost page faults when they
	// are read again.
	Resident int64
}

const (
	defaultBudget = 64 << 30
	defaultShard  = 256 << 20
	maxShards     = 4096
	minShard      = 1 << 20
	maxShard      = 1 << 40
	maxShard32    = 256 << 20 // in a 32-bit process
	minBudget     = 4 << 20

	defaultResident = 1 << 30
	openLockLimit   = 10 * time.Second // longest wait of Open and Prune for the directory lock
)

// Dir is an open cache. Safe for concurrent use.
type Dir struct {
	dir      string
	id       uint64
	options  Options
	root     *os.Root
	marker   *os.File
	openedAt int64 // Unix time in nanoseconds

	index  [64]stripe
	closed atomic.Bool

	mu      sync.Mutex // guards shards, current and sealing
	shards  map[uint64]*shard
	current *shardWriter
	sealing []*shardWriter

	rollMu       sync.Mutex   // held while the current shard is replaced
	declineUntil atomic.Int64 // Unix time in nanoseconds; Put declines entries before it

	scanMu         sync.Mutex
	lastScan       atomic.Int64 // Unix time in nanoseconds of the last scan of the directory
	scannedModTime time.Time    // modification time of the directory at that scan

	writeHalt     atomic.Pointer[halt]
	byteLimit     atomic.Int64 // the smaller of the budget and of what the file system can hold
	diskBytes     atomic.Int64 // bytes of all files, computed by measureFiles and evictShards
	unlinkedBytes atomic.Int64 // bytes of removed files that are still mapped here

	dropMu sync.Mutex // held while dropMappedPages runs
	// bytes of touched entries, which count as this process's memory
	mappedBytes atomic.Int64
	mappedPeak  atomic.Int64 // maximum of mappedBytes

	entryCount atomic.Int64
	statsMu    sync.Mutex
	stats      Stats // counters only; Dir.Stats fills in the rest
}

// stripe is a part of the index with its own lock.
type stripe struct {
	sync.RWMutex
	m map[Key]*indexedEntry // a nil entry marks a key that is being written
	_ [32]byte              // fills up a cache line, so that stripes do not share one
}

// Open opens the cache in dir, and creates it if dir is empty or missing. It seals or removes the
// unsealed shards of dead writers and evicts shards beyond the budget.
func Open(dir string, opt Options) (_ *Dir, err error) {
	if !supported {
		return nil, errUnsupported()
	}
	if opt, err = opt.withDefaults(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, systemError("make cache", dir, "", err)
	}
	d, err := openDir(dir, true)
	if err != nil {
		return nil, err
	}
	d.options = opt
	if err := d.prepareDir(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (o Options) withDefaults(dir string) (Options, error) {
	where := robocache.Where{"cache": dir}
	o.Budget = cmp.Or(o.Budget, defaultBudget)
	if o.Budget < minBudget {
		return o, robocache.Misuse("open cache", where, "").
			Expected(
				fmt.Sprintf("a cache_budget of at least %d bytes", minBudget),
				fmt.Sprint(o.Budget),
			)
	}
	o.ShardBytes = cmp.Or(o.ShardBytes, max(defaultShard, o.Budget/maxShards))
	o.Resident = cmp.Or(o.Resident, defaultResident)
	if o.ShardBytes < 0 || o.Resident < 0 {
		return o, robocache.Misuse("open cache", where, "").
			Expected(
				"ShardBytes and Resident of at least 0",
				fmt.Sprint(o.ShardBytes, " and ", o.Resident),
			)
	}
	limit := fileSizeLimit()
	if limit < minShard {
		return o, robocache.ResourceLimit(
			"open cache",
			where,
			"a file may have at most %d bytes",
			limit,
		).
			WithHint("%s", hintLimit)
	}
	o.ShardBytes = min(max(o.ShardBytes, minShard), limit, maxShard)
	if is32Bit := ^uint(0)>>32 == 0; is32Bit {
		// A shard is mapped as a whole, and the address space has 4 GiB.
		o.ShardBytes = min(o.ShardBytes, maxShard32)
	}
	return o, nil
}

// openDir opens the directory and its marker. It does not scan the directory.
func openDir(dir string, write bool) (*Dir, error) {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, systemError("open cache", dir, "", err)
	}
	f, id, err := openMarker(root, dir, write)
	if err != nil {
		root.Close()
		return nil, err
	}
	d := &Dir{
		dir:      dir,
		id:       id,
		root:     root,
		marker:   f,
		openedAt: time.Now().UnixNano(),
		shards:   map[uint64]*shard{},
	}
	for i := range d.index {
		d.index[i].m = map[Key]*indexedEntry{}
	}
	return d, nil
}

// prepareDir tests whether the directory can be used, recovers the shards of dead writers, and
// evicts shards beyond the budget.
func (d *Dir) prepareDir() (err error) {
	if err := d.probeDir(); err != nil {
		return err
	}
	if err := d.withDirLock(openLockLimit, func() error {
		files, err := d.measureFiles(alwaysRecover)
		if err != nil {
			return err
		}
		if d.byteLimit.Load() < minBudget-markerBytes {
			return robocache.ResourceLimit("open cache", robocache.Where{
				"cache": d.dir,
			}, "the file system leaves %d bytes for a cache", max(d.byteLimit.Load(), 0)).
				WithHint("%s", hintSpace())
		}
		const keepUsed = false // nothing was used since Open
		d.evictShards(files, d.byteLimit.Load(), keepUsed)
		return nil
	}); err != nil {
		return err
	}
	return d.Refresh()
}

// probeDir writes, locks and maps a file like a shard, so that Open fails if a later Put would.
func (d *Dir) probeDir() error {
	f, id, err := d.createLocked()
	if err != nil {
		return systemError("write cache", d.dir, "", err)
	}
	name := shardFileName(d.id, id, openSuffix)
	_, err = f.WriteAt(make([]byte, 4096), 0)
	if err == nil {
		var m []byte
		if m, err = mapFile(f, 4096); err == nil {
			unmapFile(m)
		}
	}
	// Remove the file before its lock is released. Other processes may remove an unlocked file.
	rerr := d.root.Remove(name)
	if err == nil {
		err = rerr
	}
	f.Close()
	return systemError("write cache", d.dir, name, err)
}

// createLocked creates a file for a writer under a new name and locks it.
func (d *Dir) createLocked() (*os.File, uint64, error) {
	for {
		id := randomID()
		name := shardFileName(d.id, id, openSuffix)
		f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return nil, 0, err
		}
		ok, err := tryLock(f)
		if err == nil && ok && d.stillNamed(f, name) {
			return f, id, nil
		}
		f.Close()
		if err != nil {
			_ = d.root.Remove(name)
			return nil, 0, err
		}
		// Before the lock was taken, another process considered the file a leftover and removed it.
	}
}

// stillNamed reports whether name still refers to the open file.
func (d *Dir) stillNamed(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := d.root.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// Path returns the absolute path of the directory.
func (d *Dir) Path() string { return d.dir }

// Close seals the current shard and releases all resources. Entries remain valid until they are
// released.
func (d *Dir) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	err := d.Flush()
	d.mu.Lock()
	all := make([]*shard, 0, len(d.shards))
	for _, s := range d.shards {
		all = append(all, s)
	}
	d.mu.Unlock()
	now := time.Now().UnixNano()
	for _, s := range all {
		// Tell other processes and later runs when the shard was last used.
		used := s.lastUsed.Load()
		isUnwritten := used > s.writtenUse.Load() && used <= now
		if isUnwritten && s.sealed.Load() && !s.damaged.Load() {
			s.writeModTime(used)
		}
		d.dropShard(s)
	}
	return errors.Join(err, d.marker.Close(), d.root.Close())
}
