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

// How long Put does not ask again for room where none could be made: less where a shard of ours is
// on its way to the disk, and can be evicted then. To wait for the disk instead would make training
// as slow as it.
const (
	declineFor     = time.Second
	declineSealing = 20 * time.Millisecond
)

// lockOnPut: others hold it for a millisecond a shard; a stopped process holds it for ever. Tests
// that count what is kept wait longer.
var lockOnPut = 100 * time.Millisecond

// writing is the side of an unsealed shard that its writers use.
type writing struct {
	sh       *shard
	f        *os.File // locked while it is open
	name     string
	capacity int64
	end      int64 // of what is given out; Dir.mu
	rows     int64 // Dir.mu
	pending  sync.WaitGroup
	mu       sync.Mutex
	slots    []slot // written in whole
	done     chan struct{}
	halt     *halt // of a sealing that failed; valid after done
}

// take gives out room for n bytes. Dir.mu is held, so that nothing is given out after the shard was
// retired.
func (w *writing) take(n int64) (off int64, ok bool) {
	size := entryHead + roundUp(n)
	if w.end+size+(w.rows+1)*tableRow+tailSize > w.capacity || w.rows == maxRows {
		return 0, false
	}
	off = w.end
	w.end += size
	w.rows++
	w.pending.Add(1)
	return off, true
}

// Put keeps the bytes of parts, one after the other, under k. A key that is there is not written
// again. Where the cache has no room (KeepUsed) or stopped writing, Put does nothing and counts it;
// the first failing write returns why, or the next Put where it was the sealing of a shard that
// failed.
func (d *Dir) Put(k Key, parts ...[]byte) error {
	if !d.Accepts() {
		d.count(declined)
		if h := d.stopped.Load(); h != nil {
			return h.tell()
		}
		return nil
	}
	st := d.stripe(k)
	st.Lock()
	if _, there := st.m[k]; there {
		st.Unlock()
		return nil
	}
	st.m[k] = nil // being written
	st.Unlock()

	r, err := d.write(k, parts)
	if r == nil {
		st.Lock()
		if now, there := st.m[k]; there && now == nil {
			delete(st.m, k)
		}
		st.Unlock()
	}
	return err
}

func declined(s *Stats) { s.Declined++ }

// Accepts says whether Put would try to write, so that a caller can spare itself the making of what
// is not kept.
func (d *Dir) Accepts() bool {
	return d.stopped.Load() == nil && !d.closed.Load() &&
		time.Now().UnixNano() >= d.declineTo.Load()
}

// write gives the new entry, or nil where it was declined or failed.
func (d *Dir) write(k Key, parts [][]byte) (*rec, error) {
	var n int64
	for _, p := range parts {
		n += int64(len(p))
	}
	if need := overhead + footprint(n) + markerBytes; need > d.opt.Budget {
		d.count(declined)
		return nil, robocache.ResourceLimit("write cache", robocache.Where{"cache": d.dir}, "an entry that needs %d bytes does not fit into a cache of %d", need, d.opt.Budget).
			WithHint("a larger %s", robocache.Option("cache_budget"))
	}
	w, off, err := d.reserve(n)
	if w == nil {
		d.count(declined)
		return nil, err
	}
	defer w.pending.Done()
	s := slot{key: k, off: off + entryHead, n: n, sum: hash(parts)}
	at := s.off
	for _, p := range parts {
		if _, err := w.f.WriteAt(p, at); err != nil {
			return nil, d.stop(fail("write cache", d.dir, w.name, err))
		}
		at += int64(len(p))
	}
	// The header last: a reader of a killed process's shard finds no entry that was not written in
	// whole.
	if _, err := w.f.WriteAt(entryHeader(s, w.sh.id), off); err != nil {
		return nil, d.stop(fail("write cache", d.dir, w.name, err))
	}
	w.mu.Lock()
	w.slots = append(w.slots, s)
	w.mu.Unlock()
	r := &rec{slot: s, sh: w.sh}
	w.sh.used.Store(time.Now().UnixNano())
	if !d.publish(r) {
		return nil, nil
	}
	d.count(func(s *Stats) { s.Puts, s.PutBytes = s.Puts+1, s.PutBytes+n })
	return r, nil
}

// publish puts an entry into the index, where nobody else has it. It reports false for a shard that
// was dropped.
func (d *Dir) publish(r *rec) bool {
	r.sh.mu.Lock()
	defer r.sh.mu.Unlock()
	if r.sh.dropped {
		return false
	}
	r.sh.recs = append(r.sh.recs, r)
	d.insert(r)
	return true
}

var hashers = sync.Pool{New: func() any { return xxh3.New() }}

func hash(parts [][]byte) uint64 {
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

// reserve gives room in the current shard, or in the next one. No room is (nil, 0, nil).
func (d *Dir) reserve(n int64) (*writing, int64, error) {
	if w, off := d.takeCurrent(n); w != nil {
		return w, off, nil
	}
	d.rollMu.Lock()
	defer d.rollMu.Unlock()
	if w, off := d.takeCurrent(n); w != nil {
		return w, off, nil
	}
	if !d.Accepts() {
		return nil, 0, nil // found out by the one before us
	}
	d.retire()
	w, err := d.newShard(n)
	if w == nil {
		return nil, 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shards[w.sh.id] = w.sh
	d.cur = w
	off, _ := w.take(n) // newShard made it large enough
	return w, off, nil
}

func (d *Dir) takeCurrent(n int64) (*writing, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur != nil && !d.closed.Load() {
		if off, ok := d.cur.take(n); ok {
			return d.cur, off
		}
	}
	return nil, 0
}

// newShard makes room and a file for it, which holds at least an entry of n bytes; nil without an
// error where there is none now. rollMu is held.
func (d *Dir) newShard(n int64) (*writing, error) {
	need := overhead + footprint(n)
	w := &writing{end: headSize, done: make(chan struct{})}
	var id uint64
	err := d.locked(lockOnPut, func() (err error) {
		if w.capacity, err = d.makeRoom(need); err != nil {
			return err
		}
		if w.capacity == 0 {
			return nil
		}
		w.f, id, err = d.createOpen()
		if err != nil {
			return err
		}
		w.name = fileName(d.id, id, openSuffix)
		// The size is what other processes count for it. It is a hole: the space itself is taken by
		// writing.
		if err := w.f.Truncate(w.capacity); err != nil {
			return err
		}
		_, err = w.f.WriteAt(head(d.id, id, w.capacity), 0)
		return err
	})
	if errors.Is(err, errBusy) || err == nil && w.f == nil {
		d.count(func(s *Stats) { s.Full = true })
		pause := declineFor
		d.mu.Lock()
		if len(d.sealing) > 0 {
			pause = declineSealing
		}
		d.mu.Unlock()
		d.declineTo.Store(time.Now().Add(pause).UnixNano())
		return nil, nil
	}
	var mem []byte
	if err == nil {
		mem, err = mapFile(w.f, w.capacity)
	}
	if err != nil {
		if w.f != nil {
			_ = d.root.Remove(w.name)
			w.f.Close()
		}
		return nil, d.stop(fail("write cache", d.dir, w.name, err))
	}
	w.sh = &shard{d: d, id: id, mem: mem, size: w.capacity}
	w.sh.refs.Store(1)
	w.sh.used.Store(time.Now().UnixNano())
	return w, nil
}

// halt is why writing ended. It is told once, by whichever Put comes first: the one that failed, or
// the next where it was the sealing of a shard, beside all callers.
type halt struct {
	err  *robocache.Error
	told atomic.Bool
}

func (h *halt) tell() error {
	if h.told.CompareAndSwap(false, true) {
		return h.err
	}
	return nil
}

// halt ends writing for good. It is nil where writing had ended already.
func (d *Dir) halt(err error) *halt {
	e, ok := err.(*robocache.Error)
	if !ok {
		e = robocache.NewError(robocache.Classify(err), "write cache", robocache.Where{"cache": d.dir}, "").
			WithCause(err)
	}
	h := &halt{err: e}
	if !d.stopped.CompareAndSwap(nil, h) {
		return nil
	}
	return h
}

// stop is halt for a Put that failed. The first caller gets the reason, the others nothing.
func (d *Dir) stop(err error) error {
	if h := d.halt(err); h != nil {
		return h.tell()
	}
	return nil
}
