package cache

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const small = 8 << 20 // a budget for about 240 values

// TestBudgetOnDisk checks that the files never exceed the budget while several caches write
// (cache.C5).
func TestBudgetOnDisk(t *testing.T) {
	dir := t.TempDir()
	const writers = 4
	dirs := make([]*Dir, writers)
	for i := range dirs {
		dirs[i] = mustOpen(t, dir, Options{Budget: small, ShardBytes: 1 << 20})
	}
	var stop atomic.Bool
	var peak int64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for !stop.Load() {
			peak = max(peak, diskBytes(t, dir))
			time.Sleep(time.Millisecond)
		}
	}()
	var wg sync.WaitGroup
	for w, d := range dirs {
		wg.Go(func() {
			for i := range 400 {
				if err := d.Put(key(w*1000+i), value(w*1000+i)); err != nil {
					t.Error(err)
				}
				got(t, d, w*1000+i)
				if i%100 == 99 {
					if err := d.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, d := range dirs {
		if err := d.Flush(); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	<-watched
	peak = max(peak, diskBytes(t, dir))
	t.Logf("peak %d of %d bytes", peak, small)
	if peak > small {
		t.Errorf("the files took %d bytes, budget %d", peak, small)
	}
	if peak < small/2 {
		t.Errorf("the files took %d bytes at most: the budget %d is hardly used", peak, small)
	}
	var evicted int64
	for _, d := range dirs {
		s := d.Stats()
		evicted += s.Evicted
		if s.Stopped != "" || s.BadEntries+s.BadShards > 0 {
			t.Errorf("%+v", s)
		}
	}
	if evicted == 0 {
		t.Error("nothing was evicted")
	}
}

// TestLeastRecentlyUsedGoes checks that entries in use stay and others are evicted (cache.C6).
func TestLeastRecentlyUsedGoes(t *testing.T) {
	d := mustOpen(t, t.TempDir(), Options{Budget: small, ShardBytes: 1 << 20})
	const hot = 20 // in the first shard
	for i := range hot {
		mustPut(t, d, i)
	}
	for i := hot; i < 1000; i++ {
		mustPut(t, d, i)
		if i%10 != 9 {
			continue
		}
		if hits := count(t, d, hot); hits != hot {
			t.Fatalf("after put %d: %d of %d of what is in use", i, hits, hot)
		}
		if err := d.Flush(); err != nil { // without it, a slow disk would decline entries
			t.Fatal(err)
		}
	}
	if got(t, d, hot+60) {
		t.Error("an entry that nobody used outlived 20 times the budget")
	}
	if !got(t, d, 999) {
		t.Error("the last entry is not there")
	}
}

// TestKeepUsed checks that KeepUsed keeps the first part of data that is read in a circle, which
// LRU eviction would never hit. Entries of the previous run are evicted (cache.C7).
func TestKeepUsed(t *testing.T) {
	dir := t.TempDir()
	const n = 600 // about 2.5 times the budget
	circle := func(opt Options, from int) (hits, evicted int) {
		d := mustOpen(t, dir, opt)
		defer d.Close()
		for range 3 {
			hits = 0
			for i := from; i < from+n; i++ {
				if got(t, d, i) {
					hits++
				} else if mustPut(t, d, i); !opt.KeepUsed && i%30 == 0 {
					// without it, a slow disk would decline entries
					if err := d.Flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		s := d.Stats()
		if !opt.KeepUsed != (s.Declined == 0) {
			t.Errorf("%+v", s)
		}
		return hits, int(s.Evicted)
	}
	opt := Options{Budget: small, ShardBytes: 1 << 20}
	lru, _ := circle(opt, 0)
	opt.KeepUsed = true
	kept, evicted := circle(opt, 10_000)
	t.Logf("hits in the third round: LRU %d, KeepUsed %d of %d", lru, kept, n)
	if kept < n/4 || lru > kept/4 {
		t.Errorf("hits: LRU %d, KeepUsed %d", lru, kept)
	}
	if evicted < 4 {
		t.Errorf("%d shards of the run before were evicted", evicted)
	}
}

// TestUseIsTold checks that the file's modification time tells other processes about use
// (cache.C6).
func TestUseIsTold(t *testing.T) {
	dir := filledDir(t, 10)
	path := shardFiles(t, dir, sealedSuffix)[0]
	then := time.Now().Add(-time.Hour)
	for _, get := range []bool{false, true} {
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, dir, Options{Budget: 256 << 20})
		if get && !got(t, d, 3) {
			t.Fatal("not there")
		}
		check := func(when string) {
			if info, err := os.Stat(path); err != nil || info.ModTime().Equal(then) == get {
				t.Errorf("%s, get %v: last used %v (%v)", when, get, info.ModTime(), err)
			}
		}
		check("open")
		if get {
			s := d.lookupEntry(key(3)).shard
			s.releaseRef()
			s.lastUsed.Store(then.UnixNano() + 1) // a use that is not written to the file yet
			s.writtenUse.Store(then.UnixNano())
			if err := os.Chtimes(path, then, then); err != nil {
				t.Fatal(err)
			}
		}
		d.Close()
		check("closed")
	}
}

// TestBudgetHalves checks that Open with half the budget evicts the least recently used shards.
func TestBudgetHalves(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{Budget: 2 * small, ShardBytes: 1 << 20})
	const n = 400
	for i := range n {
		mustPut(t, d, i)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if before := diskBytes(t, dir); before <= small {
		t.Fatalf("%d bytes: the test shows nothing", before)
	}
	d = mustOpen(t, dir, Options{Budget: small})
	if after := diskBytes(t, dir); after > small || after < small/2 {
		t.Errorf("%d bytes after pruning to %d", after, small)
	}
	if hits := count(t, d, n); hits < n/4 || hits > n*3/4 {
		t.Errorf("%d of %d", hits, n)
	}
	if !got(t, d, n-1) || got(t, d, 0) {
		t.Error("not the oldest went")
	}
}

// TestForeignFiles checks that files of other programs stay, whatever their names, and that links
// are not followed (cache.C4).
func TestForeignFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	d := mustOpen(t, dir, Options{Budget: small, ShardBytes: 1 << 20})
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	precious := filepath.Join(outside, "precious")
	write(precious, "the only copy")
	long := string(make([]byte, 9000)) + "text after zeros"
	foreign := map[string]string{
		"notes.txt": "mine",
		"robocache-0123456789abcdef-0123456789abcdef.shard": "another cache's",
		"robocache-.shard":                            "x",
		shardFileName(d.id, 7, sealedSuffix):          "with our name, but not ours" + long,
		shardFileName(d.id, 8, openSuffix):            "not ours either" + long,
		shardFileName(d.id, 9, sealedSuffix) + ".bak": "a copy",
		".robocache-tmp-x":                            "y",
	}
	for name, text := range foreign {
		write(filepath.Join(dir, name), text)
	}
	for i, suffix := range []string{sealedSuffix, openSuffix} {
		err := os.Symlink(precious, filepath.Join(dir, shardFileName(d.id, uint64(100+i), suffix)))
		if err != nil {
			t.Fatal(err)
		}
		err = os.Mkdir(filepath.Join(dir, shardFileName(d.id, uint64(200+i), suffix)), 0o755)
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 600 {
		mustPut(t, d, i)
		if i%30 == 29 {
			if err := d.Flush(); err != nil { // without it, a slow disk would decline entries
				t.Fatal(err)
			}
		}
	}
	if d.Stats().Evicted == 0 {
		t.Error("nothing was evicted: the test shows nothing")
	}
	d.Close()
	d = mustOpen(t, dir, Options{Budget: minBudget})
	count(t, d, 600)
	d.Close()
	if _, err := Prune(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), dir, VerifyOptions{Drop: true}); err != nil {
		t.Fatal(err)
	}
	l, err := List(dir)
	if err != nil || l.Entries != 0 || l.Foreign != len(foreign)-2+4 {
		t.Errorf("after pruning to nothing: %+v, %v", l, err)
	}
	foreign[""] = "the only copy"
	for name, text := range foreign {
		path := filepath.Join(dir, name)
		if name == "" {
			path = precious
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%s: %v, %q", name, err, b)
		}
	}
	for i := range 2 {
		for _, id := range []uint64{100, 200} {
			_, err := os.Lstat(filepath.Join(
				dir,
				shardFileName(d.id, id+uint64(i), []string{sealedSuffix, openSuffix}[i]),
			))
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestMappingOutlivesEviction checks that an entry keeps its bytes after its shard was evicted, and
// that other processes drop evicted shards (cache.C6).
func TestMappingOutlivesEviction(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{Budget: small})
	for i := range 50 {
		mustPut(t, d, i)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	e, ok := d.Get(key(3))
	if !ok {
		t.Fatal("not there")
	}
	if p, err := Prune(dir, 0); err != nil || p.Removed == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := d.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got(t, d, 3) || d.Stats().Entries != 0 {
		t.Error("an entry of an evicted shard is still given")
	}
	want := value(3)
	if string(e.Data) != string(want) || d.unlinkedBytes.Load() == 0 {
		t.Errorf("the entry that is out changed, or is not counted (%d)", d.unlinkedBytes.Load())
	}
	e.Release()
	if d.unlinkedBytes.Load() != 0 {
		t.Errorf("%d bytes are held after the last Release", d.unlinkedBytes.Load())
	}
	mustPut(t, d, 3)
	if !got(t, d, 3) {
		t.Error("put again, and not there")
	}
}

// TestLoad runs readers, writers and eviction together and compares every byte. Run it with -race.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	a := mustOpen(t, dir, Options{Budget: small, ShardBytes: 1 << 20})
	b := mustOpen(t, dir, Options{Budget: small, ShardBytes: 1 << 20, KeepUsed: true})
	var hits atomic.Int64
	// a must evict, which takes more turns on a slow disk
	more := func(turn int) bool { return turn < 1200 || turn < 200_000 && a.Stats().Evicted == 0 }
	var done atomic.Int64
	const users = 6
	var wg sync.WaitGroup
	for g := range users {
		d := []*Dir{a, b}[g%2]
		wg.Go(func() {
			defer done.Add(1)
			r := rand.New(rand.NewPCG(uint64(g), 1))
			var held []Entry
			for turn := 0; more(turn); turn++ {
				i := int(r.Uint64() % 2000)
				if got(t, d, i) {
					hits.Add(1)
				} else if err := d.Put(key(i), value(i)); err != nil {
					t.Error(err)
				}
				if e, ok := d.Get(key(i)); ok {
					held = append(held, e)
				}
				if len(held) > 3 {
					for i := range held {
						held[i].Release()
					}
					held = held[:0]
				}
				d.Stats()
			}
			for i := range held {
				held[i].Release()
			}
		})
	}
	wg.Go(func() {
		for n := 0; done.Load() < users; n++ {
			if err := a.Flush(); err != nil {
				t.Error(err)
			}
			if err := b.Refresh(); err != nil {
				t.Error(err)
			}
			if n%20 == 19 {
				if _, err := Prune(dir, small/2); err != nil {
					t.Error(err)
				}
			}
			if _, err := List(dir); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	wg.Wait()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	sa, sb := a.Stats(), b.Stats()
	t.Logf("%d hits; a %+v; b %+v", hits.Load(), sa, sb)
	if hits.Load() == 0 || sa.Evicted == 0 ||
		sa.BadEntries+sb.BadEntries+sa.BadShards+sb.BadShards != 0 ||
		sa.Stopped+sb.Stopped != "" {
		t.Error("see above")
	}
	if z := a.unlinkedBytes.Load(); z < 0 {
		t.Errorf("%d zombie bytes", z)
	}
}

// TestMarkerCounts checks that the files and the marker together stay within a budget that the
// shards would fill exactly (cache.C9).
func TestMarkerCounts(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{Budget: small, ShardBytes: small / 8})
	defer d.Close()
	if s := d.Stats(); s.Limit+markerBytes != small {
		t.Errorf("limit %d of a budget of %d", s.Limit, small)
	}
	for i := range 1000 {
		if err := d.Put(key(i), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if b := diskBytes(t, dir); b > small {
		t.Errorf("%d bytes on disk, budget %d", b, small)
	}
}

// TestLockThatStays checks that a stopped process that holds the lock causes declined entries, but
// no waiting and no error (cache.C9).
func TestLockThatStays(t *testing.T) {
	defer func(was time.Duration) { putLockLimit = was }(putLockLimit)
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{Budget: small})
	f, err := os.OpenFile(filepath.Join(dir, markerName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := tryLock(f); !ok || err != nil {
		t.Fatal(ok, err)
	}
	putLockLimit = time.Millisecond
	mustPut(t, d, 1)
	if s := d.Stats(); s.Declined != 1 || s.Puts != 0 || s.Stopped != "" || got(t, d, 1) {
		t.Errorf("%+v", s)
	}
	unlockFile(f)
	putLockLimit = time.Minute
	d.declineUntil.Store(0) // as if declineFor had passed
	mustPut(t, d, 1)
	if !got(t, d, 1) {
		t.Error("the lock is free, and nothing is kept")
	}
}
