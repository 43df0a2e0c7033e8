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

// shard is one mapped file. The index holds one reference, every Entry that is out another one; the
// last one unmaps.
type shard struct {
	d    *Dir
	id   uint64
	mem  []byte
	size int64 // bytes on disk, once sealed
	refs atomic.Int64

	sealed  atomic.Bool
	damaged atomic.Bool
	used    atomic.Int64 // unix ns of the last Get, Put or known use by others
	told    atomic.Int64 // unix ns when the file's time was set last

	round  atomic.Uint32 // how often its pages were let go of
	mapped atomic.Int64  // bytes touched in this round

	mu      sync.Mutex
	recs    []*rec // what the index may hold of it
	dropped bool   // no longer in the index
}

// rec is an entry in the index.
type rec struct {
	slot
	sh    *shard
	state atomic.Uint32
	round atomic.Uint32 // the shard's, plus one, in which it was touched last
}

const (
	unchecked = iota
	intact
	bad
)

func (s *shard) unref() {
	if s.refs.Add(-1) == 0 {
		unmap(s.mem)
		s.d.mapped.Add(-s.mapped.Swap(0))
		if s.dropped { // set before the reference of the index went
			s.d.zombies.Add(-s.size)
		}
	}
}

// Entry is bytes of the cache: read-only, 64-byte aligned, valid until Release.
type Entry struct {
	Data []byte
	sh   *shard
}

// Release gives the bytes back. A second one does nothing; Data must not be touched any more.
func (e *Entry) Release() {
	if s := e.sh; s != nil {
		e.Data, e.sh = nil, nil
		s.unref()
	}
}

// data is the entry's part of the mapping. The caller holds a reference of the shard.
func (r *rec) data() []byte { return r.sh.mem[r.off : r.off+r.n : r.off+r.n] }

// check has the entry's bytes in memory and says whether they are right.
func (r *rec) check() bool {
	b := r.data()
	if r.state.Load() == bad || resident(b) != nil {
		return false
	}
	if r.state.Load() == intact {
		return true
	}
	if sum, ok := guarded(b); !ok || sum != r.sum {
		return false
	}
	r.state.CompareAndSwap(unchecked, intact)
	r.sh.d.count(func(s *Stats) { s.VerifiedBytes += r.n })
	return true
}

// guarded hashes mapped bytes. A page that cannot be read (the file shrank, the disk failed) is a
// panic here and not the end of the process.
func guarded(b []byte) (sum uint64, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			sum, ok = 0, false
		}
	}()
	return xxh3.Hash(b), true
}

// tellAfter is how long other processes may not know that a shard is in use.
const tellAfter = 10 * time.Second

// use notes a Get, and now and then writes it on the file, where other processes see it.
func (s *shard) use(now int64) {
	s.used.Store(now)
	told := s.told.Load()
	if now-told > int64(tellAfter) && s.sealed.Load() && !s.damaged.Load() &&
		s.told.CompareAndSwap(told, now) {
		s.tell(now)
	}
}

func (s *shard) tell(now int64) {
	t := time.Unix(0, now)
	if err := s.d.root.Chtimes(
		fileName(s.d.id, s.id, sealedSuffix),
		t,
		t,
	); errors.Is(
		err,
		fs.ErrNotExist,
	) {
		s.d.drop(s) // another process evicted it: its bytes stay on disk as long as we map them
	}
}

// spoil marks the shard as the first to be evicted, in every process.
func (s *shard) spoil() {
	if s.damaged.Swap(true) {
		return
	}
	s.used.Store(0)
	if s.sealed.Load() {
		_ = s.d.root.Chtimes(fileName(s.d.id, s.id, sealedSuffix), time.Unix(0, 0), time.Unix(0, 0))
	}
}

// openPlain opens a file of the cache: a regular one, not through a link.
func openPlain(root *os.Root, name string, flag int) (_ *os.File, _ os.FileInfo, err error) {
	listed, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !listed.Mode().IsRegular() {
		return nil, nil, errNotPlain
	}
	f, err := root.OpenFile(name, flag|plainOnly, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(listed, info) {
		err = errNotPlain
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

var errNotPlain = errors.New("not a regular file")

// isOurs says whether a file with a name of ours was made by this cache: its head names the cache
// and the shard, or it is what a crash leaves before the head is written.
func isOurs(f *os.File, size int64, cacheID, shardID uint64) bool {
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
	if b == [headSize]byte{} || isOf(b[:], headMagic, cacheID, shardID) {
		return true
	}
	// A damaged head: the tail says it as well.
	_, err := f.ReadAt(b[:], size-tailSize)
	return err == nil && isOf(b[:], tailMagic, cacheID, shardID)
}
