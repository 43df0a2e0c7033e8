package cache

import (
	"errors"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// shard is a mapped file. The index holds one reference, and each Entry that is not released holds
// another. Releasing the last reference unmaps the file.
type shard struct {
	dir  *Dir
	id   uint64
	mem  []byte
	size int64 // maximum size of the file; its size once the shard is sealed
	refs atomic.Int64

	sealed  atomic.Bool
	damaged atomic.Bool
	// Unix time in nanoseconds of the last Get, Put or known use by other processes
	lastUsed   atomic.Int64
	writtenUse atomic.Int64 // the modification time that was last written to the file

	// dropRound is the number of times that the pages of the shard were dropped. An entry is
	// counted as mapped memory once between two drops; mappedBytes is the sum of these entries.
	dropRound   atomic.Uint32
	mappedBytes atomic.Int64

	mu      sync.Mutex
	entries []*indexedEntry // entries that may be in the index
	dropped bool            // no longer in the index
}

// indexedEntry is an entry in the index.
type indexedEntry struct {
	slot
	shard *shard
	state atomic.Uint32 // unchecked, intact or bad
	// countedRound is shard.dropRound plus one at the last use of the entry; 0 means never used.
	countedRound atomic.Uint32
}

// States of an indexedEntry.
const (
	unchecked = iota // its checksum was not verified in this process
	intact
	bad
)

// releaseRef releases one reference. Releasing the last one unmaps the file.
func (s *shard) releaseRef() {
	if s.refs.Add(-1) == 0 {
		unmapFile(s.mem)
		s.dir.mappedBytes.Add(-s.mappedBytes.Swap(0))
		if s.dropped { // set before the index released its reference
			s.dir.unlinkedBytes.Add(-s.size)
		}
	}
}

// Entry is read-only data of the cache. It is 64-byte aligned and valid until Release.
type Entry struct {
	Data  []byte
	shard *shard
}

// Release releases the data, which must not be used afterwards. A second call does nothing.
func (e *Entry) Release() {
	if s := e.shard; s != nil {
		e.Data, e.shard = nil, nil
		s.releaseRef()
	}
}

// mappedData returns the entry's part of the mapping. Caller must hold a reference to the shard.
func (r *indexedEntry) mappedData() []byte { return r.shard.mem[r.off : r.off+r.n : r.off+r.n] }

// verifyOnce loads the entry's bytes into memory and reports whether they are intact. The checksum
// is computed only once per process.
func (r *indexedEntry) verifyOnce() bool {
	b := r.mappedData()
	if r.state.Load() == bad || populatePages(b) != nil {
		return false
	}
	if r.state.Load() == intact {
		return true
	}
	if sum, ok := hashMapped(b); !ok || sum != r.sum {
		return false
	}
	r.state.CompareAndSwap(unchecked, intact)
	r.shard.dir.updateStats(func(s *Stats) { s.VerifiedBytes += r.n })
	return true
}

// hashMapped hashes mapped bytes. If a page cannot be read, because the file shrank or the disk
// failed, ok is false. Without SetPanicOnFault, the fault would end the process.
func hashMapped(b []byte) (sum uint64, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			sum, ok = 0, false
		}
	}()
	return xxh3.Hash(b), true
}

// markUsedAfter is the maximum time after which other processes see that a shard is in use.
const markUsedAfter = 10 * time.Second

// noteUse records a Get. At most every markUsedAfter it also sets the file's modification time,
// which other processes read.
func (s *shard) noteUse(now int64) {
	s.lastUsed.Store(now)
	written := s.writtenUse.Load()
	if now-written <= int64(markUsedAfter) || !s.sealed.Load() || s.damaged.Load() {
		return
	}
	if s.writtenUse.CompareAndSwap(written, now) {
		s.writeModTime(now)
	}
}

// writeModTime sets the modification time of the file, which is the time of the shard's last use.
func (s *shard) writeModTime(now int64) {
	t := time.Unix(0, now)
	err := s.dir.root.Chtimes(shardFileName(s.dir.id, s.id, sealedSuffix), t, t)
	if errors.Is(err, fs.ErrNotExist) {
		// Another process evicted the shard. Its bytes stay on disk while they are mapped.
		s.dir.dropShard(s)
	}
}

// markDamaged makes the shard the first to be evicted. Other processes see it by its modification
// time, which is set to 0.
func (s *shard) markDamaged() {
	if s.damaged.Swap(true) {
		return
	}
	s.lastUsed.Store(0)
	if s.sealed.Load() {
		_ = s.dir.root.Chtimes(
			shardFileName(s.dir.id, s.id, sealedSuffix),
			time.Unix(0, 0),
			time.Unix(0, 0),
		)
	}
}

// openRegular opens a file of the cache. It rejects links and files that are not regular.
func openRegular(root *os.Root, name string, flag int) (_ *os.File, _ os.FileInfo, err error) {
	listed, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !listed.Mode().IsRegular() {
		return nil, nil, errNotRegular
	}
	f, err := root.OpenFile(name, flag|plainOnly, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(listed, info) {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

var errNotRegular = errors.New("not a regular file")

// isOwnFile reports whether this cache made a file that has a name of the cache. The head or the tail
// of such a file contains the ids of the cache and the shard. After a crash, the file may also be
// empty, or its head may be zero.
func isOwnFile(f *os.File, size int64, cacheID, shardID uint64) bool {
	var b [headSize]byte
	if size == 0 {
		return true
	}
	if size < headSize {
		return false
	}
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return false
	}
	if b == [headSize]byte{} || belongsToShard(b[:], headMagic, cacheID, shardID) {
		return true
	}
	// The head is damaged, so check the tail.
	_, err := f.ReadAt(b[:], size-tailSize)
	return err == nil && belongsToShard(b[:], tailMagic, cacheID, shardID)
}
