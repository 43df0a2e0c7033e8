package cache

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/goatnote-inc/robocache"
)

// Time during which Put declines entries after it could not free space. It is shorter while a shard
// of this process is being sealed, because that shard can be evicted afterwards. Put does not wait
// for the disk, because training would then be as slow as the disk.
const (
	declineFor     = time.Second
	declineSealing = 20 * time.Millisecond
)

// putLockLimit is the longest wait of Put for the directory lock. Other processes hold the lock for
// about a millisecond per shard, but a stopped process holds it forever. Tests that count kept
// entries wait longer.
var putLockLimit = 100 * time.Millisecond

// shardWriter is the state that writers of an unsealed shard share.
type shardWriter struct {
	shard    *shard
	file     *os.File // locked while it is open
	name     string
	capacity int64
	end      int64          // end of the reserved space; guarded by Dir.mu
	rowCount int64          // entries with reserved space; guarded by Dir.mu
	pending  sync.WaitGroup // entries with reserved space that are still being written
	mu       sync.Mutex
	slots    []slot        // completely written entries
	done     chan struct{} // closed after sealing
	halt     *halt         // set if sealing failed; valid after done is closed
}

// reserveEntry reserves space for n bytes. Caller must hold Dir.mu, so that no space is reserved
// after the shard was retired.
func (w *shardWriter) reserveEntry(n int64) (off int64, ok bool) {
	size := entryHead + alignUp(n)
	if w.end+size+(w.rowCount+1)*tableRow+tailSize > w.capacity || w.rowCount == maxRows {
		return 0, false
	}
	off = w.end
	w.end += size
	w.rowCount++
	w.pending.Add(1)
	return off, true
}

// Put stores the concatenation of parts under k. It does nothing if the key is present. If the
// cache has no space, Put counts the entry as declined and returns nil. The first error of a write
// stops all writing. Exactly one Put returns that error: the Put that failed, or the next one if
// sealing a shard failed. All later Puts are declined. Put also returns an error for an entry that
// is larger than the budget.
func (d *Dir) Put(k Key, parts ...[]byte) error {
	if !d.Accepts() {
		d.updateStats(countDeclined)
		if h := d.writeHalt.Load(); h != nil {
			return h.reportOnce()
		}
		return nil
	}
	st := d.stripeOf(k)
	st.Lock()
	if _, known := st.m[k]; known {
		st.Unlock()
		return nil
	}
	st.m[k] = nil // marks the key as being written
	st.Unlock()

	r, err := d.writeEntry(k, parts)
	if r == nil {
		st.Lock()
		if e, known := st.m[k]; known && e == nil {
			delete(st.m, k)
		}
		st.Unlock()
	}
	return err
}

func countDeclined(s *Stats) { s.Declined++ }

// Accepts reports whether Put would try to write. Callers use it to avoid computing data that would
// not be stored.
func (d *Dir) Accepts() bool {
	return d.writeHalt.Load() == nil && !d.closed.Load() &&
		time.Now().UnixNano() >= d.declineUntil.Load()
}

// writeEntry writes a new entry and adds it to the index. It returns nil if the entry was declined
// or failed.
func (d *Dir) writeEntry(k Key, parts [][]byte) (*indexedEntry, error) {
	var n int64
	for _, p := range parts {
		n += int64(len(p))
	}
	if need := overhead + entryFootprint(n) + markerBytes; need > d.options.Budget {
		d.updateStats(countDeclined)
		return nil, robocache.ResourceLimit("write cache", robocache.Where{
			"cache": d.dir,
		}, "an entry that needs %d bytes does not fit into a cache of %d", need, d.options.Budget).
			WithHint("pass a larger %s", robocache.Option("cache_budget"))
	}
	w, off, err := d.reserveSpace(n)
	if w == nil {
		d.updateStats(countDeclined)
		return nil, err
	}
	defer w.pending.Done()
	s := slot{key: k, off: off + entryHead, n: n, sum: hashParts(parts)}
	at := s.off
	for _, p := range parts {
		if _, err := w.file.WriteAt(p, at); err != nil {
			return nil, d.failPut(systemError("write cache", d.dir, w.name, err))
		}
		at += int64(len(p))
	}
	// The header is written last, so that recovery after a crash finds only complete entries.
	if _, err := w.file.WriteAt(entryHeader(s, w.shard.id), off); err != nil {
		return nil, d.failPut(systemError("write cache", d.dir, w.name, err))
	}
	w.mu.Lock()
	w.slots = append(w.slots, s)
	w.mu.Unlock()
	r := &indexedEntry{slot: s, shard: w.shard}
	w.shard.lastUsed.Store(time.Now().UnixNano())
	if !d.publishEntry(r) {
		return nil, nil
	}
	d.updateStats(func(s *Stats) {
		s.Puts++
		s.PutBytes += n
	})
	return r, nil
}

// publishEntry adds an entry of this process to the index. It returns false if the shard was
// dropped.
func (d *Dir) publishEntry(r *indexedEntry) bool {
	r.shard.mu.Lock()
	defer r.shard.mu.Unlock()
	if r.shard.dropped {
		return false
	}
	r.shard.entries = append(r.shard.entries, r)
	d.insertEntry(r)
	return true
}

var hashers = sync.Pool{New: func() any { return xxh3.New() }}

func hashParts(parts [][]byte) uint64 {
	if len(parts) == 1 {
		return xxh3.Hash(parts[0])
	}
	h := hashers.Get().(*xxh3.Hasher)
	defer hashers.Put(h)
	h.Reset()
	for _, p := range parts {
		_, _ = h.Write(p) // never fails
	}
	return h.Sum64()
}

// reserveSpace reserves space in the current shard or in a new one. It returns (nil, 0, nil) if
// there is no space.
func (d *Dir) reserveSpace(n int64) (*shardWriter, int64, error) {
	if w, off := d.reserveInCurrent(n); w != nil {
		return w, off, nil
	}
	d.rollMu.Lock()
	defer d.rollMu.Unlock()
	if w, off := d.reserveInCurrent(n); w != nil {
		return w, off, nil
	}
	if !d.Accepts() {
		return nil, 0, nil // a concurrent call already failed to free space
	}
	d.retireCurrent()
	w, err := d.createShard(n)
	if w == nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shards[w.shard.id] = w.shard
	d.current = w
	off, _ := w.reserveEntry(n) // createShard made the shard large enough
	return w, off, nil
}

func (d *Dir) reserveInCurrent(n int64) (*shardWriter, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil && !d.closed.Load() {
		if off, ok := d.current.reserveEntry(n); ok {
			return d.current, off
		}
	}
	return nil, 0
}

// createShard frees space and creates a shard that holds at least one entry of n bytes. It returns
// nil without an error if there is no space now. Caller must hold rollMu.
func (d *Dir) createShard(n int64) (*shardWriter, error) {
	need := overhead + entryFootprint(n)
	w := &shardWriter{end: headSize, done: make(chan struct{})}
	var id uint64
	err := d.withDirLock(putLockLimit, func() (err error) {
		if w.capacity, err = d.makeSpace(need); err != nil {
			return err
		}
		if w.capacity == 0 {
			return nil
		}
		w.file, id, err = d.createLocked()
		if err != nil {
			return err
		}
		w.name = shardFileName(d.id, id, openSuffix)
		// Other processes count this size. The file is a hole: writing allocates the disk space.
		if err := w.file.Truncate(w.capacity); err != nil {
			return err
		}
		_, err = w.file.WriteAt(shardHead(d.id, id, w.capacity), 0)
		return err
	})
	if errors.Is(err, errBusy) || err == nil && w.file == nil {
		d.updateStats(func(s *Stats) { s.Full = true })
		pause := declineFor
		d.mu.Lock()
		if len(d.sealing) > 0 {
			pause = declineSealing
		}
		d.mu.Unlock()
		d.declineUntil.Store(time.Now().Add(pause).UnixNano())
		return nil, nil
	}
	var mem []byte
	if err == nil {
		mem, err = mapFile(w.file, w.capacity)
	}
	if err != nil {
		if w.file != nil {
			_ = d.root.Remove(w.name)
			w.file.Close()
		}
		return nil, d.failPut(systemError("write cache", d.dir, w.name, err))
	}
	w.shard = &shard{dir: d, id: id, mem: mem, size: w.capacity}
	w.shard.refs.Store(1)
	w.shard.lastUsed.Store(time.Now().UnixNano())
	return w, nil
}

// halt holds the error that ended writing. Exactly one Put returns it: the Put that failed, or the
// next one if sealing a shard failed in the background.
type halt struct {
	err      *robocache.Error
	reported atomic.Bool
}

func (h *halt) reportOnce() error {
	if h.reported.CompareAndSwap(false, true) {
		return h.err
	}
	return nil
}

// stopWriting ends writing permanently. It returns nil if writing had already ended.
func (d *Dir) stopWriting(err error) *halt {
	e, ok := err.(*robocache.Error)
	if !ok {
		e = robocache.NewError(robocache.Classify(err), "write cache", robocache.Where{
			"cache": d.dir,
		}, "").
			WithCause(err)
	}
	h := &halt{err: e}
	if !d.writeHalt.CompareAndSwap(nil, h) {
		return nil
	}
	return h
}

// failPut ends writing after a failed Put. It returns the error to the first caller and nil to
// later ones.
func (d *Dir) failPut(err error) error {
	if h := d.stopWriting(err); h != nil {
		return h.reportOnce()
	}
	return nil
}
