package loader

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// loader.L4, loader.L11, loader.L13, loader.L20, loader.L21: whatever the order, the cache, the
// windows, the faults and the threads, and wherever it is stopped, restored or closed: each batch
// holds its samples' own values, none comes twice, nothing hangs, nothing is left.
func TestStress(t *testing.T) {
	until := time.Now().Add(stressTime)
	for round := uint64(1); time.Now().Before(until) || round < 20; round++ {
		stressRound(t, round)
	}
}

const stressTime = 4 * time.Second

func stressRound(t *testing.T, round uint64) {
	rng := rand.New(rand.NewPCG(round, 77))
	f := newFake(lengthsFor(round, 2+rng.IntN(14), 1, 40)...).withWide()
	f.gop, f.perFile, f.share, f.far = 1+rng.IntN(12), 1+
		rng.IntN(5), rng.IntN(3) == 0, rng.IntN(3) == 0
	cfg := options.Config{
		Order: options.Order{
			BatchSize: 1 + rng.IntN(20),
			Shuffle:   []Shuffle{Pool, Pool, Global, FileOrder}[rng.IntN(4)],
			Seed:      int64(round),
			PoolOrder: options.PoolOrder{
				PoolSize:   []Bytes{300, 4000, 40_000, 300_000}[rng.IntN(4)],
				PoolShards: rng.IntN(5),
			},
		},
		Runtime: options.Runtime{
			Threads:      1 + rng.IntN(5),
			Prefetch:     1 + rng.IntN(5),
			MemoryBudget: 1 << 20,
			IOThreads:    1 + rng.IntN(4),
		},
		CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
	}
	switch rng.IntN(4) {
	case 0:
		cfg.Cache, cfg.CacheBudget = "ram", []Bytes{4000, 1 << 18}[rng.IntN(2)]
	case 1:
		cfg.Cache, cfg.CacheBudget = t.TempDir(), 8<<20
	}
	if rng.IntN(2) == 0 {
		cfg.Deltas = deltas(
			"cam",
			[]float64{-0.3, 0, 0.1},
			"observation.state",
			[]float64{-0.1, 0, 0.5},
			"wide",
			[]float64{-0.1, 0},
		)
	}
	faults := rng.IntN(3)
	if faults == 0 {
		cfg.OnBadEpisode = "skip"
		f.frames.broken = map[string]map[int]bool{"v0.mp4": {rng.IntN(9): true}}
		f.frames.odd = map[string]map[int]bool{"w1.mp4": {rng.IntN(9): true}}
		f.frames.missing = map[robocache.Row]bool{{Episode: 1, Index: 0}: true}
		if f.perFile > 1 {
			f.frames.lost = map[string]bool{"w2.mp4": true}
		}
	}
	l, err := New(bg, f, cfg)
	if err != nil {
		if faults == 0 {
			return // nothing of it can be had
		}
		t.Fatalf("round %d: %v", round, err)
	}
	defer func() {
		l.Close()
		if n := f.opened.Load(); n != 0 {
			t.Errorf("round %d: %d files are open", round, n)
		}
	}()
	type held struct {
		b   *layout.Batch
		sum uint64
	}
	var keep []held
	seed := maphash.MakeSeed()
	sum := func(b *layout.Batch) uint64 {
		var h maphash.Hash
		h.SetSeed(seed)
		for i := range b.Tensors {
			h.Write(b.Tensors[i].Data)
		}
		return h.Sum64()
	}
	drop := func() {
		if keep[0].sum != sum(keep[0].b) {
			t.Fatalf("round %d: a batch that was handed out has changed", round)
		}
		keep[0].b.Release()
		keep = keep[1:]
	}
	states := []State{l.State()}
	seen := map[int64]bool{}
	skipped := 0
	for range 60 {
		switch rng.IntN(24) {
		case 0:
			if err := l.SetEpoch(rng.Int64N(4)); err != nil {
				t.Fatal(err)
			}
			clear(seen)
			skipped = 1 << 30
		case 1:
			if err := l.Restore(states[rng.IntN(len(states))], false); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			clear(seen)
		case 2:
			states = append(states, l.State())
		case 3:
			f.flaky.Store(rng.Int64N(4))
		case 4:
			ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(300))*time.Microsecond)
			b, err := l.Next(ctx)
			cancel()
			if err == nil {
				keep = append(keep, held{b, sum(b)})
			}
			clear(seen)
		default:
			ctx, cancel := context.WithTimeout(bg, 10*time.Minute)
			b, err := l.Next(ctx)
			cancel()
			switch {
			case errors.Is(err, io.EOF):
				if len(l.State().BadEpisodes) == 0 && int64(len(seen)) > l.Samples() {
					t.Fatalf("round %d: %d samples", round, len(seen))
				}
				clear(seen)
			case errors.Is(err, robocache.ErrTemporary):
			case err != nil && faults == 0 && errors.Is(err, robocache.ErrMalformed):
				return // every episode is bad
			case err != nil:
				t.Fatalf("round %d %+v: %v", round, cfg, err)
			default:
				checkBatch(t, f, l.config, b)
				for _, i := range b.Indices {
					if seen[i] {
						t.Fatalf("round %d: sample %d twice", round, i)
					}
					seen[i] = true
				}
				keep = append(keep, held{b, sum(b)})
			}
		}
		for len(keep) > 3 {
			drop()
		}
		s := l.Stats()
		if s.Memory.KeptPeak > s.Memory.Kept+4096 ||
			s.Cache != nil && s.Cache.Bytes > s.Cache.Budget {
			t.Fatalf("round %d: memory %+v, cache %+v", round, s.Memory, s.Cache)
		}
	}
	_ = skipped
	if err := l.SetEpoch(99); err != nil {
		t.Fatal(err)
	}
	kept := l.assembler.Frames.Stats(cfg.Cache)
	cached := int64(0)
	if kept.Cache != nil && kept.Cache.Where == options.CacheInRAM {
		cached = kept.Cache.Bytes
	}
	if kept.Bytes != cached {
		t.Fatalf(
			"round %d: %d bytes of frames are in use, the cache has %d",
			round,
			kept.Bytes,
			cached,
		)
	}
	// The loader is closed while it is asked.
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			b, err := l.Next(bg)
			if errors.Is(err, robocache.ErrMisuse) {
				return
			}
			if err == nil {
				b.Release()
			}
		}
	})
	time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	l.Close()
	wg.Wait()
	for len(keep) > 0 {
		drop()
	}
}

// TestStressMixture checks loader.L24 with fakes: each slot holds the values of its source's
// sample.
func TestStressMixture(t *testing.T) {
	for round := range uint64(20) {
		rng := rand.New(rand.NewPCG(round, 78))
		var fakes []*fake
		var mix []options.Mix
		for i := range 1 + rng.IntN(4) {
			f := newFake(lengthsFor(round*7+uint64(i), 2+rng.IntN(6), 1, 30)...)
			f.tag, f.share, f.perFile = string(rune('a'+i)), rng.IntN(3) == 0, 1+rng.IntN(4)
			if i > 1 && rng.IntN(2) == 0 {
				f = fakes[0] // the same dataset twice
			}
			m := options.Mix{Dataset: f}
			if w := float64(1 + rng.IntN(4)); round%2 == 0 {
				m.Weight = &w
			}
			if rng.IntN(2) == 0 && i > 0 {
				m.Rename = map[string]string{"cam": "label", "label": "cam"}
				m.Rename = map[string]string{
					"action":            "observation.state",
					"observation.state": "action",
				}
				m.Keys = []string{"cam", "label", "task"}
			}
			fakes, mix = append(fakes, f), append(mix, m)
		}
		cfg := options.Config{
			Order: options.Order{
				BatchSize: 1 + rng.IntN(20),
				Shuffle:   []Shuffle{Pool, Global}[rng.IntN(2)],
				Seed:      int64(round),
				PoolOrder: options.PoolOrder{PoolSize: 40_000},
			},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 2 << 20},
			CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
			Windows:      options.Windows{Missing: "pad"},
		}
		if rng.IntN(3) == 0 {
			cfg.Cache, cfg.CacheBudget = "ram", 1<<17
		}
		if rng.IntN(2) == 0 {
			cfg.Deltas = deltas("cam", []float64{-0.3, 0, 0.1})
		}
		l, err := NewMix(bg, mix, cfg)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 40 {
			b, err := l.Next(bg)
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			for i, f := range fakes {
				one := &layout.Batch{Rows: 0}
				var at []int
				for k, s := range b.Indices {
					if src, own := l.assembler.SourceOf(s); src.Index == i {
						at = append(at, k)
						one.Indices = append(one.Indices, own)
					}
				}
				for _, tensor := range b.Tensors {
					if mix[i].Keys != nil && !slices.Contains(mix[i].Keys, tensor.Key) &&
						tensor.Key != "cam_is_pad" {
						continue
					}
					size := len(tensor.Data) / b.Rows
					x := layout.Tensor{Key: tensor.Key, DType: tensor.DType, Shape: tensor.Shape}
					for _, k := range at {
						x.Data = append(x.Data, tensor.Data[k*size:(k+1)*size]...)
						if tensor.Key == layout.DatasetIndex && x.Data[len(x.Data)-8] != byte(i) {
							t.Fatalf(
								"round %d: slot %d says it is of source %d",
								round,
								k,
								x.Data[len(x.Data)-8],
							)
						}
					}
					one.Tensors = append(one.Tensors, x)
				}
				for _, texts := range b.Texts {
					x := layout.Texts{Key: texts.Key}
					for _, k := range at {
						x.Values = append(x.Values, texts.Values[k])
					}
					one.Texts = append(one.Texts, x)
				}
				checkBatch(t, f, cfg, one)
			}
			b.Release()
		}
		l.Close()
	}
}
