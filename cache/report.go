package cache

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/goatnote-inc/robocache"
)

// Listing is the content of a cache.
type Listing struct {
	Dir       string `json:"dir"`
	ID        string `json:"id"`
	Bytes     int64  `json:"bytes"` // size of the files, with those of derived streams
	Entries   int64  `json:"entries"`
	DataBytes int64  `json:"data_bytes"` // size of the entries
	// number of files that do not belong to the cache; they are never changed
	Foreign int         `json:"foreign"`
	Derived int         `json:"derived_streams"`
	Shards  []ShardInfo `json:"shards"` // most recently used first
}

// ShardInfo is one file of a cache.
type ShardInfo struct {
	File string `json:"file"`
	// one of the State constants
	State     string    `json:"state"`
	Bytes     int64     `json:"bytes"` // on disk
	Entries   int       `json:"entries"`
	DataBytes int64     `json:"data_bytes"`
	LastUsed  time.Time `json:"last_used"`
}

// States of a file.
const (
	StateSealed  = "sealed"
	StateWriting = "being written"
	// The writer is dead. The next Open or Prune seals or removes the file.
	StateLeftBehind = "left behind"
	StateDamaged    = "damaged"
	StateForeign    = "not ours"
	StateUnreadable = "unreadable"
)

// List returns the content of a cache. It changes nothing and reads only tables.
func List(dir string) (_ *Listing, err error) {
	cache, files, err := openExisting(dir, false)
	if err != nil {
		return nil, err
	}
	defer cache.Close()
	listing := &Listing{Dir: cache.dir, ID: fmt.Sprintf("%016x", cache.id), Shards: []ShardInfo{}}
	names, err := listNames(cache.root)
	if err != nil {
		return nil, systemError("list cache", cache.dir, "", err)
	}
	listing.Foreign = max(len(names)-len(files)-1, 0) // the marker is not foreign
	if slices.Contains(names, derivedFolder) {
		listing.Foreign--
	}
	for _, s := range cache.listDerived() {
		listing.Derived++
		listing.Bytes += s.bytes
	}
	for _, f := range files {
		info := ShardInfo{File: f.name, Bytes: f.disk, LastUsed: time.Unix(0, f.used).UTC()}
		var slots []slot
		info.State, slots = cache.fileState(f, nil)
		info.Entries = len(slots)
		for _, s := range slots {
			info.DataBytes += s.n
		}
		listing.Bytes += info.Bytes
		listing.Entries += int64(info.Entries)
		listing.DataBytes += info.DataBytes
		listing.Shards = append(listing.Shards, info)
	}
	slices.SortFunc(listing.Shards, func(a, b ShardInfo) int {
		return cmp.Or(b.LastUsed.Compare(a.LastUsed), cmp.Compare(a.File, b.File))
	})
	return listing, nil
}

// openExisting opens an existing cache and lists its files. write must be set if the caller takes
// the directory lock or removes files.
func openExisting(dir string, write bool) (*Dir, []cacheFile, error) {
	if !supported {
		return nil, nil, errUnsupported()
	}
	d, err := openDir(dir, false) // with true, openDir would create a missing cache
	if err == nil && write {
		d.Close()
		d, err = openDir(dir, true)
	}
	if err != nil {
		return nil, nil, err
	}
	v, err := d.listFiles()
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, v, nil
}

// fileState returns the state of a file and its entries. If use is not nil, it is called with a
// sealed file and its entries.
func (d *Dir) fileState(v cacheFile, use func(f *os.File, slots []slot)) (string, []slot) {
	f, info, err := openRegular(d.root, v.name, os.O_RDONLY)
	if err != nil {
		return StateUnreadable, nil
	}
	defer f.Close()
	if !v.sealed {
		ok, err := tryLock(f) // released by Close
		switch {
		case err != nil:
			return StateUnreadable, nil
		case !ok:
			return StateWriting, nil
		}
		return StateLeftBehind, nil
	}
	slots, ok, err := readTable(f, info.Size(), d.id, v.id)
	switch {
	case err != nil:
		return StateUnreadable, nil
	case ok:
		if use != nil {
			use(f, slots)
		}
		return StateSealed, slots
	case isOwnFile(f, info.Size(), d.id, v.id):
		return StateDamaged, nil
	}
	return StateForeign, nil
}

// Pruned is the result of Prune.
type Pruned struct {
	Dir          string `json:"dir"`
	Removed      int64  `json:"removed_shards"`
	RemovedBytes int64  `json:"removed_bytes"`
	// number of removed derived streams
	RemovedDerived int64 `json:"removed_derived"`
	Recovered      int64 `json:"recovered_shards"` // shards of dead writers that were sealed
	// shards of dead writers that were removed, because they had no entries or could not be sealed
	Leftovers int64 `json:"removed_leftovers"`
	Bytes     int64 `json:"bytes"` // remaining bytes
}

// Prune evicts shards and derived streams, the least recently used first, until the cache takes at
// most budget bytes. With budget 0 it removes all shards and derived streams except those that are
// being written.
func Prune(dir string, budget int64) (_ *Pruned, err error) {
	if budget < 0 {
		return nil, robocache.Misuse("prune cache", nil, "").
			Expected("a budget of at least 0 bytes", fmt.Sprint(budget))
	}
	d, _, err := openExisting(dir, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	p := &Pruned{Dir: d.dir}
	if err := d.withDirLock(openLockLimit, func() error {
		v, err := d.measureFiles(alwaysRecover)
		if err == nil {
			p.Bytes = d.pruneDerived(v, budget, p)
			d.evictShards(v, budget-p.Bytes, false)
		}
		return err
	}); err != nil {
		return nil, err
	}
	s := d.Stats()
	p.Removed, p.Recovered, p.Leftovers = s.Evicted, s.Recovered, s.RemovedLeftovers
	p.RemovedBytes += s.EvictedBytes
	p.Bytes += s.Bytes
	return p, nil
}

// VerifyOptions configures Verify.
type VerifyOptions struct {
	Drop     bool                    // remove damaged shards
	Progress func(done, total int64) // in bytes
}

// Verification is the result of Verify.
type Verification struct {
	Dir     string `json:"dir"`
	Shards  int    `json:"shards"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	// Number of unsealed shards. Their entries are verified when they are read.
	Skipped int      `json:"skipped"`
	Damaged []Damage `json:"damaged"`
	Dropped int64    `json:"dropped_shards"`
}

// Damage describes a damaged shard or entry.
type Damage struct {
	File   string `json:"file"`
	Key    string `json:"key,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	What   string `json:"what"` // "checksum", an error of reading, or the state of the shard
}

// Verify reads every entry of every sealed shard and verifies its checksum.
func Verify(ctx context.Context, dir string, opt VerifyOptions) (_ *Verification, err error) {
	d, files, err := openExisting(dir, opt.Drop)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	result := &Verification{Dir: d.dir, Damaged: []Damage{}}
	total := totalSize(files)
	done := int64(0)
	buf := make([]byte, 1<<20)
	for _, f := range files {
		if !f.sealed {
			result.Skipped++
			continue
		}
		before := len(result.Damaged)
		if err := d.verifyShard(ctx, f, buf, result); err != nil {
			return result, err
		}
		done += f.size
		if opt.Progress != nil {
			opt.Progress(done, total)
		}
		if len(result.Damaged) > before && opt.Drop && d.removeShard(f) {
			result.Dropped++
		}
	}
	return result, nil
}

// verifyShard verifies the checksums of a sealed shard and adds the result to r. buf is memory for
// reading.
func (d *Dir) verifyShard(ctx context.Context, v cacheFile, buf []byte, r *Verification) error {
	h := xxh3.New()
	state, _ := d.fileState(v, func(f *os.File, slots []slot) {
		r.Shards++
		for _, s := range slots {
			if ctx.Err() != nil {
				return
			}
			h.Reset()
			n, err := io.CopyBuffer(h, io.NewSectionReader(f, s.off, s.n), buf)
			r.Entries++
			r.Bytes += n
			if err != nil || n != s.n || h.Sum64() != s.sum {
				what := "checksum"
				if err != nil {
					what = err.Error()
				}
				r.Damaged = append(r.Damaged, Damage{
					File:   v.name,
					Key:    hex.EncodeToString(s.key[:]),
					Offset: s.off,
					Bytes:  s.n,
					What:   what,
				})
			}
		}
	})
	if state != StateSealed && state != StateForeign {
		r.Damaged = append(r.Damaged, Damage{File: v.name, What: state})
	}
	return ctx.Err()
}
