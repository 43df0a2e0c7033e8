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

// Key is the caller's hash of everything that decides the bytes.
type Key [16]byte

// Options of Open. The zero value is good.
type Options struct {
	Budget int64 // bytes on disk, of all processes together; 64 GiB where 0
	// size of a shard; 256 MiB where 0, more where the budget would need over 4,096 of them, less
	// where it is small
	ShardBytes int64

	// KeepUsed keeps what was written or read since Open; what finds no room then is declined. For
	// data that is gone through again and again: see C7.
	KeepUsed bool

	// Resident bounds what of the mapped files counts as this process's memory (RSS); 1 GiB where
	// 0. The pages beyond stay in the system's page cache, and cost page faults again.
	Resident int64
}

const (
	defaultBudget = 64 << 30
	defaultShard  = 256 << 20
	maxShards     = 4096
	minShard      = 1 << 20
	minBudget     = 4 << 20

	defaultResident = 1 << 30
	lockOnOpen      = 10 * time.Second
)

// Dir is an open cache.
type Dir struct {
	dir    string
	id     uint64
	opt    Options
	root   *os.Root
	marker *os.File
	opened int64 // unix ns

	index  [64]stripe
	closed atomic.Bool

	mu      sync.Mutex // shards, cur, sealing
	shards  map[uint64]*shard
	cur     *writing
	sealing []*writing

	rollMu    sync.Mutex // one goroutine at a time makes room; never held together with a copy
	declineTo atomic.Int64

	scanMu  sync.Mutex
	scanned atomic.Int64 // unix ns of the last look at the directory
	dirTime time.Time    // the directory's own, at that look

	stopped atomic.Pointer[halt]
	limit   atomic.Int64 // what budget and file system permit together
	onDisk  atomic.Int64 // bytes at the last look
	zombies atomic.Int64 // bytes of files that are gone but still mapped here

	trimMu sync.Mutex
	// bytes of entries that were touched and are counted as this process's memory
	mapped atomic.Int64
	peak   atomic.Int64

	entries atomic.Int64
	statsMu sync.Mutex
	stats   Stats // what is counted, and nothing else
}

type stripe struct {
	sync.RWMutex
	m map[Key]*rec // nil while the entry is being written
	_ [32]byte
}

// Open makes dir a cache, or opens the one that is there, seals or removes what dead writers left,
// and prunes to the budget.
func Open(dir string, opt Options) (_ *Dir, err error) {
	if !supported {
		return nil, errNone()
	}
	if opt, err = opt.filled(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fail("make cache", dir, "", err)
	}
	d, err := open(dir, true)
	if err != nil {
		return nil, err
	}
	d.opt = opt
	if err := d.start(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (o Options) filled(dir string) (Options, error) {
	where := robocache.Where{"cache": dir}
	o.Budget = cmp.Or(o.Budget, defaultBudget)
	if o.Budget < minBudget {
		return o, robocache.Misuse("open cache", where, "").
			Expected(fmt.Sprintf("a cache_budget of at least %d bytes", minBudget), fmt.Sprint(o.Budget))
	}
	o.ShardBytes = cmp.Or(o.ShardBytes, max(defaultShard, o.Budget/maxShards))
	o.Resident = cmp.Or(o.Resident, defaultResident)
	if o.ShardBytes < 0 || o.Resident < 0 {
		return o, robocache.Misuse("open cache", where, "").
			Expected("ShardBytes and Resident of at least 0", fmt.Sprint(o.ShardBytes, " and ", o.Resident))
	}
	limit := fileSizeLimit()
	if limit < minShard {
		return o, robocache.ResourceLimit("open cache", where, "a file may have %d bytes only", limit).
			WithHint("%s", hintLimit)
	}
	o.ShardBytes = min(max(o.ShardBytes, minShard), limit, 1<<40)
	if ^uint(0)>>32 == 0 {
		o.ShardBytes = min(o.ShardBytes, 1<<28)
	}
	return o, nil
}

// open gives the directory with its marker and nothing else done.
func open(dir string, write bool) (*Dir, error) {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail("open cache", dir, "", err)
	}
	f, id, err := openMarker(root, dir, write)
	if err != nil {
		root.Close()
		return nil, err
	}
	d := &Dir{
		dir:    dir,
		id:     id,
		root:   root,
		marker: f,
		opened: time.Now().UnixNano(),
		shards: map[uint64]*shard{},
	}
	for i := range d.index {
		d.index[i].m = map[Key]*rec{}
	}
	return d, nil
}

// start finds out now what would fail later, clears what dead writers left, and prunes.
func (d *Dir) start() (err error) {
	if err := d.probe(); err != nil {
		return err
	}
	if err := d.locked(lockOnOpen, func() error {
		v, err := d.measured(always)
		if err != nil {
			return err
		}
		if d.limit.Load() < minBudget-markerBytes {
			return robocache.ResourceLimit("open cache", robocache.Where{"cache": d.dir}, "the file system leaves %d bytes for a cache", max(d.limit.Load(), 0)).
				WithHint("%s", hintSpace())
		}
		d.evict(v, d.limit.Load(), false)
		return nil
	}); err != nil {
		return err
	}
	return d.Refresh()
}

// probe writes and locks a file as a shard would be.
func (d *Dir) probe() error {
	f, id, err := d.createOpen()
	if err != nil {
		return fail("write cache", d.dir, "", err)
	}
	name := fileName(d.id, id, openSuffix)
	_, err = f.WriteAt(make([]byte, 4096), 0)
	if err == nil {
		var m []byte
		if m, err = mapFile(f, 4096); err == nil {
			unmap(m)
		}
	}
	if rerr := d.root.Remove(name); err == nil { // before its lock goes: a leftover is anybody's
		err = rerr
	}
	f.Close()
	return fail("write cache", d.dir, name, err)
}

// createOpen makes a new file for a writer, locked, under a name that nobody else has.
func (d *Dir) createOpen() (*os.File, uint64, error) {
	for {
		id := randomID()
		name := fileName(d.id, id, openSuffix)
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
		// Between our two calls another process took the file for a leftover, and removes it.
	}
}

// stillNamed says whether the name still leads to the open file.
func (d *Dir) stillNamed(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := d.root.Lstat(name)
	return err == nil && os.SameFile(a, b)
}

// Path is the directory.
func (d *Dir) Path() string { return d.dir }

// Close seals what is open and lets go of everything; entries that are out stay valid until their
// Release.
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
		if used := s.used.Load(); used > s.told.Load() && used <= now && s.sealed.Load() &&
			!s.damaged.Load() {
			s.tell(used)
		}
		d.drop(s)
	}
	return errors.Join(err, d.marker.Close(), d.root.Close())
}
