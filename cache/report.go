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

// Listing is what a cache holds.
type Listing struct {
	Dir       string      `json:"dir"`
	ID        string      `json:"id"`
	Bytes     int64       `json:"bytes"` // of the files
	Entries   int64       `json:"entries"`
	DataBytes int64       `json:"data_bytes"` // of the entries
	Foreign   int         `json:"foreign"`    // files that are none of ours, and are never touched
	Shards    []ShardInfo `json:"shards"`     // the most recently used first
}

// ShardInfo is one file of a cache.
type ShardInfo struct {
	File string `json:"file"`
	// sealed, being written, left behind, damaged, not ours, unreadable
	State     string    `json:"state"`
	Bytes     int64     `json:"bytes"` // on disk
	Entries   int       `json:"entries"`
	DataBytes int64     `json:"data_bytes"`
	LastUsed  time.Time `json:"last_used"`
}

// The states of a file.
const (
	StateSealed  = "sealed"
	StateWriting = "being written"
	// its writer is dead: the next Open or prune seals or removes it
	StateLeftBehind = "left behind"
	StateDamaged    = "damaged"
	StateForeign    = "not ours"
	StateUnreadable = "unreadable"
)

// List says what a cache holds. It changes nothing, and reads tables only.
func List(dir string) (_ *Listing, err error) {
	d, v, err := openThere(dir, false)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l := &Listing{Dir: d.dir, ID: fmt.Sprintf("%016x", d.id), Shards: []ShardInfo{}}
	names, err := listNames(d.root)
	if err != nil {
		return nil, fail("look into cache", d.dir, "", err)
	}
	l.Foreign = max(len(names)-1-len(v), 0)
	for _, f := range v {
		info := ShardInfo{File: f.name, Bytes: f.disk, LastUsed: time.Unix(0, f.used).UTC()}
		var slots []slot
		info.State, slots = d.examine(f, nil)
		info.Entries = len(slots)
		for _, s := range slots {
			info.DataBytes += s.n
		}
		l.Bytes += info.Bytes
		l.Entries += int64(info.Entries)
		l.DataBytes += info.DataBytes
		l.Shards = append(l.Shards, info)
	}
	slices.SortFunc(l.Shards, func(a, b ShardInfo) int {
		return cmp.Or(b.LastUsed.Compare(a.LastUsed), cmp.Compare(a.File, b.File))
	})
	return l, nil
}

// openThere opens a cache that exists, and lists its files.
func openThere(dir string, write bool) (*Dir, []found, error) {
	if !supported {
		return nil, nil, errNone()
	}
	d, err := open(dir, false)
	if err == nil && write {
		d.Close()
		d, err = open(dir, true)
	}
	if err != nil {
		return nil, nil, err
	}
	v, err := d.survey()
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, v, nil
}

// examine says what state a file is in; use, where it is given, gets a sealed one with its entries.
func (d *Dir) examine(v found, use func(f *os.File, slots []slot)) (string, []slot) {
	f, info, err := openPlain(d.root, v.name, os.O_RDONLY)
	if err != nil {
		return StateUnreadable, nil
	}
	defer f.Close()
	if !v.sealed {
		ok, err := tryLock(f) // let go of by Close
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
	case isOurs(f, info.Size(), d.id, v.id):
		return StateDamaged, nil
	}
	return StateForeign, nil
}

// Pruned is what Prune did.
type Pruned struct {
	Dir          string `json:"dir"`
	Removed      int64  `json:"removed_shards"`
	RemovedBytes int64  `json:"removed_bytes"`
	Recovered    int64  `json:"recovered_shards"`  // left by dead writers, and sealed
	Leftovers    int64  `json:"removed_leftovers"` // left by dead writers, with nothing in them
	Bytes        int64  `json:"bytes"`             // that are left
}

// Prune evicts shards, the least recently used first, until the cache takes at most budget bytes; 0
// empties it, but for shards that are being written.
func Prune(dir string, budget int64) (_ *Pruned, err error) {
	if budget < 0 {
		return nil, robocache.Misuse("prune cache", nil, "").
			Expected("a budget of at least 0 bytes", fmt.Sprint(budget))
	}
	d, _, err := openThere(dir, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if err := d.locked(lockOnOpen, func() error {
		v, err := d.measured(always)
		if err == nil {
			d.evict(v, budget, false)
		}
		return err
	}); err != nil {
		return nil, err
	}
	s := d.Stats()
	return &Pruned{
		Dir:          d.dir,
		Removed:      s.Evicted,
		RemovedBytes: s.EvictedBytes,
		Recovered:    s.Recovered,
		Leftovers:    s.RemovedLeftovers,
		Bytes:        s.Bytes,
	}, nil
}

// VerifyOptions of Verify.
type VerifyOptions struct {
	Drop     bool                    // remove shards that are damaged
	Progress func(done, total int64) // bytes
}

// Verification is what Verify found.
type Verification struct {
	Dir     string `json:"dir"`
	Shards  int    `json:"shards"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	// unsealed shards: their entries are held against their checksums when they are read
	Skipped int      `json:"skipped"`
	Damaged []Damage `json:"damaged"`
	Dropped int64    `json:"dropped_shards"`
}

// Damage is a shard or an entry that does not hold.
type Damage struct {
	File   string `json:"file"`
	Key    string `json:"key,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	What   string `json:"what"`
}

// Verify reads every entry of every sealed shard and holds it against its checksum.
func Verify(ctx context.Context, dir string, opt VerifyOptions) (_ *Verification, err error) {
	d, v, err := openThere(dir, opt.Drop)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	r := &Verification{Dir: d.dir, Damaged: []Damage{}}
	total, done := sum(v), int64(0)
	buf := make([]byte, 1<<20)
	for _, f := range v {
		if !f.sealed {
			r.Skipped++
			continue
		}
		before := len(r.Damaged)
		if err := d.verifyShard(ctx, f, buf, r); err != nil {
			return r, err
		}
		done += f.size
		if opt.Progress != nil {
			opt.Progress(done, total)
		}
		if len(r.Damaged) > before && opt.Drop && d.remove(f) {
			r.Dropped++
		}
	}
	return r, nil
}

func (d *Dir) verifyShard(ctx context.Context, v found, buf []byte, r *Verification) error {
	h := xxh3.New()
	state, _ := d.examine(v, func(f *os.File, slots []slot) {
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
				r.Damaged = append(
					r.Damaged,
					Damage{
						File:   v.name,
						Key:    hex.EncodeToString(s.key[:]),
						Offset: s.off,
						Bytes:  s.n,
						What:   what,
					},
				)
			}
		}
	})
	if state != StateSealed && state != StateForeign {
		r.Damaged = append(r.Damaged, Damage{File: v.name, What: state})
	}
	return ctx.Err()
}
