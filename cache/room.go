package cache

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// found is a file of this cache's naming.
type found struct {
	name   string
	id     uint64
	sealed bool
	size   int64 // an unsealed shard's is what it may grow to
	disk   int64
	used   int64 // unix ns
}

// locked runs f under the lock that keeps two processes from making room at once. rollMu is held,
// or nobody else has d yet.
func (d *Dir) locked(wait time.Duration, f func() error) error {
	if err := lockWithin(d.marker, wait); err != nil {
		return fail("lock cache", d.dir, markerName, err)
	}
	defer unlock(d.marker)
	return f()
}

// survey lists the files of this cache. With the lock held it misses none: they get and change
// their names under it.
func (d *Dir) survey() ([]found, error) {
	names, err := listNames(d.root)
	if err != nil {
		return nil, fail("look into cache", d.dir, "", err)
	}
	var all []found
	for _, name := range names {
		id, sealed, ok := parseName(name, d.id)
		if !ok {
			continue
		}
		info, err := d.root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue // gone, or nothing that we made
		}
		size := (info.Size() + 4095) &^ 4095 // as file systems count
		v := found{
			name:   name,
			id:     id,
			sealed: sealed,
			size:   size,
			disk:   onDisk(info),
			used:   info.ModTime().UnixNano(),
		}
		d.mu.Lock()
		if s := d.shards[id]; s != nil {
			v.used = max(v.used, s.used.Load())
			if s.damaged.Load() {
				v.used = 0
			}
		}
		d.mu.Unlock()
		all = append(all, v)
	}
	return all, nil
}

// markerBytes is what the marker takes on disk: a block. Shards that filled the budget to the last
// byte were over it by that.
const markerBytes = 4 << 10

// maxReserve is what is left free on a large file system; a twentieth of a small one.
const maxReserve = 1 << 30

// measured lists the files, and finds what the budget and the file system permit together. Where
// recovery is wanted, what dead writers left is cleared first. The lock is held.
func (d *Dir) measured(wanted func(v []found) bool) ([]found, error) {
	v, err := d.survey()
	if err == nil {
		err = d.measure(v)
	}
	if err == nil && wanted(v) && d.recoverThese(v) > 0 {
		if v, err = d.survey(); err == nil {
			err = d.measure(v)
		}
	}
	return v, err
}

func always([]found) bool { return true }

func (d *Dir) measure(v []found) error {
	free, total, err := diskFree(d.marker)
	if err != nil {
		return fail("look into cache", d.dir, "", err)
	}
	var sizes, disk int64
	for _, f := range v {
		sizes += f.size
		disk += min(f.disk, f.size)
	}
	d.onDisk.Store(sizes)
	d.limit.Store(
		min(d.opt.Budget-markerBytes-d.zombies.Load(), disk+free-min(maxReserve, total/20)),
	)
	return nil
}

func sum(v []found) (n int64) {
	for _, f := range v {
		n += f.size
	}
	return n
}

// evict removes sealed shards, the least recently used first, until the files take at most target.
// It gives what is left.
func (d *Dir) evict(v []found, target int64, keepUsed bool) []found {
	slices.SortFunc(
		v,
		func(a, b found) int { return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.id, b.id)) },
	)
	total := sum(v)
	left := v[:0:0]
	for _, f := range v {
		if total <= target || !f.sealed || keepUsed && f.used >= d.opened || !d.remove(f) {
			left = append(left, f)
			continue
		}
		total -= f.size
		d.count(func(s *Stats) { s.Evicted, s.EvictedBytes = s.Evicted+1, s.EvictedBytes+f.size })
	}
	d.onDisk.Store(total)
	return left
}

// remove deletes a sealed shard that this cache made and that nobody here reads at the moment.
func (d *Dir) remove(v found) bool {
	d.mu.Lock()
	s := d.shards[v.id]
	d.mu.Unlock()
	if s != nil && (!s.sealed.Load() || s.refs.Load() > 1) {
		return false // its space would not come back before its readers let go
	}
	if s == nil {
		f, info, err := openPlain(d.root, v.name, os.O_RDONLY)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		ours := isOurs(f, info.Size(), d.id, v.id)
		f.Close()
		if !ours {
			return false
		}
	}
	if err := d.root.Remove(v.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if s != nil {
		d.drop(s)
	}
	return true
}

// makeRoom gives the size of the next shard, at least need, with room made for it; 0 where there is
// none now. The lock is held.
func (d *Dir) makeRoom(need int64) (int64, error) {
	v, err := d.measured(func(v []found) bool { return sum(v)+need > d.limit.Load() })
	if err != nil {
		return 0, err
	}
	limit, files := d.limit.Load(), fileSizeLimit()&^4095
	switch {
	case need > files:
		return 0, syscall.EFBIG
	case need > limit+d.zombies.Load(): // the budget is larger (write): it is the file system
		return 0, syscall.ENOSPC
	}
	unsealed := sum(slices.DeleteFunc(slices.Clone(v), func(f found) bool { return f.sealed }))
	// An eighth of the cache at most, so that eviction is not all or nothing; a quarter of what
	// unsealed shards leave, so that many writers fit into a small cache.
	want := max(min(d.opt.ShardBytes, limit/8, (limit-unsealed)/4), minShard, need)
	want = min((want+4095)&^4095, files)
	v = d.evict(v, limit-want, d.opt.KeepUsed)
	want = min(want, (limit-sum(v))&^4095)
	if want < need {
		return 0, nil
	}
	return want, nil
}
