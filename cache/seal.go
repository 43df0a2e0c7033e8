package cache

import (
	"errors"
	"os"
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

// seal waits for the last writer and gives the shard its table and its name. The entries can be read all the while.
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
	for i, other := range d.sealing {
		if other == w {
			d.sealing = append(d.sealing[:i], d.sealing[i+1:]...)
			break
		}
	}
	d.mu.Unlock()
	close(w.done)
}

func (d *Dir) place(w *writing) error {
	s := w.sh
	if len(w.slots) == 0 {
		err := d.root.Remove(w.name)
		d.drop(s)
		return err
	}
	size, err := writeTable(w.f, w.slots, w.end, d.id, s.id)
	if err == nil {
		err = w.f.Sync()
	}
	if err == nil {
		err = d.rename(w.name, fileName(d.id, s.id, sealedSuffix))
	}
	if err != nil {
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

// rename gives a shard its name under the lock of the directory: a process that counts its bytes meanwhile could miss both names.
// The lock is taken through an opening of its own, so that it holds against the other goroutines of this process too. Where it cannot be had, a budget that is
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
