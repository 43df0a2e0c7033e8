package loader

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/synth"
)

// TestGeneratedNumbers checks that a dataset without LeRobot's columns has index, episode_index and
// frame_index on request only.
func TestGeneratedNumbers(t *testing.T) {
	keys := []string{"action", "index", "episode_index", "frame_index"}
	made, err := synth.New(synth.Options{Preset: "heterogeneous", Episodes: 5, Cap: 20})
	if err != nil {
		t.Fatal(err)
	}
	made.Info().NumberEpisodes([]int64{100, 101, 102, 103, 104})
	ds := made
	before := func(e int) (n int64) {
		for i := range e {
			n += int64(ds.Len(i))
		}
		return n
	}
	hz := robocache.Rate{Num: 50, Den: 1}
	for name, cfg := range map[string]options.Config{
		"rows": {
			Windows: options.Windows{Keys: keys},
			Order:   options.Order{BatchSize: 8, Seed: 2},
		},
		"some": {
			Windows: options.Windows{Keys: keys},
			Order:   options.Order{BatchSize: 8, Seed: 2, Episodes: []int{101, 104}, DropTail: 3},
		},
		"grid": {
			Align:   &align.Config{HZ: hz},
			Windows: options.Windows{Keys: keys},
			Order:   options.Order{BatchSize: 8, Seed: 2, Episodes: []int{101, 104}},
		},
		"plain": {Order: options.Order{BatchSize: 8}},
	} {
		l, err := New(bg, ds, cfg)
		if err != nil {
			t.Fatal(name, err)
		}
		seen := 0
		for {
			b, err := l.Next(bg)
			if err != nil {
				break
			}
			seen += b.Rows
			if name == "plain" {
				if b.Tensor("index") != nil {
					t.Error("an index that nobody asked for")
				}
				b.Release()
				continue
			}
			index, episode, frame := column.AsSlice[int64](b.Tensor("index").Data),
				column.AsSlice[int64](b.Tensor("episode_index").Data),
				column.AsSlice[int64](b.Tensor("frame_index").Data)
			if shape := b.Tensor("index").Shape; !slices.Equal(shape, []int{b.Rows}) {
				t.Fatalf("%s: shape %v", name, shape)
			}
			err = l.Locate(b.Indices, func(i, _ int, r robocache.Row) {
				want := before(r.Episode) + int64(r.Index)
				if name == "grid" {
					want = b.Indices[i]
				}
				if index[i] != want || episode[i] != int64(r.Episode)+100 ||
					frame[i] != int64(r.Index) {
					t.Errorf(
						"%s: sample %d, row %v: index %d (want %d), episode %d, frame %d",
						name,
						b.Indices[i],
						r,
						index[i],
						want,
						episode[i],
						frame[i],
					)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		if seen == 0 {
			t.Errorf("%s: no samples", name)
		}
		l.Close()
	}
	if _, err := New(
		bg,
		ds,
		options.Config{
			Windows: options.Windows{
				Keys:    keys,
				Indices: Indices{{Key: "index", Rows: []int{0, 1}}},
			},
		},
	); !errors.Is(
		err,
		robocache.ErrMisuse,
	) {
		t.Error("a window of the index:", err)
	}
	// Each source of a mixture is counted separately, also on a grid.
	mix, err := NewMix(
		bg,
		[]options.Mix{{Dataset: ds}, {Dataset: ds}},
		options.Config{
			Align:   &align.Config{HZ: hz},
			Windows: options.Windows{Keys: keys},
			Order:   options.Order{BatchSize: 8, Seed: 2},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer mix.Close()
	seen := map[[2]int64]bool{}
	for {
		b, err := mix.Next(bg)
		if err != nil {
			break
		}
		index := column.AsSlice[int64](b.Tensor("index").Data)
		err = mix.Locate(
			b.Indices,
			func(i, source int, _ robocache.Row) { seen[[2]int64{int64(source), index[i]}] = true },
		)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	for i := range int64(len(seen) / 2) {
		if !seen[[2]int64{0, i}] || !seen[[2]int64{1, i}] {
			t.Fatalf("%d samples of two equal sources, and none has index %d of one", len(seen), i)
		}
	}
	if len(seen) == 0 {
		t.Error("a mixture without samples")
	}
}

// TestGeneratedIsNotNormalized checks that naming a key for normalisation that the loader computes,
// or a text, is an error and not ignored (loader.L30).
func TestGeneratedIsNotNormalized(t *testing.T) {
	for _, key := range column.GeneratedKeys() {
		for _, norm := range []options.Norm{
			{Mode: "mean_std"},
			{Mode: "mean_std", Mean: []float64{0}, Std: []float64{1}},
		} {
			cfg := options.Config{
				Windows: options.Windows{Keys: []string{"action", key}},
				Statistics: options.Statistics{
					Normalize: options.Normalize{Keys: map[string]options.Norm{key: norm}},
				},
			}
			l, err := New(bg, newFake(3), cfg)
			if err == nil {
				l.Close()
			}
			if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}
