package store_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// shelf is a BlockCache in memory. Tests can make it lose, truncate or reject blocks.
type shelf struct {
	mu     sync.Mutex
	blocks map[[16]byte][]byte
	held   atomic.Int64 // blocks that were returned and not released
	puts   atomic.Int64
	forget bool // loses every other block
	cut    bool // returns truncated blocks
	full   bool // stores nothing
}

func newShelf() *shelf { return &shelf{blocks: map[[16]byte][]byte{}} }

func (s *shelf) Get(key [16]byte) ([]byte, func(), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.blocks[key]
	if !ok {
		return nil, nil, false
	}
	if s.cut {
		b = b[:len(b)-1]
	}
	s.held.Add(1)
	return b, func() { s.held.Add(-1) }, true
}

func (s *shelf) Put(key [16]byte, data []byte) error {
	n := s.puts.Add(1)
	if s.full || s.forget && n%2 == 0 {
		return errors.New("no room")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks[key] = bytes.Clone(data)
	return nil
}

// cachedStore reads every file through a cache.
type cachedStore struct {
	store.Store
	c     store.BlockCache
	block int64
}

func (s cachedStore) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	f, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return store.CachedRanged(f, s.URI()+"/"+name, s.c, s.block), nil
}

func (s cachedStore) Close() error { return store.Close(s.Store) }

// TestCachedRangedSuite checks that a cached file keeps the contract of the underlying file,
// whatever the cache does.
func TestCachedRangedSuite(t *testing.T) {
	for what, c := range map[string]*shelf{
		"keeps":   newShelf(),
		"forgets": {blocks: map[[16]byte][]byte{}, forget: true},
		"cuts":    {blocks: map[[16]byte][]byte{}, cut: true},
		"full":    {full: true},
	} {
		t.Run(what, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
				fx := localFixture(t, files)
				fx.Store = cachedStore{fx.Store, c, 1000}
				return fx
			})
			if n := c.held.Load(); n != 0 {
				t.Errorf("%d blocks not released", n)
			}
		})
	}
}

// cacheable serves data with an ETag and counts requests.
func cacheable(
	data *atomic.Pointer[[]byte],
	etag *atomic.Pointer[string],
	n *atomic.Int64,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		w.Header().Set("ETag", *etag.Load())
		http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(*data.Load()))
	}
}

func ptr[T any](v T) *atomic.Pointer[T] {
	p := &atomic.Pointer[T]{}
	p.Store(&v)
	return p
}

// TestCachedRangedOnce checks that random concurrent reads are correct, that each block is
// requested once, and that a second handle requests nothing.
func TestCachedRangedOnce(t *testing.T) {
	data := storetest.Bytes(300_007, 3)
	var n atomic.Int64
	c := newShelf()
	counter := storetest.Counting(
		serve(t, cacheable(ptr(data), ptr(`"v1"`), &n), store.HTTPOptions{}),
	)
	open := func() robocache.Ranged {
		f, err := counter.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return store.CachedRanged(f, "id", c, 4096)
	}
	f := open()
	if !store.Remote(f) {
		t.Error("not remote")
	}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			// four goroutines share a seed, so that they read the same blocks
			rng := rand.New(rand.NewPCG(uint64(g%4), 8))
			for range 60 {
				off := rng.IntN(len(data))
				p := make([]byte, rng.IntN(min(20_000, len(data)-off)+1))
				err := f.ReadAt(t.Context(), p, int64(off))
				if err != nil || !bytes.Equal(p, data[off:off+len(p)]) {
					t.Errorf("[%d, %d): %v", off, off+len(p), err)
				}
			}
		})
	}
	wg.Wait()
	whole := make([]byte, len(data))
	if err := f.ReadAt(t.Context(), whole, 0); err != nil || !bytes.Equal(whole, data) {
		t.Error(err)
	}
	if s := counter.Counts(); s.BytesRead != int64(len(data)) || c.puts.Load() != 74 {
		t.Errorf("%d bytes read of %d, %d blocks put", s.BytesRead, len(data), c.puts.Load())
	}
	reads := n.Load()
	again := open()
	clear(whole)
	err := store.ReadRanges(
		t.Context(),
		again,
		[]store.Span{{Off: 100_000, P: whole[100_000:]}, {Off: 0, P: whole[:100_000]}},
	)
	if err != nil || !bytes.Equal(whole, data) {
		t.Error(err)
	}
	if n.Load() != reads+1 {
		t.Errorf("%d requests for cached bytes, Open's aside", n.Load()-reads-1)
	}
	if c.held.Load() != 0 {
		t.Error("blocks not released")
	}
}

// gated is a file whose reads block.
type gated struct {
	robocache.Ranged
	begun chan struct{}
	gate  chan struct{}
	fail  error
	reads atomic.Int64
}

func (g *gated) ReadAt(ctx context.Context, p []byte, off int64) error {
	g.reads.Add(1)
	g.begun <- struct{}{}
	select {
	case <-g.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.fail != nil {
		return g.fail
	}
	return g.Ranged.ReadAt(ctx, p, off)
}

// TestCachedRangedShares checks that concurrent misses of a block share one read, its bytes or its
// error, and that canceling one caller does not cancel the others.
func TestCachedRangedShares(t *testing.T) {
	for what, fail := range map[string]error{"bytes": nil, "error": errors.New("broken")} {
		synctest.Test(t, func(t *testing.T) { cachedRangedShares(t, what, fail) })
	}
}

func cachedRangedShares(t *testing.T, what string, fail error) {
	data := storetest.Bytes(10_000, 4)
	m := storetest.NewMem(t.Name() + what)
	t.Cleanup(m.Drop)
	m.Put("a", data)
	below, err := m.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{
		Ranged: below,
		begun:  make(chan struct{}, 100),
		gate:   make(chan struct{}),
		fail:   fail,
	}
	f := store.CachedRanged(g, "id", newShelf(), 1000)
	first, cancel := context.WithCancel(t.Context())
	firstErr := make(chan error, 1)
	go func() { firstErr <- f.ReadAt(first, make([]byte, 10), 1500) }()
	<-g.begun
	errs := make(chan error, 20)
	for range 20 {
		go func() {
			p := make([]byte, 300)
			err := f.ReadAt(t.Context(), p, 1600)
			if err == nil && !bytes.Equal(p, data[1600:1900]) {
				err = errors.New("other bytes")
			}
			errs <- err
		}()
	}
	synctest.Wait() // all of them are blocked
	cancel()
	if err := <-firstErr; err != context.Canceled {
		t.Errorf("%s: %v", what, err)
	}
	<-g.begun // one of the others reads
	synctest.Wait()
	close(g.gate)
	for range 20 {
		if err := <-errs; !errors.Is(err, fail) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := g.reads.Load(); n != 2 {
		t.Errorf("%s: %d reads, want the cancelled one and one more", what, n)
	}
}

// TestCachedRangedVersions checks that nothing is cached under an ambiguous version, and that
// versions never share blocks. A version that changes during reading is ErrChanged when uncached
// bytes are requested.
func TestCachedRangedVersions(t *testing.T) {
	old := storetest.Bytes(60_000, 5)
	fresh := storetest.Bytes(60_000, 6)
	var n atomic.Int64
	data, etag := ptr(old), ptr(`"v1"`)
	s := serve(t, cacheable(data, etag, &n), store.HTTPOptions{})
	c := newShelf()
	open := func() robocache.Ranged {
		f, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return store.CachedRanged(f, "id", c, 10_000)
	}
	p := make([]byte, 15_000)
	f := open()
	if err := f.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, old[:15_000]) {
		t.Fatal(err)
	}
	data.Store(&fresh)
	v2 := `"v2"`
	etag.Store(&v2)
	if err := f.ReadAt(t.Context(), p, 1000); err != nil || !bytes.Equal(p, old[1000:16_000]) {
		t.Errorf("what was read stays what it was: %v", err)
	}
	if err := f.ReadAt(t.Context(), p, 40_000); !errors.Is(err, store.ErrChanged) ||
		!errors.Is(err, robocache.ErrTemporary) {
		t.Errorf("%v", err)
	}
	if err := open().ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, fresh[:15_000]) {
		t.Errorf("the new version: %v", err)
	}
	f.Close()
	if err := f.ReadAt(t.Context(), p, 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("after Close: %v", err)
	}

	for what, head := range map[string]func() (modified string, cached bool){
		"neither": func() (string, bool) { return "", false },
		"just written": func() (string, bool) {
			return time.Now().UTC().Format(http.TimeFormat), false
		},
		"written earlier": func() (string, bool) {
			return time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), true
		},
	} {
		modified, cached := head()
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if modified != "" {
				w.Header().Set("Last-Modified", modified)
			}
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(old))
		}), store.HTTPOptions{})
		f, err := storetest.Counting(s).Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got := store.CachedRanged(f, "id", c, 1000); (got != f) != cached {
			t.Errorf("%s: cached %v", what, got != f)
		}
	}
	if f := robocache.Ranged(unversioned{}); store.CachedRanged(f, "id", c, 0) != f {
		t.Error("cached without a version")
	}
}

// unversioned is a file without a version.
type unversioned struct{}

func (unversioned) ReadAt(context.Context, []byte, int64) error { return nil }
func (unversioned) Size() int64                                 { return 1 }
func (unversioned) Version() string                             { return "" }
func (unversioned) Close() error                                { return nil }
