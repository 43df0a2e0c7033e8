package query_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
)

// randomTable returns a dataset with random values, NaN, infinities and episodes without rows.
func randomTable() *table {
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := make([]int, 600)
	a, b, flag := make([][]float64, 600), make([][]float64, 600), make([][]float64, 600)
	for e := range lengths {
		lengths[e] = rng.IntN(30)
		center := rng.NormFloat64()
		for range lengths[e] {
			a[e] = append(a[e], float64(float32(center+rng.NormFloat64()/4)), rng.NormFloat64())
			b[e] = append(b[e], center*rng.NormFloat64())
			flag[e] = append(flag[e], float64(rng.IntN(2)))
		}
		if e%50 == 7 && lengths[e] > 2 {
			a[e][1], b[e][0] = nan, 1/(b[e][0]-b[e][0])
		}
	}
	d := newTable(lengths...)
	d.add("arm", robocache.Float32, []string{"x", "z"}, a...)
	d.add("force", robocache.Float64, nil, b...)
	d.add("contact", robocache.Bool, nil, flag...)
	return d
}

// TestIndex is query.Q9: an index changes no result, and one of another dataset is not used.
func TestIndex(t *testing.T) {
	d := randomTable()
	path := filepath.Join(t.TempDir(), "meta", "x.index")
	build := func(budget int64) *query.Index {
		_, err := query.BuildIndex(t.Context(), path, d, query.IndexOptions{Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		x, err := query.OpenIndex(t.Context(), path, d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
		return x
	}
	full, part := build(1<<30), build(160_000)
	if !slices.Equal(part.Keys(), []string{"arm", "contact"}) {
		t.Errorf("keys %v", part.Keys())
	}
	for _, text := range []string{
		"x > 0.9", "x > 0 for 0.5s", "max(arm) > 2", "min(arm[z]) >= -1", "not max(x) < 0.5",
		"max(force) < 0.5 or count(rising(x)) > 2", "rising(force) then x < 0 within 0.4s",
		"norm(arm) > 2.5 while contact", "abs(force) > 2", "diff(x) < -0.8", "speed(arm) > 20",
		"x * z - force > 3", "-x > 1", "mean(x) > 1 and first(z) < 0", "last(contact) == 1",
		"x == force", "x != x", "count(contact > 0) == 0", "rising(contact) while max(x) > 0.5",
		"std(x) < 0.1", "duration > 2.5", "not (force < 1 and force > -1)",
	} {
		want := find(t, d, text, query.Options{})
		for _, x := range []*query.Index{full, part} {
			if got := find(t, d, text, query.Options{Index: x}); !slices.Equal(got, want) {
				t.Errorf("%s: %d ranges with an index, %d without", text, len(got), len(want))
			}
		}
	}
	d.streams["arm"][0] = append([]float64{}, d.streams["arm"][0]...)
	d.lengths[3]++
	if _, err := query.OpenIndex(t.Context(), path, d); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	if _, err := query.OpenIndex(t.Context(), path+"x", d); !errors.Is(err, robocache.ErrNotFound) {
		t.Error(err)
	}
}

// FuzzIndex opens damaged index files.
func FuzzIndex(f *testing.F) {
	d := newTable(3, 0, 2)
	d.add("a", robocache.Float32, nil, []float64{1, 2, 3}, nil, []float64{4, 5})
	path := filepath.Join(f.TempDir(), "x.index")
	if _, err := query.BuildIndex(
		f.Context(),
		path,
		d,
		query.IndexOptions{Budget: 1 << 20},
	); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "x.index")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := query.OpenIndex(t.Context(), name, d)
		if err != nil {
			return
		}
		defer x.Close()
		find(t, d, "a > 2 for 0.1s", query.Options{Index: x})
	})
}
