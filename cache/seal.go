package cache

import (
	"errors"
	"os"
	"slices"
	"time"
)

// retireCurrent detaches the current shard from the writers and seals it in the background. Caller
// must hold rollMu.
func (d *Dir) retireCurrent() {
	d.mu.Lock()
	w := d.current
	d.current = nil
	if w != nil {
		d.sealing = append(d.sealing, w)
	}
	d.mu.Unlock()
	if w != nil {
		go d.sealShard(w)
	}
}

// Flush seals the entries that this process wrote, so that other processes see them. Blocks until
// sealing is complete.
func (d *Dir) Flush() error {
	d.rollMu.Lock()
	d.retireCurrent()
	d.rollMu.Unlock()
	d.mu.Lock()
	waiting := append([]*shardWriter(nil), d.sealing...)
	d.mu.Unlock()
	var all []error
	for _, w := range waiting {
		<-w.done
		if w.halt != nil {
			w.halt.reported.Store(true) // reported by this call
			all = append(all, w.halt.err)
		}
	}
	return errors.Join(all...)
}

// sealShard waits for pending writes and seals the shard. If sealing fails, it removes the shard
// and stops writing. The entries of a shard can be read while it is being sealed.
func (d *Dir) sealShard(w *shardWriter) {
	w.pending.Wait()
	err := d.finishSealing(w)
	if err != nil {
		// An incomplete shard is useless, so remove it and free its space.
		_ = d.root.Remove(w.name)
		d.dropShard(w.shard)
		w.halt = d.stopWriting(systemError("seal cache", d.dir, w.name, err))
	}
	w.file.Close()
	d.mu.Lock()
	d.sealing = slices.DeleteFunc(d.sealing, func(other *shardWriter) bool { return other == w })
	d.mu.Unlock()
	close(w.done)
}

// finishSealing writes the table, makes the file durable and renames it. A shard without entries is
// removed instead.
func (d *Dir) finishSealing(w *shardWriter) (err error) {
	s := w.shard
	if len(w.slots) == 0 {
		err := d.root.Remove(w.name)
		d.dropShard(s)
		return err
	}
	size, err := writeTable(w.file, w.slots, w.end, d.id, s.id)
	if err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return err
	}
	if err := d.renameLocked(w.name, shardFileName(d.id, s.id, sealedSuffix)); err != nil {
		return err
	}
	d.syncDir()
	s.size = size
	s.writtenUse.Store(time.Now().UnixNano())
	s.sealed.Store(true)
	if s.damaged.Swap(false) {
		s.markDamaged() // again, because the file had another name at the first call
	}
	return nil
}

// renameLocked renames a shard under the directory lock, because a process that lists files at the
// same time could miss both names. It opens the marker again, so that the lock also excludes other
// goroutines of this process. If the lock cannot be taken, the shard is renamed anyway: exceeding
// the budget for a moment is better than losing a shard.
func (d *Dir) renameLocked(from, to string) error {
	if f, err := d.root.OpenFile(markerName, os.O_RDWR|plainOnly, 0); err == nil {
		defer f.Close()
		_ = lockWithin(f, openLockLimit)
	}
	return d.root.Rename(from, to)
}

// writeTable appends the table to a shard and truncates the file behind it. It returns the file's
// size.
func writeTable(f *os.File, slots []slot, end int64, cacheID, shardID uint64) (int64, error) {
	b := encodeTable(slots, end, cacheID, shardID)
	if _, err := f.WriteAt(b, end); err != nil {
		return 0, err
	}
	size := end + int64(len(b))
	return size, f.Truncate(size)
}

// syncDir makes the names of files durable. If it fails, a crash may lose a shard, but never causes
// wrong bytes.
func (d *Dir) syncDir() {
	if f, err := d.root.Open("."); err == nil {
		_ = f.Sync()
		f.Close()
	}
}

// recoverLeftovers seals or removes the shards of dead writers and returns their number. Caller
// must hold the directory lock.
func (d *Dir) recoverLeftovers(v []cacheFile) (n int) {
	for _, f := range v {
		if !f.sealed && d.recoverLeftover(f) {
			n++
		}
	}
	return n
}

// recoverLeftover seals or removes an unsealed shard if no living writer holds its lock. It reports
// whether it did so. An entry without a header was not completely written and is not found. After a
// power cut, a header may be present without its data. Such an entry fails its checksum when it is
// read.
func (d *Dir) recoverLeftover(v cacheFile) bool {
	f, _, err := openRegular(d.root, v.name, os.O_RDWR)
	if err != nil {
		return false
	}
	defer f.Close()
	if ok, err := tryLock(f); err != nil || !ok || !d.stillNamed(f, v.name) {
		return false
	}
	// Read the size again under the lock, because the writer may have written or sealed the shard
	// since.
	info, err := f.Stat()
	if err != nil || !isOwnFile(f, info.Size(), d.id, v.id) {
		return false
	}
	slots, end, err := scanEntries(f, info.Size(), v.id, dataSeeker(f))
	if err == nil && len(slots) > 0 {
		_, err = writeTable(f, slots, alignUp(end), d.id, v.id)
		if err == nil {
			err = d.root.Rename(v.name, shardFileName(d.id, v.id, sealedSuffix))
		}
		if err == nil {
			_ = d.root.Chtimes(
				shardFileName(d.id, v.id, sealedSuffix),
				info.ModTime(),
				info.ModTime(),
			)
			d.updateStats(func(s *Stats) {
				s.Recovered++
				s.RecoveredEntries += int64(len(slots))
			})
			return true
		}
	}
	if d.root.Remove(v.name) != nil {
		return false
	}
	d.updateStats(func(s *Stats) { s.RemovedLeftovers++ })
	return true
}
