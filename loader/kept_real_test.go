package loader_test

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// truths holds the samples of a dataset as a Map without a cache delivers them: for each
// configuration, the sum of each tensor of a sample. They are shared, because decoding them per
// cache took most of the time of these tests.
type truths struct {
	ds   robocache.Dataset
	seed maphash.Seed
	maps map[string]*truth
}

type truth struct {
	m    *loader.Map
	sums map[int64][]uint64
}

func truthsOf(t *testing.T, ds robocache.Dataset) *truths {
	ts := &truths{ds: ds, seed: maphash.MakeSeed(), maps: map[string]*truth{}}
	t.Cleanup(func() {
		for _, one := range ts.maps {
			one.m.Close()
		}
	})
	return ts
}

// of gives the truth of what cfg asks for, however it is kept and in whatever order it comes.
func (ts *truths) of(t *testing.T, cfg loader.Config) *truth {
	t.Helper()
	cfg.Cache, cfg.CacheFormat, cfg.CacheBudget, cfg.Shuffle, cfg.PoolSize = "", "", 0, loader.FileOrder, 0
	asked, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	one := ts.maps[string(asked)]
	if one == nil {
		m, err := loader.NewMap(context.Background(), ts.ds, cfg)
		if err != nil {
			t.Fatal(err)
		}
		one = &truth{m: m, sums: map[int64][]uint64{}}
		ts.maps[string(asked)] = one
	}
	return one
}

// learn has the sums of all samples.
func (ts *truths) learn(t *testing.T, one *truth, samples []int64) {
	t.Helper()
	fresh := slices.DeleteFunc(
		slices.Clone(samples),
		func(i int64) bool { return one.sums[i] != nil },
	)
	if len(fresh) == 0 {
		return
	}
	b, err := one.m.Items(context.Background(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	for i, sample := range fresh {
		one.sums[sample] = ts.sum(b, i)
	}
}

// sum gives the sums of the tensors of a row of a batch.
func (ts *truths) sum(b *loader.Batch, row int) []uint64 {
	sums := make([]uint64, len(b.Tensors))
	for k := range b.Tensors {
		n := len(b.Tensors[k].Data) / b.Rows
		sums[k] = maphash.Bytes(ts.seed, b.Tensors[k].Data[row*n:(row+1)*n])
	}
	return sums
}

// equalsMap goes through epochs of a loader, and compares each batch with the same samples of a
// Map. It gives the loader's stats after each epoch.
func equalsMap(t *testing.T, ts *truths, cfg loader.Config, epochs int) []loader.Stats {
	t.Helper()
	ctx := context.Background()
	want := ts.of(t, cfg)
	l, err := loader.New(ctx, ts.ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stats []loader.Stats
	for e := range epochs {
		seen := map[int64]bool{}
		for {
			b, err := l.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			ts.learn(t, want, b.Indices)
			for row, i := range b.Indices {
				got := ts.sum(b, row)
				if len(got) != len(want.sums[i]) {
					t.Fatalf(
						"epoch %d, sample %d: %d tensors, want %d",
						e,
						i,
						len(got),
						len(want.sums[i]),
					)
				}
				for k := range got {
					if got[k] != want.sums[i][k] {
						t.Fatalf("epoch %d, sample %d: %s differs", e, i, b.Tensors[k].Key)
					}
				}
				if seen[i] {
					t.Fatalf("epoch %d: sample %d twice", e, i)
				}
				seen[i] = true
			}
			b.Release()
		}
		if int64(len(seen)) != l.Samples() {
			t.Fatalf("epoch %d: %d samples of %d", e, len(seen), l.Samples())
		}
		stats = append(stats, l.Stats())
	}
	return stats
}

// TestRealKeptFramesAreTheSame checks that frames of a pool or a cache equal those that are decoded
// for one item.
func TestRealKeptFramesAreTheSame(t *testing.T) {
	ds := testdata(t, "g1_v30_exact")
	fps := ds.Info().FPS.Float()
	camera := ""
	for _, f := range ds.Info().Features {
		if f.Kind == robocache.KindVideo {
			camera = f.Key
		}
	}
	ts := truthsOf(t, ds)
	windows := loader.Deltas{
		{Key: camera, Offsets: back(3, fps)},
		{Key: "observation.state", Offsets: back(3, fps)},
	}
	// A part of each episode is enough. Other frames of the files are never requested.
	episodes := []int{0, 1, 3}
	drop := 200
	for name, cfg := range map[string]loader.Config{
		"ram": {CacheOptions: loader.CacheOptions{Cache: "ram"}},
		"ram, pixels": {
			CacheOptions: loader.CacheOptions{Cache: "ram", CacheFormat: "rgb"},
		},
		"ram, small": {
			CacheOptions: loader.CacheOptions{Cache: "ram", CacheBudget: 20 << 20},
		},
		"ram, 224": {
			CacheOptions: loader.CacheOptions{Cache: "ram"},
			Images:       loader.Images{ImageSize: []int{224, 224}},
		},
		"ram, planes, 96": {
			CacheOptions: loader.CacheOptions{Cache: "ram", CacheFormat: "yuv"},
			Images:       loader.Images{ImageSize: []int{96, 128}},
		},
		"ram, float": {
			CacheOptions: loader.CacheOptions{Cache: "ram"},
			Images:       loader.Images{ImageDType: "float32", ImageSize: []int{64, 64}},
		},
		"ram, windows": {
			CacheOptions: loader.CacheOptions{Cache: "ram"},
			Windows:      loader.Windows{Deltas: windows},
		},
		"dir": {CacheOptions: loader.CacheOptions{Cache: t.TempDir()}},
		"dir, pixels": {
			CacheOptions: loader.CacheOptions{Cache: t.TempDir(), CacheFormat: "rgb"},
		},
		"dir, 224": {
			CacheOptions: loader.CacheOptions{Cache: t.TempDir()},
			Images:       loader.Images{ImageSize: []int{224, 224}},
		},
		"pool": {Order: loader.Order{Shuffle: loader.Pool}},
		"pool, small": {
			Order: loader.Order{
				Shuffle:   loader.Pool,
				PoolOrder: loader.PoolOrder{PoolSize: 40 << 20},
			},
		},
		"pool, smaller": {
			Order: loader.Order{
				Shuffle:   loader.Pool,
				PoolOrder: loader.PoolOrder{PoolSize: 4 << 20},
			},
		},
		"pool, windows": {
			Order:   loader.Order{Shuffle: loader.Pool},
			Windows: loader.Windows{Deltas: windows},
		},
		"pool, 224": {
			Order:  loader.Order{Shuffle: loader.Pool},
			Images: loader.Images{ImageSize: []int{224, 224}},
		},
		"pool, ram": {
			Order:        loader.Order{Shuffle: loader.Pool},
			CacheOptions: loader.CacheOptions{Cache: "ram"},
		},
		"pool, dir": {
			Order:        loader.Order{Shuffle: loader.Pool},
			CacheOptions: loader.CacheOptions{Cache: t.TempDir()},
		},
		"pool, windows on 10Hz": {
			Order:   loader.Order{Shuffle: loader.Pool},
			Windows: loader.Windows{Hz: &robocache.Rate{Num: 10, Den: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if cfg.Shuffle == loader.FileOrder {
				cfg.Shuffle = loader.Global
			}
			cfg.Episodes, cfg.BatchSize, cfg.Seed, cfg.Threads, cfg.DropTail = episodes, 16, 3, 3, drop
			if cfg.Hz != nil {
				cfg.DropTail = 60
			}
			epochs := equalsMap(t, ts, cfg, 2)
			first, s := epochs[0], epochs[1]
			imgs := first.Samples
			switch {
			case cfg.PoolSize != 0 || cfg.CacheBudget != 0:
				// Too small for all frames: they are decoded again, correctly.
			case cfg.Shuffle == loader.Pool && cfg.Cache != "" && s.FramesDecoded > imgs+imgs/10:
				t.Errorf(
					"%d frames were decoded for %d rows that a cache keeps",
					s.FramesDecoded,
					imgs,
				)
			case cfg.Shuffle == loader.Pool && cfg.Hz == nil && s.FramesDecoded > 3*imgs+imgs/10:
				// the third epoch was begun (loader.L32)
				t.Errorf("%d frames were decoded in two epochs of %d rows", s.FramesDecoded, imgs)
			case cfg.Shuffle == loader.Pool && cfg.Cache == "":
				// Nothing is kept of an episode that is through.
			case cfg.Cache != "" && s.FramesUnique != first.FramesUnique:
				t.Errorf(
					"%d frames were converted again that a cache keeps",
					s.FramesUnique-first.FramesUnique,
				)
			case cfg.Cache != "" && cfg.Deltas == nil && first.FramesUnique != imgs:
				// With windows two horizons may want one frame at the same time: how many do is a
				// matter of scheduling.
				t.Errorf(
					"%d frames were converted for %d rows, each of which wants another one",
					first.FramesUnique,
					imgs,
				)
			}
		})
	}
}
