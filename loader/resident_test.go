package loader

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// poolEpoch runs an epoch of a pool and checks each batch.
func poolEpoch(t *testing.T, f *fake, cfg options.Config) (*Loader, []int64) {
	t.Helper()
	l := mustLoader(t, f, cfg)
	order, _ := epochOf(t, f, l)
	return l, order
}

// loader.L20: a pool decodes and converts each frame once an epoch, in all windows that want it.
func TestPoolDecodesOnce(t *testing.T) {
	f := newFake(lengthsFor(7, 24, 10, 60)...)
	seen := map[string]map[int]int{}
	var mu sync.Mutex
	f.seen = func(path string, ordinal int) {
		mu.Lock()
		defer mu.Unlock()
		if seen[path] == nil {
			seen[path] = map[int]int{}
		}
		seen[path][ordinal]++
	}
	for _, d := range []Deltas{nil, deltas("cam", []float64{-0.3, -0.1, 0, 0.2})} {
		clear(seen)
		cfg := options.Config{
			Order: options.Order{
				BatchSize: 8,
				Shuffle:   Pool,
				Seed:      4,
				PoolOrder: options.PoolOrder{PoolSize: 40_000},
			},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
			CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
			Windows:      options.Windows{Deltas: d},
		}
		poolEpoch(t, f, cfg)
		for path, ordinals := range seen {
			for o, n := range ordinals {
				if n != 1 {
					t.Fatalf("frame %d of %s was decoded %d times (windows %v)", o, path, n, d)
				}
			}
		}
	}
}

// loader.L20: a pool that the memory cannot hold gives the same batches; it only decodes more.
func TestPoolWithoutRoom(t *testing.T) {
	f := newFake(lengthsFor(8, 16, 10, 60)...)
	cfg := options.Config{
		Order: options.Order{
			BatchSize: 8,
			Shuffle:   Pool,
			Seed:      4,
			PoolOrder: options.PoolOrder{PoolSize: 40_000},
		},
		Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
		CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
	}
	l, want := poolEpoch(t, f, cfg)
	state := l.State()
	if r := l.Stats().Pool.Randomness; !(r.Distinct > 0 && r.Distinct <= 1 && r.DistinctIdeal > 0 &&
		r.DistinctIdeal <= 1 && r.Batch == 8) {
		t.Errorf("randomness %+v", r)
	}
	small := cfg
	small.PoolSize = 300 // the state's order is of the larger one
	s := mustLoader(t, f, small)
	state.Epoch, state.Position = 0, 0
	if err := s.Restore(state, false); err != nil {
		t.Fatal(err)
	}
	got, _ := epochOf(t, f, s)
	if len(got) != len(want) {
		t.Fatalf("%d samples, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("position %d: sample %d, want %d", i, got[i], want[i])
		}
	}
	if p := s.Stats().Pool; p.Refused == 0 {
		t.Error("the small pool refused nothing: the test tests nothing")
	}
}

// Nothing is left of a pool when its epoch, its loader or a part of it ends.
func TestPoolLeavesNothing(t *testing.T) {
	f := newFake(lengthsFor(9, 20, 10, 60)...)
	l := mustLoader(
		t,
		f,
		options.Config{
			Order: options.Order{
				BatchSize: 8,
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolSize: 40_000},
			},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
			CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
		},
	)
	for i := range 200 {
		b, err := l.Next(bg)
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		checkBatch(t, f, l.config, b)
		b.Release()
		if i%23 == 0 {
			if err := l.SetEpoch(int64(i)); err != nil {
				t.Fatal(err)
			}
			if used := l.assembler.Frames.Stats("").Bytes; used != 0 {
				t.Fatalf("%d bytes of frames are left", used)
			}
		}
	}
	l.Close()
	if n := f.opened.Load(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// A frame that cannot be had is an error of the batch that wants it, or its episode is skipped: in
// a pool as elsewhere.
func TestPoolBadFrame(t *testing.T) {
	f := newFake(lengthsFor(10, 12, 10, 40)...)
	f.frames.broken = map[string]map[int]bool{"v1.mp4": {5: true}}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order: options.Order{
				BatchSize: 8,
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolSize: 40_000},
			},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
			CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
		},
	)
	var err error
	for err == nil {
		var b *layout.Batch
		if b, err = l.Next(bg); err == nil {
			b.Release()
		}
	}
	if !errors.Is(err, robocache.ErrMalformed) {
		t.Fatalf("a broken packet gives %v", err)
	}
	s := mustLoader(
		t,
		f,
		options.Config{
			Order: options.Order{
				BatchSize:    8,
				Shuffle:      Pool,
				PoolOrder:    options.PoolOrder{PoolSize: 40_000},
				OnBadEpisode: "skip",
			},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
			CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
		},
	)
	seen := map[int64]int{}
	for {
		b, err := s.Next(bg)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range b.Indices {
			seen[i]++
		}
		b.Release()
	}
	bad := map[int]bool{}
	for _, b := range s.Stats().BadEpisodes {
		bad[b.Episode] = true
	}
	if len(bad) == 0 || len(bad) > 3 {
		t.Errorf("bad episodes: %v", bad)
	}
	for i := range s.Samples() {
		rows, err := s.Rows([]int64{i})
		if err != nil {
			t.Fatal(err)
		}
		if n := seen[i]; n > 1 || n == 0 && !bad[rows[0].Episode] {
			t.Errorf("sample %d of episode %d came %d times", i, rows[0].Episode, n)
		}
	}
}

// TestRAMCache checks that a RAM cache decodes each frame once in all epochs and never exceeds its
// budget. Frames that do not fit are decoded again.
func TestRAMCache(t *testing.T) {
	f := newFake(lengthsFor(11, 12, 10, 40)...)
	for _, budget := range []Bytes{1 << 18, 4000} {
		f.decoded.Store(0)
		l := mustLoader(
			t,
			f,
			options.Config{
				Order:        options.Order{BatchSize: 8, Shuffle: Global},
				Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
				CacheOptions: options.CacheOptions{Cache: "ram", CacheBudget: budget},
			},
		)
		for range 3 {
			epochOf(t, f, l)
		}
		s := l.Stats()
		if s.Cache == nil || s.Cache.Bytes > int64(budget) {
			t.Fatalf("the cache holds %+v of %d", s.Cache, budget)
		}
		if full := budget == 4000; full != s.Cache.Full {
			t.Errorf("budget %d: full is %t", budget, s.Cache.Full)
		}
		if budget > 4000 && s.FramesUnique != l.Samples() {
			t.Errorf("%d frames were converted for %d rows", s.FramesUnique, l.Samples())
		}
	}
}

// started is a fake that records where its episodes begin in their files.
type started struct {
	*fake
	off map[int]int64 // episode → by how much that is wrong
}

func (s started) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{VideoStart: s.VideoStart}
}

func (s started) VideoStart(_ context.Context, e int, _ string) (int64, bool, error) {
	return int64(s.base(e)-s.base(e/s.perFile*s.perFile))*100_000_000 + s.off[e], true, nil
}

// With tolerance_s a frame is refused by its time wherever it comes from: decoded for its batch,
// for a pool, or kept by one who asked for no tolerance.
func TestToleranceOfKeptFrames(t *testing.T) {
	f := newFake(lengthsFor(12, 12, 10, 40)...)
	dir, tol := t.TempDir(), 0.002
	filler := mustLoader(
		t,
		f,
		options.Config{
			Order:        options.Order{BatchSize: 8},
			CacheOptions: options.CacheOptions{Cache: dir, CacheFormat: "rgb"},
			Windows:      options.Windows{Keys: []string{"cam"}},
		},
	)
	epochOf(t, f, filler)
	filler.Close()
	for name, cfg := range map[string]options.Config{
		"global": {Order: options.Order{Shuffle: Global}},
		"pool": {
			Order: options.Order{Shuffle: Pool, PoolOrder: options.PoolOrder{PoolSize: 40_000}},
		},
		"ram": {
			Order:        options.Order{Shuffle: Global},
			CacheOptions: options.CacheOptions{Cache: "ram"},
		},
		"dir": {
			Order:        options.Order{Shuffle: Global},
			CacheOptions: options.CacheOptions{Cache: dir},
		},
	} {
		cfg.BatchSize, cfg.Threads, cfg.Tolerance, cfg.CacheFormat, cfg.Keys, cfg.OnBadEpisode = 8, 3, &tol, "rgb", []string{
			"cam",
		}, "skip"
		l := mustLoader(t, started{f, map[int]int64{4: 3_000_000, 7: 1_000_000}}, cfg)
		for range 2 {
			epochOf(t, f, l)
		}
		bad := l.Stats().BadEpisodes
		if len(bad) != 1 || bad[0].Episode != 4 || !strings.Contains(bad[0].Error, "tolerance_s") {
			t.Errorf("%s: bad episodes %v, expected 4", name, bad)
		}
		l.Close()
	}
}

// TestDirCacheWithoutVersions checks that frames of a store that may replace files unnoticed are
// not cached in a directory.
func TestDirCacheWithoutVersions(t *testing.T) {
	f := newFake(20, 30)
	f.nameless = true
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:        options.Order{BatchSize: 8},
			CacheOptions: options.CacheOptions{Cache: t.TempDir(), CacheFormat: "rgb"},
		},
	)
	for range 2 {
		epochOf(t, f, l)
	}
	s := l.Stats()
	if s.FramesUnique < 2*l.Samples() || s.Cache.Hits != 0 || len(s.Warnings) != 1 ||
		!strings.Contains(s.Warnings[0], "version") {
		t.Errorf(
			"%d frames decoded for %d rows in two epochs, cache %+v, warnings %v",
			s.FramesUnique,
			l.Samples(),
			s.Cache,
			s.Warnings,
		)
	}
}

// TestOptionsOfKeeping checks that irrelevant options are accepted and ineffective ones rejected.
func TestOptionsOfKeeping(t *testing.T) {
	m, err := NewMap(
		bg,
		newFake(5),
		options.Config{
			Order: options.Order{Shuffle: Pool, PoolOrder: options.PoolOrder{PoolSize: 1 << 50}},
		},
	)
	if err != nil {
		t.Errorf("the order of a Map: %v", err)
	} else {
		m.Close()
	}
	for _, cache := range []string{"", "ram"} {
		if _, err := New(
			bg,
			newFake(5),
			options.Config{
				CacheOptions: options.CacheOptions{Cache: cache, CacheFormat: "encoded"},
			},
		); !errors.Is(
			err,
			robocache.ErrMisuse,
		) {
			t.Errorf("cache %q of encoded bytes: %v", cache, err)
		}
	}
}

// TestRandomnessFollowsRestore checks that Stats describes the order that Restore set.
func TestRandomnessFollowsRestore(t *testing.T) {
	f := newFake(lengthsFor(8, 16, 10, 60)...)
	cfg := options.Config{
		Order: options.Order{
			BatchSize: 8,
			Shuffle:   Pool,
			PoolOrder: options.PoolOrder{PoolSize: 40_000},
		},
		CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
		Runtime:      options.Runtime{MemoryBudget: 1 << 20},
	}
	l := mustLoader(t, f, cfg)
	small := cfg
	small.PoolSize = 2000
	s := mustLoader(t, f, small)
	before := s.Stats().Pool.Randomness
	if err := s.Restore(l.State(), false); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Stats().Pool.Randomness, l.Stats().Pool.Randomness; got != want ||
		got == before {
		t.Errorf("%+v, want %+v (before %+v)", got, want, before)
	}
}

// Stills are kept too: in the second epoch none is decoded or read.
func TestRAMCacheOfStills(t *testing.T) {
	f := newFake(lengthsFor(12, 8, 10, 30)...).withStills()
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:        options.Order{BatchSize: 8, Shuffle: Global},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 1 << 20},
			CacheOptions: options.CacheOptions{Cache: "ram"},
			Windows:      options.Windows{Keys: []string{"img", "observation.state"}},
		},
	)
	epochOf(t, f, l)
	before := l.Stats().Stills
	f.mu.Lock()
	read := f.touched["img"]
	f.mu.Unlock()
	for range 2 {
		epochOf(t, f, l)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := l.Stats(); s.Stills != before || before != l.Samples() || f.touched["img"] != read {
		t.Errorf(
			"%d stills decoded, then %d; %d read, then %d; %d rows",
			before,
			s.Stills,
			read,
			f.touched["img"],
			l.Samples(),
		)
	}
}
