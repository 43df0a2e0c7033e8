package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Reading a remote file through a cache directory is exact. Bytes that one handle has read cost the
// next handle no request.
func TestRemoteBlocksOnDisk(t *testing.T) {
	dir := realdata.Path(t, small)
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(mp4)))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	s, err := store.Open(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	kept := t.TempDir()
	for round := range 3 {
		c, err := cache.Open(kept, cache.Options{})
		if err != nil {
			t.Fatal(err)
		}
		below, err := s.Open(t.Context(), mp4)
		if err != nil {
			t.Fatal(err)
		}
		f := store.CachedRanged(below, srv.URL+"/"+mp4, cache.Blocks{Dir: c}, 64<<10)
		before := srv.Requests()
		got := make([]byte, len(data))
		for off := 0; off < len(got); off += 100_000 {
			end := min(off+100_000, len(got))
			if err := f.ReadAt(t.Context(), got[off:end], int64(off)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, data) {
			t.Fatal("other bytes")
		}
		if n := srv.Requests() - before; (round == 0) != (n > 0) {
			t.Errorf("round %d: %d requests", round, n)
		}
		f.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The loader over http with a cache directory delivers the same batches. The second run requests
// video only to open it.
func TestLoaderRemoteCache(t *testing.T) {
	decoders(t)
	dir := realdata.Path(t, small)
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 32, Shuffle: loader.Global, Seed: 5},
		Runtime: loader.Runtime{Threads: 2},
	}
	want, n, err := digest(t.Context(), open(t, dir), cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	cfg.Cache, cfg.CacheFormat = t.TempDir(), "encoded"
	var sent [2]int64
	for round := range sent {
		before := srv.Bytes()
		got, m, err := digest(t.Context(), open(t, srv.URL), cfg)
		if err != nil || got != want || m != n {
			t.Fatalf("round %d: %d samples of %d, equal %v, %v", round, m, n, got == want, err)
		}
		sent[round] = srv.Bytes() - before
	}
	var total int64
	filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if i, ierr := e.Info(); err == nil && ierr == nil && !e.IsDir() {
			total += i.Size()
		}
		return err
	})
	if sent[0] > sent[1]+total || sent[1] > 250<<10 {
		t.Errorf("%d bytes, then %d; the set has %d", sent[0], sent[1], total)
	}
}
