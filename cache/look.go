package cache

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// How often the directory is looked at for shards of other processes.
const (
	lookOnMiss = time.Second
	lookOnHit  = 5 * time.Second
	// a directory changed less than this before a look may change again under the same time of
	// change
	settle = time.Second
)

func (d *Dir) lookDue(now int64, miss bool) bool {
	every := lookOnHit
	if miss {
		every = lookOnMiss
	}
	last := d.scanned.Load()
	return now-last > int64(every) && d.scanned.CompareAndSwap(last, now)
}

// Refresh looks at the directory now: shards that others sealed appear, those that others evicted
// go.
func (d *Dir) Refresh() error {
	d.scanned.Store(time.Now().UnixNano())
	return fail("look into cache", d.dir, "", d.look(true))
}

// look compares the directory with the index. Of several calls at once one does the work, unless
// wait is set.
func (d *Dir) look(wait bool) (err error) {
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
	if !wait && info.ModTime().Equal(d.dirTime) {
		return nil
	}
	names, err := listNames(d.root)
	if err != nil {
		return err
	}
	if now.Sub(info.ModTime()) > settle {
		d.dirTime = info.ModTime()
	}
	there := make(map[uint64]bool, len(names))
	for _, name := range names {
		id, sealed, ok := parseName(name, d.id)
		if !ok || !sealed {
			continue
		}
		there[id] = true
		d.mu.Lock()
		known := d.shards[id] != nil
		d.mu.Unlock()
		if !known {
			d.load(name, id)
		}
	}
	d.mu.Lock()
	var gone []*shard
	for id, s := range d.shards {
		if !there[id] && s.sealed.Load() {
			gone = append(gone, s)
		}
	}
	d.mu.Unlock()
	for _, s := range gone {
		// Sealed after the listing, perhaps: the name decides.
		if _, err := d.root.Lstat(
			fileName(d.id, s.id, sealedSuffix),
		); errors.Is(
			err,
			fs.ErrNotExist,
		) {
			d.drop(s)
		}
	}
	return nil
}

// load maps a sealed shard and takes its entries into the index. One that does not hold is removed;
// one that cannot be opened or mapped now is tried again at the next look.
func (d *Dir) load(name string, id uint64) {
	f, info, err := openPlain(d.root, name, os.O_RDONLY)
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
		if isOurs(f, size, d.id, id) && d.root.Remove(name) == nil {
			d.count(func(s *Stats) { s.BadShards++ })
		}
		return
	}
	if int64(int(size)) != size {
		return // a 32-bit process
	}
	mem, err := mapFile(f, size)
	if err != nil {
		return
	}
	s := &shard{d: d, id: id, mem: mem, size: size}
	s.refs.Store(1)
	s.sealed.Store(true)
	used := info.ModTime().UnixNano()
	s.used.Store(used)
	s.told.Store(used)
	if info.ModTime().Unix() == 0 {
		s.damaged.Store(true) // as another process found
	}
	recs := make([]rec, len(slots))
	s.recs = make([]*rec, len(slots))
	for i := range slots {
		recs[i].slot, recs[i].sh = slots[i], s
		s.recs[i] = &recs[i]
	}
	d.mu.Lock()
	if d.closed.Load() || d.shards[id] != nil {
		d.mu.Unlock()
		unmap(mem)
		return
	}
	d.shards[id] = s
	d.mu.Unlock()
	// Held: a drop in between must find all of them or none.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return
	}
	for _, r := range s.recs {
		d.insert(r)
	}
}
