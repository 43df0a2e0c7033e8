package loader

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestMixtureGivesItsSources checks loader.L24 with random mixtures. Each slot equals the sample of
// a Map of its source: frames of two cameras, stills, numbers, texts and masks, with and without
// timelines, under its names. Keys that the source lacks are zeros, "" and masks.
func TestMixtureGivesItsSources(t *testing.T) {
	rounds := uint64(16)
	if testing.Short() { // under the race detector
		rounds = 6
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(round, 79))
		cfg := options.Config{
			Order: options.Order{
				BatchSize: 1 + rng.IntN(20),
				Shuffle:   []Shuffle{Pool, Global}[rng.IntN(2)],
				Seed:      int64(round),
				PoolOrder: options.PoolOrder{PoolSize: 40_000},
			},
			Runtime:      options.Runtime{Threads: 3, MemoryBudget: 4 << 20},
			CacheOptions: options.CacheOptions{CacheFormat: "rgb"},
			Windows:      options.Windows{Missing: "pad"},
		}
		if rng.IntN(3) == 0 {
			cfg.Cache, cfg.CacheBudget = "ram", 1<<17
		}
		if rng.IntN(2) == 0 {
			cfg.Deltas = deltas(
				"wide",
				[]float64{-0.3, 0, 0.1},
				"img",
				[]float64{0, 0.2},
				"observation.state",
				[]float64{-0.1, 0.1},
			)
		}
		var mix []options.Mix
		var alone []*Map
		for i := range 1 + rng.IntN(4) {
			f := newFake(
				lengthsFor(round*7+uint64(i), 2+rng.IntN(6), 3, 30)...).withWide().
				withStills()
			f.tag, f.share, f.perFile = string(rune('a'+i)), rng.IntN(3) == 0, 1+rng.IntN(4)
			var ds robocache.Dataset = f
			if i > 1 && rng.IntN(2) == 0 {
				ds = mix[0].Dataset // the same dataset twice
			}
			m := options.Mix{Dataset: ds}
			own := cfg
			own.Cache, own.Shuffle, own.CacheFormat = "", FileOrder, ""
			if w := float64(1 + rng.IntN(4)); round%2 == 0 {
				m.Weight = &w
			}
			if rng.IntN(3) == 0 {
				m.Hz = &robocache.Rate{Num: 7, Den: 1}
				own.Hz = m.Hz
			}
			if i > 0 && rng.IntN(2) == 0 {
				m.Rename = map[string]string{"cam": "img", "img": "cam", "label": "task text"}
			}
			if i > 0 && rng.IntN(3) == 0 {
				m.Keys = [][]string{
					{"cam", "img", "observation.state", "wide"},
					{"action", "task"},
				}[rng.IntN(2)]
				own.Keys = m.Keys
				own.Deltas = nil
				for _, d := range cfg.Deltas {
					if m.Keys[0] == "cam" {
						own.Deltas = append(own.Deltas, d)
					}
				}
			}
			mix = append(mix, m)
			renamed, err := plan.RenameDataset(ds, m.Rename)
			if err != nil {
				t.Fatal(err)
			}
			one, err := NewMap(bg, renamed, own)
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			alone = append(alone, one)
		}
		l, err := NewMix(bg, mix, cfg)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 12 {
			b, err := l.Next(bg)
			if errors.Is(err, io.EOF) {
				continue
			}
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			for k, s := range b.Indices {
				src, own := l.assembler.SourceOf(s)
				want, err := alone[src.Index].Items(bg, []int64{own})
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range b.Tensors {
					size := len(x.Data) / b.Rows
					got := x.Data[k*size : (k+1)*size]
					if y := want.Tensor(x.Key); y != nil {
						if !bytes.Equal(got, y.Data) {
							t.Fatalf(
								"round %d: slot %d, source %d: %s differs",
								round,
								k,
								src.Index,
								x.Key,
							)
						}
						continue
					}
					if x.Key == layout.DatasetIndex {
						if got[0] != byte(src.Index) {
							t.Fatalf("round %d: slot %d says source %d", round, k, got[0])
						}
						continue
					}
					fill := byte(0)
					if of, mask := strings.CutSuffix(x.Key, "_is_pad"); mask &&
						want.Tensor(of) == nil {
						fill = 1
					}
					if !bytes.Equal(got, bytes.Repeat([]byte{fill}, size)) {
						t.Fatalf(
							"round %d: slot %d, source %d lacks %s, and has %v",
							round,
							k,
							src.Index,
							x.Key,
							got,
						)
					}
				}
				for _, x := range b.Texts {
					text := ""
					if y := want.Text(x.Key); y != nil {
						text = y[0]
					}
					if x.Values[k] != text {
						t.Fatalf(
							"round %d: slot %d, source %d: %s is %q, alone %q",
							round,
							k,
							src.Index,
							x.Key,
							x.Values[k],
							text,
						)
					}
				}
				want.Release()
			}
			b.Release()
		}
		l.Close()
	}
}

// TestMixtureOptionsOfSome checks that options of the Config may name keys that only some sources
// have. Keys that no source has are rejected.
func TestMixtureOptionsOfSome(t *testing.T) {
	a, b := newFake(10, 12).withWide(), newFake(9, 7)
	b.info.Features = b.info.Features[1:] // no state
	cfg := options.Config{
		Align: &align.Config{
			Modes: map[string]align.Mode{"observation.state": align.Previous},
		},
		Order: options.Order{BatchSize: 4},
		Windows: options.Windows{
			Missing: "pad",
			Hz:      &robocache.Rate{Num: 10, Den: 1},
			Deltas:  deltas("wide", []float64{0, 0.1}),
		},
		Statistics: options.Statistics{
			Normalize: Normalize{Keys: map[string]Norm{"observation.state": {Mode: "mean_std"}}},
		},
	}
	sources := []options.Mix{
		{Dataset: a, Name: "a"},
		{Dataset: b, Name: "b", Keys: []string{"cam"}},
	}
	l, err := NewMix(bg, sources, cfg)
	if err != nil {
		t.Fatal(err)
	}
	epochOf(t, nil, l)
	l.Close()
	for name, c := range map[string]options.Config{
		"normalize": {
			Order:   options.Order{BatchSize: 4},
			Windows: options.Windows{Missing: "pad"},
			Statistics: options.Statistics{
				Normalize: Normalize{Keys: map[string]Norm{"stat": {Mode: "mean_std"}}},
			},
		},
		"align": {
			Align:   &align.Config{Modes: map[string]align.Mode{"stat": align.Previous}},
			Order:   options.Order{BatchSize: 4},
			Windows: options.Windows{Missing: "pad", Hz: cfg.Hz},
		},
		"delta": {
			Order:   options.Order{BatchSize: 4},
			Windows: options.Windows{Missing: "pad", Deltas: deltas("stat", []float64{0})},
		},
	} {
		if _, err := NewMix(bg, sources, c); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "stat") {
			t.Errorf("%s of a key that no source has: %v", name, err)
		}
	}
	own := []options.Mix{
		sources[0],
		{Dataset: b, Name: "b", MixStatistics: options.MixStatistics{Normalize: &cfg.Normalize}},
	}
	if _, err := NewMix(bg, own, options.Config{
		Order:   options.Order{BatchSize: 4},
		Windows: options.Windows{Missing: "pad"},
	}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a source's own normalize of a key that it lacks: %v", err)
	}
}

// A wrong option of one source is an error that names this source, by position and path, and so do
// its hints.
func TestMixtureHintsCountSources(t *testing.T) {
	set := func(uri string, change func(*fake)) *fake {
		f := newFake(10, 12).withWide()
		f.info.URI = uri
		if change != nil {
			change(f)
		}
		return f
	}
	at := func(f *fake, key string) *robocache.Feature { return f.info.Feature(key) }
	for name, c := range map[string]struct {
		last options.Mix
		hint string
	}{
		"unknown key": {options.Mix{Dataset: set("/sets/c", nil), Keys: []string{"actoin"}}, ""},
		"no episode":  {options.Mix{Dataset: set("/sets/c", nil), Episodes: []int{7}}, ""},
		"rename": {
			options.Mix{Dataset: set("/sets/c", nil), Rename: map[string]string{"actoin": "x"}},
			"",
		},
		"another dtype": {
			options.Mix{
				Dataset: set("/sets/c", func(f *fake) { at(f, "count").DType = robocache.Int32 }),
			},
			"of source 0 or 2",
		},
		"another shape": {
			options.Mix{Dataset: set("/sets/c", func(f *fake) { at(f, "count").Shape = []int{2} })},
			"of source 0 or 2",
		},
	} {
		_, err := NewMix(
			bg,
			[]options.Mix{{Dataset: set("/sets/a", nil)}, {Dataset: set("/sets/b", nil)}, c.last},
			options.Config{Order: options.Order{BatchSize: 4}},
		)
		var e *robocache.Error
		if !errors.As(err, &e) || e.Where["source"] != 2 || e.Where["dataset"] != "/sets/c" ||
			!strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of a mixture names the source; one of a plain loader has no such thing.
func TestMixtureErrorsNameTheSource(t *testing.T) {
	bad := func() *fake {
		f := newFake(10, 12)
		f.badRows = map[int]error{
			1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "a broken row"},
		}
		f.frames.missing = map[robocache.Row]bool{{Episode: 1, Index: 3}: true}
		return f
	}
	for _, keys := range [][]string{{"action"}, {"cam"}} {
		for _, skip := range []string{"error", "skip"} {
			l, err := NewMix(
				bg,
				[]options.Mix{
					{Dataset: newFake(20), Name: "good"},
					{Dataset: bad(), Name: "worse"},
				},
				options.Config{
					Order:   options.Order{BatchSize: 8, OnBadEpisode: options.OnBad(skip)},
					Windows: options.Windows{Keys: keys},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for text == "" {
				b, err := l.Next(bg)
				if errors.Is(err, io.EOF) {
					text = l.Stats().BadEpisodes[0].Error
				} else if err != nil {
					text = err.Error()
				} else {
					b.Release()
				}
			}
			if !strings.Contains(text, "worse") {
				t.Errorf("%v, %s: %s", keys, skip, text)
			}
			l.Close()
		}
		l := mustLoader(
			t,
			bad(),
			options.Config{
				Order:   options.Order{BatchSize: 8},
				Windows: options.Windows{Keys: keys},
			},
		)
		for {
			b, err := l.Next(bg)
			if err == nil {
				b.Release()
				continue
			}
			if strings.Contains(err.Error(), "dataset") {
				t.Errorf("%v: %v", keys, err)
			}
			break
		}
	}
}
