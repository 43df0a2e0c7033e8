package loader

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

const weightsText = `"episode_weights": {"0": 2.5, "1": 0, "3": 0.4, "4": 0.001}`

// TestEpisodeWeightsCountSamples counts how often each sample occurs in several epochs.
func TestEpisodeWeightsCountSamples(t *testing.T) {
	lengths := []int{6, 5, 7, 10, 3}
	perEpoch := []int64{15, 0, 7, 4, 1} // 2.5·6, 0, 7, 0.4·10 and at least one
	f := newFake(lengths...)
	for _, shuffle := range []string{"false", `"global"`, `"pool"`} {
		l := mustLoader(t, f, parsedConfig(t, fmt.Sprintf(`{%s, "keys": ["index"],
			"shuffle": %s, "batch_size": 4, "seed": 3, "pool_episodes": 2}`, weightsText, shuffle)))
		if n := l.Samples(); n != 27 {
			t.Fatalf("shuffle %s: %d samples in an epoch, want 27", shuffle, n)
		}
		total := make([]int64, 26) // episode 1 has no samples
		for epoch := range int64(10) {
			want := make([]int64, 27)
			l.Order(epoch).Fill(want, 0)
			got, _ := epochOf(t, nil, l)
			if !slices.Equal(got, want) {
				t.Fatalf("shuffle %s: the samples are not in the order that Order says", shuffle)
			}
			rows, _ := l.Rows(got)
			of := make([]int64, len(lengths))
			for i, r := range rows {
				of[r.Episode]++
				total[got[i]]++
			}
			if !slices.Equal(of, perEpoch) {
				t.Fatalf("shuffle %s, epoch %d: %v samples of the episodes, want %v", shuffle,
					epoch, of, perEpoch)
			}
		}
		for sample, n := range total {
			rows, _ := l.Rows([]int64{int64(sample)})
			e := rows[0].Episode
			expected := 10 * float64(perEpoch[e]) / float64(lengths[e])
			if math.Abs(float64(n)-expected) >= 1 {
				t.Errorf(
					"shuffle %s: sample %d of episode %d occurs %d times in 10 epochs, want %g",
					shuffle,
					sample,
					e,
					n,
					expected,
				)
			}
		}
	}
}

// TestEpisodeWeightsResume cuts an epoch at each step, for one and two ranks.
func TestEpisodeWeightsResume(t *testing.T) {
	f := newFake(6, 5, 7, 10, 3)
	for _, shuffle := range []string{"false", `"global"`, `"pool"`} {
		cfg := parsedConfig(t, fmt.Sprintf(`{%s, "keys": ["index"], "shuffle": %s,
			"batch_size": 4, "seed": 3, "pool_episodes": 2}`, weightsText, shuffle))
		whole := mustLoader(t, f, cfg)
		epochOf(t, nil, whole)
		want := make([]int64, whole.Samples())
		whole.Order(1).Fill(want, 0)
		for step := range 6 {
			cut := mustLoader(t, f, cfg)
			cut.SetEpoch(1)
			var got []int64
			for range step {
				b, err := cut.Next(bg)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b.Indices...)
				b.Release()
			}
			var parts [2][]int64
			for rank := range parts {
				half := cfg
				half.BatchSize, half.WorldSize, half.Rank, half.Uneven = 2, 2, rank, Short
				l := mustLoader(t, f, half)
				if err := l.Restore(cut.State(), false); err != nil {
					t.Fatal(err)
				}
				parts[rank], _ = epochOf(t, nil, l)
			}
			got = slices.Concat(got, parts[0], parts[1])
			slices.Sort(got)
			sorted := slices.Sorted(slices.Values(want))
			if !slices.Equal(got, sorted) {
				t.Fatalf(
					"shuffle %s, step %d: two ranks went on to %v, want %v",
					shuffle,
					step,
					got,
					sorted,
				)
			}
		}
		other := cfg
		other.EpisodeWeights = map[int64]float64{0: 2.5, 1: 0, 3: 0.4}
		if err := mustLoader(t, f, other).Restore(whole.State(), false); !errors.Is(
			err,
			robocache.ErrMisuse,
		) {
			t.Errorf("a state of other weights: %v", err)
		}
	}
}

// TestWeightByIsTheValueOfAnExpression compares it with the same weights as numbers, for one dataset
// and for a source of a mixture.
func TestWeightByIsTheValueOfAnExpression(t *testing.T) {
	f := newFake(6, 5, 7, 10, 3)
	const more = `"keys": ["index"], "shuffle": "global", "batch_size": 4, "seed": 3`
	by := parsedConfig(t, `{"weight_by": "length / 4 - 0.75", `+more+`}`)
	as := parsedConfig(t, `{"episode_weights": {"0": 0.75, "1": 0.5, "2": 1, "3": 1.75, "4": 0}, `+
		more+`}`)
	a, b := mustLoader(t, f, by), mustLoader(t, f, as)
	want, got := make([]int64, b.Samples()), make([]int64, a.Samples())
	b.Order(1).Fill(want, 0)
	a.Order(1).Fill(got, 0)
	if len(got) != 5+3+7+18 || !slices.Equal(got, want) {
		t.Errorf("%d samples %v, want %v", len(got), got, want)
	}
	plain := parsedConfig(t, `{"weight_by": "length", `+more+`}`)
	sources := []Mix{{Dataset: f, WeightBy: "length / 4 - 0.75"}, {Dataset: newFake(2)}}
	l, err := NewMix(bg, sources, plain)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := l.Samples(); n != 5+3+7+18+2*2 {
		t.Errorf("%d samples of the mixture", n)
	}
	sources[0] = Mix{Dataset: f, EpisodeWeights: map[int64]float64{3: 2, 0: 0}}
	other, err := NewMix(bg, sources, plain)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if n := other.Samples(); n != 5+7+20+3+2*2 {
		t.Errorf("%d samples of the mixture with numbers", n)
	}
	sources[0].WeightBy = "length"
	if _, err := NewMix(bg, sources, plain); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a source with weight_by and episode_weights: %v", err)
	}
	for text, class := range map[string]error{
		`"weight_by": "length > 3"`:                          robocache.ErrMisuse,
		`"weight_by": "observation.state"`:                   robocache.ErrMisuse,
		`"weight_by": "length -"`:                            robocache.ErrMisuse,
		`"weight_by": "5 - length"`:                          robocache.ErrMisuse,
		`"weight_by": "length / 0"`:                          robocache.ErrMisuse,
		`"weight_by": "(length - 3) / (length - 3)"`:         robocache.ErrMisuse,
		`"weight_by": "q.score"`:                             robocache.ErrNotFound,
		`"weight_by": "length", "episode_weights": {"0": 2}`: robocache.ErrMisuse,
	} {
		cfg, err := ParseConfig([]byte("{" + text + "}"))
		if err == nil {
			_, err = New(bg, f, cfg)
		}
		if !errors.Is(err, class) {
			t.Errorf("%s: got %v, want %v", text, err, class)
		}
	}
}

// TestWeightZeroLeavesAnEpisodeOut compares it with a selection of the other episodes.
func TestWeightZeroLeavesAnEpisodeOut(t *testing.T) {
	f := newFake(6, 5, 7)
	zero := parsedConfig(t, `{"keys": ["index"], "episode_weights": {"1": 0}}`)
	m, err := NewMap(bg, f, zero)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Len() != 13 {
		t.Errorf("the Map has %d samples, want 13", m.Len())
	}
	selected := parsedConfig(t, `{"keys": ["index"], "episodes": [0, 2]}`)
	a, b := mustLoader(t, f, zero), mustLoader(t, f, selected)
	if err := a.Restore(b.State(), false); err != nil {
		t.Errorf("a state of the same episodes: %v", err)
	}
	for _, text := range []string{`{"0": -1}`, `{"7": 1}`, `{"0": 1e9}`, `{"x": 1}`} {
		cfg, err := ParseConfig([]byte(`{"episode_weights": ` + text + "}"))
		if err == nil {
			_, err = New(bg, f, cfg)
		}
		if err == nil {
			t.Errorf("episode_weights %s are accepted", text)
		}
	}
}
