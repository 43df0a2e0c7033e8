package cache

import "os"

// recoverThese seals or removes what dead writers left, and says how many. The lock of the directory is held.
func (d *Dir) recoverThese(v []found) (n int) {
	for _, f := range v {
		if !f.sealed && d.recoverOne(f) {
			n++
		}
	}
	return n
}

// recoverOne takes the lock that a living writer would have. A process that died in the middle of a write left entries whose
// header is missing, or, after a power cut, headers whose data is missing: the first are not found, the second fail their checksum when read.
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
			d.recovered.Add(1)
			d.recoveredEntries.Add(int64(len(slots)))
			return true
		}
	}
	if d.root.Remove(v.name) != nil {
		return false
	}
	d.removedOpen.Add(1)
	return true
}
