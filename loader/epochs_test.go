package loader

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// waits runs epochs with a consumer that needs a fixed time per batch. It returns the time that the
// consumer waited for each batch.
func waits(t testing.TB, l *Loader, epochs int, each time.Duration) (out [][]time.Duration) {
	t.Helper()
	for range epochs {
		var own []time.Duration
		for {
			begin := time.Now()
			b, err := l.Next(bg)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			own = append(own, time.Since(begin))
			b.Release()
			time.Sleep(each)
		}
		out = append(out, own)
	}
	return out
}

// TestEpochsFollowWithoutAGap checks loader.L32: from the second epoch on, the next one begins
// while the last batches are delivered, so that the consumer does not wait for its first batch.
// Nothing is begun after the first epoch until a second one is requested.
func TestEpochsFollowWithoutAGap(t *testing.T) {
	for _, cfg := range []options.Config{
		{Order: options.Order{Shuffle: Global}},
		{Order: options.Order{Shuffle: Pool, PoolOrder: options.PoolOrder{PoolSize: 40_000}}},
		{Order: options.Order{Shuffle: Global, DropLast: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(lengthsFor(5, 6, 10, 20)...)
			f.slow = time.Millisecond
			cfg.BatchSize, cfg.Threads, cfg.CacheFormat, cfg.MemoryBudget, cfg.Keys = 8, 2, "rgb", 1<<20, []string{
				"cam",
			}
			l := mustLoader(t, f, cfg)
			defer l.Close()
			first := waits(t, l, 1, 100*time.Millisecond)
			synctest.Wait()
			time.Sleep(time.Second)
			if s := l.Stats(); s.Frames != s.Samples || s.InFlight != 0 {
				t.Errorf(
					"%d frames were made for %d samples of one epoch, %d batches are on their way",
					s.Frames,
					s.Samples,
					s.InFlight,
				)
			}
			for epoch, w := range slices.Concat(first, waits(t, l, 4, 100*time.Millisecond)) {
				for i, d := range w {
					if gap := i == 0 && epoch < 2; (d > 0) != gap {
						t.Errorf("epoch %d, batch %d: a wait of %v", epoch, i, d)
					}
				}
			}
		})
	}
}

// TestEpochsThatFollowAreTheSame checks loader.L5: batches and states equal those of a loader that
// is restored before each batch and so begins nothing ahead.
func TestEpochsThatFollowAreTheSame(t *testing.T) {
	f := newFake(lengthsFor(6, 7, 8, 20)...)
	g := newFake(lengthsFor(7, 3, 2, 9)...)
	g.tag = "g"
	f.frames.lost = map[string]bool{"v1.mp4": true}
	for name, cfg := range map[string]options.Config{
		"file":   {},
		"global": {Order: options.Order{Shuffle: Global}},
		"pool": {
			Order: options.Order{
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolSize: 2000, PoolShards: 2},
			},
		},
		"a rank": {
			Order: options.Order{
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolSize: 2000, PoolShards: 2},
				WorldSize: 2,
				Rank:      1,
			},
		},
		"short": {
			Order: options.Order{Shuffle: Global, WorldSize: 3, Rank: 2, Uneven: "short"},
		},
		"drop_last": {
			Order: options.Order{
				Shuffle:   Pool,
				PoolOrder: options.PoolOrder{PoolSize: 2000},
				DropLast:  true,
			},
		},
		"small epochs": {
			Mixture: options.Mixture{EpochSize: 8},
			Order:   options.Order{Shuffle: Pool},
		},
		"stratified": {
			Mixture: options.Mixture{EpochSize: 60, Stratified: true},
			Order:   options.Order{Shuffle: Global},
			Runtime: options.Runtime{Prefetch: 1},
		},
		"skip": {Order: options.Order{Shuffle: Global, OnBadEpisode: "skip"}},
		"skip, pool": {
			Order: options.Order{
				Shuffle:      Pool,
				PoolOrder:    options.PoolOrder{PoolSize: 2000},
				OnBadEpisode: "skip",
				DropLast:     true,
			},
		},
		"skip, a rank": {
			Order: options.Order{
				Shuffle:      Pool,
				PoolOrder:    options.PoolOrder{PoolSize: 2000},
				OnBadEpisode: "skip",
				WorldSize:    2,
			},
		},
		"skip, drop_last": {
			Order: options.Order{
				Shuffle:      Global,
				OnBadEpisode: "skip",
				DropLast:     true,
				WorldSize:    2,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Seed, cfg.BatchSize, cfg.Threads, cfg.CacheFormat, cfg.Keys = 3, 8, 2, "rgb", []string{
				"cam",
				"observation.state",
			}
			mix := mixOf([]*fake{f}, nil)
			if cfg.EpochSize > 0 {
				mix = mixOf([]*fake{g, newFake(9, 4)}, []float64{1, 2})
			} else if cfg.OnBadEpisode == "" {
				mix = mixOf([]*fake{g}, nil)
			}
			on, twin := mustMix(t, mix, cfg), mustMix(t, mix, cfg)
			for step, ends := 0, 0; ends < 6; step++ {
				if err := twin.Restore(on.State(), false); err != nil {
					t.Fatal(err)
				}
				got, err := on.Next(bg)
				if err == io.EOF {
					// as a trainer does that sets each epoch; that changes nothing
					if ends++; ends%2 == 0 {
						if err := on.SetEpoch(on.Epoch()); err != nil {
							t.Fatal(err)
						}
					}
					continue
				}
				want, werr := twin.Next(bg)
				if err != nil || werr != nil {
					t.Fatal(step, err, werr)
				}
				if got.Epoch != want.Epoch || got.Position != want.Position ||
					!slices.Equal(got.Indices, want.Indices) {
					t.Fatalf(
						"step %d, epoch %d, position %d: %v; restored: epoch %d, position %d: %v",
						step,
						got.Epoch,
						got.Position,
						got.Indices,
						want.Epoch,
						want.Position,
						want.Indices,
					)
				}
				checkMixed(t, mix, on, got)
				if s, w := on.State(), twin.State(); !reflect.DeepEqual(s, w) {
					t.Fatalf("step %d: state %+v; restored: %+v", step, s, w)
				}
				if n, m := on.Remaining(), twin.Remaining(); n != m {
					t.Fatalf("step %d: %d batches remain; restored: %d", step, n, m)
				}
				got.Release()
				want.Release()
			}
		})
	}
}

// TestNextEpochWithoutAskingForTheEnd checks that a consumer that counts batches and calls SetEpoch
// without receiving io.EOF waits no longer than one that receives it. SetEpoch to another epoch
// delivers that epoch.
func TestNextEpochWithoutAskingForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(lengthsFor(5, 6, 10, 20)...)
		f.slow = time.Millisecond
		l := mustLoader(
			t,
			f,
			options.Config{
				Order:   options.Order{BatchSize: 8, Shuffle: Global},
				Runtime: options.Runtime{Threads: 2},
				Windows: options.Windows{Keys: []string{"cam"}},
			},
		)
		defer l.Close()
		for _, epoch := range []int64{0, 1, 2, 3, 9, 10, 11, 3} {
			follows := epoch > 0 && l.Epoch() == epoch
			if err := l.SetEpoch(epoch); err != nil {
				t.Fatal(err)
			}
			for i := range l.Len() {
				begin := time.Now()
				b, err := l.Next(bg)
				if err != nil || b.Epoch != epoch || i == 0 && b.Position != 0 {
					t.Fatalf("epoch %d, batch %d: %+v, %v", epoch, i, b, err)
				}
				if waited := time.Since(begin) > 0; i == 0 &&
					waited == (follows && epoch != 1 && epoch != 10) {
					t.Errorf("epoch %d begins with a wait: %v", epoch, waited)
				}
				b.Release()
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
}

// TestPoolOfManyEpochs checks loader.L20 over many epochs: a pool stores no frame of a sample that
// is never delivered, and decodes each frame once per epoch. It checks consumers that receive
// io.EOF and those that count batches.
func TestPoolOfManyEpochs(t *testing.T) {
	for _, asked := range []bool{true, false} {
		f := newFake(lengthsFor(7, 24, 10, 60)...)
		f.gop = 1
		l := mustLoader(
			t,
			f,
			options.Config{
				Order: options.Order{
					BatchSize: 50,
					Shuffle:   Pool,
					PoolOrder: options.PoolOrder{PoolSize: 40_000},
					DropLast:  true,
				},
				Runtime:      options.Runtime{Threads: 3, Prefetch: 2, MemoryBudget: 1 << 20},
				CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
				Windows:      options.Windows{Keys: []string{"cam"}},
			},
		)
		const epochs = 30
		for epoch := range int64(epochs) {
			if asked {
				epochOf(t, f, l)
				continue
			}
			if err := l.SetEpoch(epoch); err != nil {
				t.Fatal(err)
			}
			for range l.Len() {
				b, err := l.Next(bg)
				if err != nil || b.Epoch != epoch {
					t.Fatal(epoch, b, err)
				}
				b.Release()
			}
		}
		s := l.Stats()
		if most := (l.Samples() + 50) * epochs; s.FramesUnique > most ||
			s.Pool.Refused > 50*epochs {
			t.Errorf(
				"asked for ends %v: %d frames were decoded for %d epochs of %d samples, %d refused",
				asked,
				s.FramesUnique,
				epochs,
				l.Samples(),
				s.Pool.Refused,
			)
		}
	}
}

// loader.L13: a rank that loses all its samples in the middle of an epoch says so, and does not go
// on to the next, which the other ranks have not begun.
func TestStarvedEpochThatFollows(t *testing.T) {
	f := newFake(64)
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 8, WorldSize: 2, OnBadEpisode: "skip"},
			Windows: options.Windows{Keys: []string{"observation.state"}},
		},
	)
	s := l.State()
	// Like a state of epoch 2 whose epoch a user has set back.
	s.BadEpisodes = []BadEpisode{{Epoch: 2, Position: 32}}
	if err := l.Restore(s, false); err != nil {
		t.Fatal(err)
	}
	epochOf(t, f, l)
	epochOf(t, f, l)
	for i := range 3 {
		b, err := l.Next(bg)
		if i < 2 {
			if err != nil || b.Epoch != 2 {
				t.Fatal(i, b, err)
			}
			b.Release()
		} else if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("behind the last good sample: %v", err)
		}
	}
}

// BenchmarkEpochStart measures how long a consumer of 20 ms per batch waits for the first batch of
// an epoch, and for the others.
func BenchmarkEpochStart(b *testing.B) {
	f := newFake(lengthsFor(5, 12, 10, 20)...)
	f.slow = 50 * time.Microsecond
	l := mustLoader(
		b,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 12, Shuffle: Global},
			Runtime: options.Runtime{Threads: 2},
			Windows: options.Windows{Keys: []string{"cam"}},
		},
	)
	waits(b, l, 2, 0)
	var first, others []time.Duration
	b.ResetTimer()
	for range b.N {
		w := waits(b, l, 1, 20*time.Millisecond)[0]
		first, others = append(first, w[0]), append(others, w[1:]...)
	}
	slices.Sort(first)
	slices.Sort(others)
	b.ReportMetric(float64(first[len(first)/2].Microseconds()), "first-µs")
	b.ReportMetric(float64(others[len(others)/2].Microseconds()), "others-µs")
}

// From the second epoch on the next one's pool fills as this one drains: with decoders that are
// little faster than the consumer, no epoch begins with waits for a pool.
func TestPoolFillsAsTheLastOneDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(lengthsFor(8, 24, 20, 40)...)
		f.gop, f.slow = 1, 10*time.Millisecond // a frame
		l := mustLoader(
			t,
			f,
			options.Config{
				Order: options.Order{
					BatchSize: 16,
					Shuffle:   Pool,
					PoolOrder: options.PoolOrder{PoolSize: 100_000},
					DropLast:  true,
				},
				Runtime:      options.Runtime{Threads: 2, Prefetch: 2, MemoryBudget: 4 << 20},
				CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
				Windows:      options.Windows{Keys: []string{"cam"}},
			},
		)
		defer l.Close()
		// a batch takes two threads 80 ms
		for epoch, w := range waits(t, l, 5, 100*time.Millisecond) {
			var sum time.Duration
			for _, d := range w {
				sum += d
			}
			if gap := epoch < 2; (sum > 0) != gap {
				t.Errorf("epoch %d: waits of %v", epoch, sum)
			}
		}
	})
}
