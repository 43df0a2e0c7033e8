package cache

import (
	"errors"
	"os"
	"slices"
	"time"
)

// retire takes the current shard from the writers and has it sealed. rollMu is held.
func (d *Dir) retire() {
	d.mu.Lock()
	w := d.cur
	d.cur = nil
	if w != nil {
		d.sealing = append(d.sealing, w)
	}
	d.mu.Unlock()
	if w != nil {
		go d.seal(w)
	}
}

// Flush seals what this process wrote, so that others see it, and waits for that.
func (d *Dir) Flush() error {
	d.rollMu.Lock()
	d.retire()
	d.rollMu.Unlock()
	d.mu.Lock()
	waiting := append([]*writing(nil), d.sealing...)
	d.mu.Unlock()
	var all []error
	for _, w := range waiting {
		<-w.done
		if w.halt != nil {
			w.halt.told.Store(true) // said now
			all = append(all, w.halt.err)
		}
	}
	return errors.Join(all...)
}

// seal waits for the last writer and gives the shard its table and its name. The entries can be
// read all the while.
func (d *Dir) seal(w *writing) {
	w.pending.Wait()
	err := d.place(w)
	if err != nil {
		// Half a shard helps nobody; the space is wanted back.
		_ = d.root.Remove(w.name)
		d.drop(w.sh)
		w.halt = d.halt(fail("seal cache", d.dir, w.name, err))
	}
	w.f.Close()
	d.mu.Lock()
	d.sealing = slices.DeleteFunc(d.sealing, func(other *writing) bool { return other == w })
	d.mu.Unlock()
	close(w.done)
}

func (d *Dir) place(w *writing) (err error) {
	s := w.sh
	if len(w.slots) == 0 {
		err := d.root.Remove(w.name)
		d.drop(s)
		return err
	}
	size, err := writeTable(w.f, w.slots, w.end, d.id, s.id)
	if err != nil {
		return err
	}
	if err := w.f.Sync(); err != nil {
		return err
	}
	if err := d.rename(w.name, fileName(d.id, s.id, sealedSuffix)); err != nil {
		return err
	}
	d.syncDir()
	s.size = size
	s.told.Store(time.Now().UnixNano())
	s.sealed.Store(true)
	if s.damaged.Swap(false) {
		s.spoil() // found damaged before there was a name to say it on
	}
	return nil
}

// rename gives a shard its name under the lock of the directory: a process that counts its bytes
// meanwhile could miss both names. The lock is taken through an opening of its own, so that it
// holds against the other goroutines of this process too. Where it cannot be had, a budget that is
// passed by a shard for a moment is better than a shard that is lost.
func (d *Dir) rename(from, to string) error {
	if f, err := d.root.OpenFile(markerName, os.O_RDWR|plainOnly, 0); err == nil {
		defer f.Close()
		_ = lockWithin(f, lockOnOpen)
	}
	return d.root.Rename(from, to)
}

// writeTable ends a shard's file and gives its size.
func writeTable(f *os.File, slots []slot, end int64, cacheID, shardID uint64) (int64, error) {
	b := table(slots, end, cacheID, shardID)
	if _, err := f.WriteAt(b, end); err != nil {
		return 0, err
	}
	size := end + int64(len(b))
	return size, f.Truncate(size)
}

// syncDir makes names durable. Where it cannot, a crash costs a shard, never a wrong byte.
func (d *Dir) syncDir() {
	if f, err := d.root.Open("."); err == nil {
		_ = f.Sync()
		f.Close()
	}
}

// recoverThese seals or removes what dead writers left, and says how many. The lock of the
// directory is held.
func (d *Dir) recoverThese(v []found) (n int) {
	for _, f := range v {
		if !f.sealed && d.recoverOne(f) {
			n++
		}
	}
	return n
}

// recoverOne takes the lock that a living writer would have. A process that died in the middle of a
// write left entries whose header is missing, or, after a power cut, headers whose data is missing:
// the first are not found, the second fail their checksum when read.
func (d *Dir) recoverOne(v found) bool {
	f, _, err := openPlain(d.root, v.name, os.O_RDWR)
	if err != nil {
		return false
	}
	defer f.Close()
	if ok, err := tryLock(f); err != nil || !ok || !d.stillNamed(f, v.name) {
		return false
	}
	// The size again, under the lock: its writer may have sealed or written in between.
	info, err := f.Stat()
	if err != nil || !isOurs(f, info.Size(), d.id, v.id) {
		return false
	}
	slots, end, err := scan(f, info.Size(), v.id, nextData(f))
	if err == nil && len(slots) > 0 {
		_, err = writeTable(f, slots, roundUp(end), d.id, v.id)
		if err == nil {
			err = d.root.Rename(v.name, fileName(d.id, v.id, sealedSuffix))
		}
		if err == nil {
			_ = d.root.Chtimes(fileName(d.id, v.id, sealedSuffix), info.ModTime(), info.ModTime())
			d.count(
				func(s *Stats) { s.Recovered, s.RecoveredEntries = s.Recovered+1, s.RecoveredEntries+int64(len(slots)) },
			)
			return true
		}
	}
	if d.root.Remove(v.name) != nil {
		return false
	}
	d.count(func(s *Stats) { s.RemovedLeftovers++ })
	return true
}
