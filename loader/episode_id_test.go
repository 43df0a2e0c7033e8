package loader

import (
	"errors"
	"strconv"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TestEpisodeID checks that "episode_id" is the index of each sample's episode, by rows and on a
// timeline, and is delivered on request only.
func TestEpisodeID(t *testing.T) {
	for _, cfg := range []options.Config{
		{
			Windows: options.Windows{Keys: []string{"index", options.EpisodeID}},
			Order:   options.Order{BatchSize: 4, Seed: 3},
		},
		{
			Windows: options.Windows{Keys: []string{"index", options.EpisodeID}},
			Order:   options.Order{BatchSize: 4, Seed: 3, Episodes: []int{2, 0}},
		},
	} {
		l, err := New(bg, newFake(3, 2, 5), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := l.Next(bg)
			if err != nil {
				break
			}
			ids := b.Text(options.EpisodeID)
			if len(ids) != b.Rows {
				t.Fatalf("%d ids of %d samples", len(ids), b.Rows)
			}
			err = l.Locate(b.Indices, func(i, _ int, r robocache.Row) {
				if ids[i] != strconv.Itoa(r.Episode) {
					t.Errorf(
						"sample %d of episode %d has the id %q",
						b.Indices[i],
						r.Episode,
						ids[i],
					)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		l.Close()
	}
	l, err := New(bg, newFake(3), options.Config{Order: options.Order{BatchSize: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(bg)
	if err != nil {
		t.Fatal(err)
	}
	if b.Text(options.EpisodeID) != nil {
		t.Error("an id that nobody asked for")
	}
	b.Release()
	_, err = New(
		bg,
		newFake(3),
		options.Config{
			Windows: options.Windows{
				Keys:   []string{options.EpisodeID},
				Native: NativeWindows{{Key: options.EpisodeID, Offsets: []float64{0}}},
			},
		},
	)
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Error("a window of the id:", err)
	}
}

// TestEpisodeIDOfMixture: a mixture gives the episodes of its sources' own numbers, beside
// dataset_index.
func TestEpisodeIDOfMixture(t *testing.T) {
	cfg := options.Config{
		Order:   options.Order{BatchSize: 5},
		Windows: options.Windows{Keys: []string{options.EpisodeID}},
	}
	l, err := NewMix(bg, []options.Mix{{Dataset: newFake(2, 3)}, {Dataset: newFake(1, 4)}}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range l.Len() {
		b, err := l.Next(bg)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Locate(b.Indices, func(i, source int, r robocache.Row) {
			if got, want := b.Text(options.EpisodeID)[i], strconv.Itoa(r.Episode); got != want {
				t.Errorf("source %d, sample %d: episode %s, want %s", source, i, got, want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
}
