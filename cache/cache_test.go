package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

func key(i int) (k Key) {
	binary.BigEndian.PutUint64(k[:], uint64(i)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(k[8:], uint64(i))
	return k
}

// value returns the value of key(i): 1 to maxValue bytes that depend only on i.
func value(i int) []byte {
	r := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16), 7})
	b := make([]byte, 1+int(r.Uint64()%maxValue))
	_, _ = r.Read(b)
	return b
}

const maxValue = 64 << 10

func mustOpen(t testing.TB, dir string, opt Options) *Dir {
	t.Helper()
	d, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func mustPut(t testing.TB, d *Dir, i int) {
	t.Helper()
	if err := d.Put(key(i), value(i)); err != nil {
		t.Fatalf("put %d: %v", i, err)
	}
}

// got reports whether entry i is cached. It fails the test if the bytes are wrong.
func got(t testing.TB, d *Dir, i int) bool {
	t.Helper()
	e, ok := d.Get(key(i))
	if !ok {
		return false
	}
	defer e.Release()
	if !bytes.Equal(e.Data, value(i)) {
		t.Errorf("entry %d: wrong bytes", i)
	}
	if len(e.Data) > 0 && uintptr(unsafe.Pointer(&e.Data[0]))%64 != 0 {
		t.Errorf("entry %d is not 64-byte aligned", i)
	}
	return true
}

func count(t testing.TB, d *Dir, n int) (hits int) {
	t.Helper()
	for i := range n {
		if got(t, d, i) {
			hits++
		}
	}
	return hits
}

// diskBytes returns the disk space of the files in a directory, as the file system counts it.
func diskBytes(t testing.TB, dir string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += allocatedBytes(info)
		}
	}
	return n
}

func shardFiles(t testing.TB, dir, suffix string) (names []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "robocache-*-*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPutGet checks that an entry can be read at once, after sealing, after reopening, and through
// another Dir of the same directory (cache.C1, cache.C3).
func TestPutGet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "cache")
	d := mustOpen(t, dir, Options{Budget: 64 << 20, ShardBytes: 2 << 20})
	other := mustOpen(t, dir, Options{Budget: 64 << 20})
	const n = 200
	for i := range n {
		if d.Has(key(i)) || got(t, d, i) {
			t.Fatalf("entry %d before it was put", i)
		}
		mustPut(t, d, i)
		if !d.Has(key(i)) || !got(t, d, i) {
			t.Fatalf("entry %d is not there at once", i)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if left := shardFiles(t, dir, openSuffix); len(left) != 0 {
		t.Errorf("after Flush: %v", left)
	}
	if hits := count(t, d, n); hits != n {
		t.Errorf("after sealing: %d of %d", hits, n)
	}
	if err := other.Refresh(); err != nil {
		t.Fatal(err)
	}
	if hits := count(t, other, n); hits != n {
		t.Errorf("the other Dir: %d of %d", hits, n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.Get(key(1)); ok {
		t.Error("a closed Dir gives entries")
	}
	if err := d.Put(key(n), value(n)); err != nil || d.Close() != nil {
		t.Errorf("Put and Close after Close: %v", err)
	}
	if hits := count(t, mustOpen(t, dir, Options{Budget: 64 << 20}), n+1); hits != n {
		t.Errorf("reopened: %d of %d", hits, n)
	}
}

// TestParts checks that an entry is the concatenation of its parts, and that no parts make an empty
// entry.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, dir, Options{Budget: 64 << 20})
	v := value(3)
	for i, parts := range [][][]byte{
		{v},
		{v[:1], v[1:]},
		{nil, v[:100], nil, v[100:200], v[200:]},
		{},
	} {
		if err := d.Put(key(i), parts...); err != nil {
			t.Fatal(err)
		}
		want := bytes.Join(parts, nil)
		for range 2 {
			e, ok := d.Get(key(i))
			if !ok || !bytes.Equal(e.Data, want) {
				t.Errorf("parts %d: %v, %d bytes of %d", i, ok, len(e.Data), len(want))
			}
			e.Release()
			e.Release() // the second call does nothing
			if err := d.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := d.Stats(); s.BadEntries != 0 || s.Puts != 4 || s.Hits != 8 {
		t.Errorf("%+v", s)
	}
}

// TestPutOnce checks that a key is written once if many goroutines put it.
func TestPutOnce(t *testing.T) {
	d := mustOpen(t, t.TempDir(), Options{Budget: 64 << 20})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				if err := d.Put(key(i), value(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := d.Stats(); s.Puts != 100 || s.Entries != 100 {
		t.Errorf("%+v", s)
	}
	if hits := count(t, d, 100); hits != 100 {
		t.Errorf("%d of 100", hits)
	}
}

// TestSeenWithoutRefresh checks that shards of other processes appear within the time of cache.C3.
func TestSeenWithoutRefresh(t *testing.T) {
	dir := t.TempDir()
	a := mustOpen(t, dir, Options{Budget: 64 << 20})
	b := mustOpen(t, dir, Options{Budget: 64 << 20})
	got(t, b, 1)
	mustPut(t, a, 1)
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		asked := time.Since(start)
		if got(t, b, 1) {
			break
		}
		if asked > scanOnMiss {
			t.Fatalf("not seen %v after the last look", asked)
		}
	}
}

// TestForeignDirectory checks that a directory of other files is rejected and not changed
// (cache.C4).
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	thesis := filepath.Join(dir, "thesis.tex")
	if err := os.WriteFile(thesis, []byte("years"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, Options{})
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "thesis.tex") ||
		!strings.Contains(err.Error(), "with Cache") {
		t.Errorf("%v", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("the directory has %v", names)
	}
	if _, err := List(dir); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("List: %v", err)
	}
	if _, err := Prune(dir, 0); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("Prune: %v", err)
	}
	if _, err := Open(thesis, Options{}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a file: %v", err)
	}
	if _, err := List(filepath.Join(dir, "nothing")); !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("List of nothing: %v", err)
	}
}

func TestMarker(t *testing.T) {
	for _, c := range []struct {
		text  string
		class error
	}{
		{"{", robocache.ErrMalformed},
		{strings.Repeat(" ", 1<<20), robocache.ErrMalformed},
		{`{"robocache_cache":2,"id":"0123456789abcdef"}`, robocache.ErrUnsupported},
		{`{"robocache_cache":1,"id":"../../../etc"}`, robocache.ErrMalformed},
		{`{"robocache_cache":1,"id":"0000000000000000"}`, robocache.ErrMalformed},
		{`{"robocache_cache":1,"id":"+123456789abcdef"}`, robocache.ErrMalformed},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, markerName), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); !errors.Is(err, c.class) {
			t.Errorf("%.40s: %v, want %v", c.text, err, c.class)
		}
	}
	// a link with the name of the marker is rejected
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, markerName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a link: %v", err)
	}
	// many processes create the cache at once: all use the same id
	dir = filepath.Join(t.TempDir(), "c")
	ids := make([]uint64, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			d, err := Open(dir, Options{Budget: 64 << 20})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = d.id
			if err := d.Put(key(i), value(i)); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("several caches in one directory: %x", ids)
		}
	}
	if hits := count(t, mustOpen(t, dir, Options{Budget: 64 << 20}), len(ids)); hits != len(ids) {
		t.Errorf("%d of %d entries", hits, len(ids))
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Budget: -1}, {Budget: 1000}, {ShardBytes: -1}} {
		if _, err := Open(t.TempDir(), o); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	o, err := Options{Budget: 64 << 40}.withDefaults("")
	if err != nil || o.Budget/o.ShardBytes > maxShards {
		t.Errorf("64 TiB: %+v, %v", o, err)
	}
	d := mustOpen(t, t.TempDir(), Options{Budget: 8 << 20})
	err = d.Put(key(1), make([]byte, 9<<20))
	if !errors.Is(err, robocache.ErrResourceLimit) ||
		!strings.Contains(err.Error(), "CacheBudget") {
		t.Errorf("larger than the cache: %v", err)
	}
	mustPut(t, d, 2)
	if !got(t, d, 2) || d.Err() != nil {
		t.Errorf("after it: %v", d.Err())
	}
}

func TestBlocks(t *testing.T) {
	d := mustOpen(t, t.TempDir(), Options{Budget: 64 << 20})
	var b interface { // store.BlockCache
		Get(key [16]byte) (data []byte, release func(), ok bool)
		Put(key [16]byte, data []byte) error
	} = Blocks{d}
	if _, _, ok := b.Get(key(1)); ok {
		t.Error("there before it was put")
	}
	if err := b.Put(key(1), value(1)); err != nil {
		t.Fatal(err)
	}
	data, release, ok := b.Get(key(1))
	if !ok || !bytes.Equal(data, value(1)) {
		t.Fatal(ok)
	}
	release()
	release()
	for _, s := range d.shards {
		if n := s.refs.Load(); n != 1 {
			t.Errorf("%d references", n)
		}
	}
}
