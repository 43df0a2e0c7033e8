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

// cacheFile is a file in the directory with a name of this cache.
type cacheFile struct {
	name   string
	id     uint64
	sealed bool
	size   int64 // maximum size for an unsealed shard
	disk   int64 // allocated bytes; fewer than size if the file has holes
	used   int64 // Unix time in nanoseconds
}

// withDirLock runs f while it holds the directory lock, which is the lock of the marker file. The
// lock prevents two processes from freeing space at once. It does not exclude other goroutines of
// this process, so the caller must hold rollMu or be the only user of d.
func (d *Dir) withDirLock(wait time.Duration, f func() error) error {
	if err := lockWithin(d.marker, wait); err != nil {
		return systemError("lock cache", d.dir, markerName, err)
	}
	defer unlockFile(d.marker)
	return f()
}

// listFiles lists the files of this cache. If the directory lock is held, the list is complete,
// because files are created and renamed under that lock.
func (d *Dir) listFiles() ([]cacheFile, error) {
	names, err := listNames(d.root)
	if err != nil {
		return nil, systemError("list cache", d.dir, "", err)
	}
	var all []cacheFile
	for _, name := range names {
		id, sealed, ok := parseShardFileName(name, d.id)
		if !ok {
			continue
		}
		info, err := d.root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue // another process removed it, or the cache did not make it
		}
		f := cacheFile{
			name:   name,
			id:     id,
			sealed: sealed,
			size:   wholeBlocks(info.Size()),
			disk:   allocatedBytes(info),
			used:   info.ModTime().UnixNano(),
		}
		d.mu.Lock()
		if s := d.shards[id]; s != nil {
			f.used = max(f.used, s.lastUsed.Load())
			if s.damaged.Load() {
				f.used = 0
			}
		}
		d.mu.Unlock()
		all = append(all, f)
	}
	return all, nil
}

// blockBytes is the unit in which most file systems allocate the space of files.
const blockBytes = 4 << 10

// wholeBlocks rounds n up to a multiple of blockBytes.
func wholeBlocks(n int64) int64 { return (n + blockBytes - 1) / blockBytes * blockBytes }

// markerBytes is the size of the marker on disk. It counts toward the budget.
const markerBytes = blockBytes

// maxReserve is the free space that is left on a large file system. On a smaller one, a twentieth
// is left.
const maxReserve = 1 << 30

// measureFiles lists the files and sets byteLimit and diskBytes. If needsRecovery returns true for
// the files, it recovers the shards of dead writers and measures again. Caller must hold the
// directory lock.
func (d *Dir) measureFiles(needsRecovery func(files []cacheFile) bool) ([]cacheFile, error) {
	files, err := d.listFiles()
	if err == nil {
		err = d.computeLimit(files)
	}
	if err == nil && needsRecovery(files) && d.recoverLeftovers(files) > 0 {
		if files, err = d.listFiles(); err == nil {
			err = d.computeLimit(files)
		}
	}
	return files, err
}

func alwaysRecover([]cacheFile) bool { return true }

// computeLimit sets byteLimit, the maximum size of all files together, and diskBytes, their current
// size. The files could grow to the space that they have plus the free space of the file system.
func (d *Dir) computeLimit(files []cacheFile) error {
	free, total, err := freeBytes(d.marker)
	if err != nil {
		return systemError("measure cache", d.dir, "", err)
	}
	var sizes, allocated int64
	for _, f := range files {
		sizes += f.size
		// A file system may allocate more than a file's size for the file to grow. The rest of an
		// unsealed shard is not allocated yet.
		allocated += min(f.disk, f.size)
	}
	d.diskBytes.Store(sizes)
	reserve := min(maxReserve, total/20)
	d.byteLimit.Store(min(
		d.options.Budget-markerBytes-d.unlinkedBytes.Load(),
		allocated+free-reserve,
	))
	return nil
}

func totalSize(files []cacheFile) (n int64) {
	for _, f := range files {
		n += f.size
	}
	return n
}

// evictShards removes sealed shards, the least recently used first, until the files take at most
// target bytes. With keepUsed, it keeps shards that were used since Open. It returns the remaining
// files.
func (d *Dir) evictShards(files []cacheFile, target int64, keepUsed bool) []cacheFile {
	slices.SortFunc(files, func(a, b cacheFile) int {
		return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.id, b.id))
	})
	total := totalSize(files)
	left := files[:0:0]
	for _, f := range files {
		canEvict := total > target && f.sealed && !(keepUsed && f.used >= d.openedAt)
		if !canEvict || !d.removeShard(f) {
			left = append(left, f)
			continue
		}
		total -= f.size
		d.updateStats(func(s *Stats) {
			s.Evicted++
			s.EvictedBytes += f.size
		})
	}
	d.diskBytes.Store(total)
	return left
}

// removeShard deletes a sealed shard of this cache. It returns false if the shard belongs to
// another cache or is being read by this process.
func (d *Dir) removeShard(victim cacheFile) bool {
	d.mu.Lock()
	s := d.shards[victim.id]
	d.mu.Unlock()
	if s != nil && (!s.sealed.Load() || s.refs.Load() > 1) {
		return false // its space would be freed only after its readers release it
	}
	if s == nil {
		f, info, err := openRegular(d.root, victim.name, os.O_RDONLY)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		ours := isOwnFile(f, info.Size(), d.id, victim.id)
		f.Close()
		if !ours {
			return false
		}
	}
	if err := d.root.Remove(victim.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if s != nil {
		d.dropShard(s)
	}
	return true
}

// makeSpace frees space for the next shard and returns the size of that shard, at least need. It
// returns 0 if the space cannot be freed now. Caller must hold the directory lock.
func (d *Dir) makeSpace(need int64) (int64, error) {
	files, err := d.measureFiles(func(files []cacheFile) bool {
		return totalSize(files)+need > d.byteLimit.Load()
	})
	if err != nil {
		return 0, err
	}
	limit := d.byteLimit.Load()
	maxFileSize := fileSizeLimit() / blockBytes * blockBytes
	switch {
	case need > maxFileSize:
		return 0, syscall.EFBIG
	// Even without any file of the cache there would be too little space. writeEntry has compared
	// the entry with the budget, so it is the file system that is too full.
	case need > limit+d.unlinkedBytes.Load():
		return 0, syscall.ENOSPC
	}
	isSealed := func(f cacheFile) bool { return f.sealed }
	unsealed := totalSize(slices.DeleteFunc(slices.Clone(files), isSealed))
	// A shard takes at most an eighth of the cache, so that one eviction does not empty it. It
	// takes at most a quarter of the space without unsealed shards, so that many writers fit into a
	// small cache.
	size := max(min(d.options.ShardBytes, limit/8, (limit-unsealed)/4), minShard, need)
	size = min(wholeBlocks(size), maxFileSize)
	files = d.evictShards(files, limit-size, d.options.KeepUsed)
	// Shards that are in use stay, so there may be less space than requested.
	size = min(size, (limit-totalSize(files))/blockBytes*blockBytes)
	if size < need {
		return 0, nil
	}
	return size, nil
}
