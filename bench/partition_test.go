package bench

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/submit"
)

func TestPartitionKeepsFilesTogether(t *testing.T) {
	eps := []PartEpisode{
		{0, 10, []string{"a"}}, {1, 10, []string{"a", "b"}}, {2, 10, []string{"b"}}, // one group of 30
		{3, 20, []string{"c"}}, {4, 5, []string{"d"}}, {5, 5, nil},
	}
	p, err := Partition(eps, 2)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p.Bins, [][]int{{0, 1, 2}, {3, 4, 5}}) || !slices.Equal(p.Load, []int64{30, 30}) || p.Cut != nil {
		t.Errorf("%+v", p)
	}
	// The order of the arguments does not matter.
	mixed := slices.Clone(eps)
	slices.Reverse(mixed)
	if q, err := Partition(mixed, 2); err != nil || !reflect.DeepEqual(p, q) {
		t.Errorf("%+v %v", q, err)
	}
	// Four groups and five bins: every episode for itself, and the files that are cut are named.
	if p, err = Partition(eps, 5); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p.Bins, [][]int{{3}, {0}, {1}, {2}, {4, 5}}) || !slices.Equal(p.Cut, []string{"a", "b"}) {
		t.Errorf("%+v", p)
	}
	if p.sumBytes(func(f string) int64 { return int64(f[0]-'a') + 1 }); !slices.Equal(p.Bytes, []int64{3, 1, 3, 2, 4}) {
		t.Errorf("bytes %v", p.Bytes)
	}
	if text := p.String(); !strings.Contains(text, "5 bins, 10 to 20 frames, 1 to 4 bytes of video; 2 files are shared by bins and read more than once: a, b") {
		t.Error(text)
	}
	for _, bad := range []func() (*Parts, error){
		func() (*Parts, error) { return Partition(eps, 7) },
		func() (*Parts, error) { return Partition(eps, 0) },
		func() (*Parts, error) { return Partition([]PartEpisode{{0, 0, nil}}, 1) },
	} {
		var e *robocache.Error
		if _, err := bad(); !errors.As(err, &e) {
			t.Errorf("%v", err)
		}
	}
}

// Ties go to the lowest group and the lowest bin.
func TestPartitionTies(t *testing.T) {
	var eps []PartEpisode
	for i := range 6 {
		eps = append(eps, PartEpisode{Position: i, Weight: 1})
	}
	p, err := Partition(eps, 3)
	if err != nil || !reflect.DeepEqual(p.Bins, [][]int{{0, 3}, {1, 4}, {2, 5}}) {
		t.Errorf("%+v %v", p, err)
	}
}

// Every episode is in one bin, no bin is empty, and the heaviest is within (4/3 − 1/(3m)) of the best, found by trying all.
func TestPartitionBound(t *testing.T) {
	worst := 0.0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		bins := 2 + rng.IntN(3)
		n := bins + rng.IntN(7-bins/2)
		eps := make([]PartEpisode, n)
		var weights []int64
		for i := range eps {
			eps[i] = PartEpisode{Position: i, Weight: 1 + rng.Int64N(20)}
			weights = append(weights, eps[i].Weight)
		}
		p, err := Partition(eps, bins)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, b := range p.Bins {
			if len(b) == 0 {
				t.Fatalf("seed %d: an empty bin: %+v", seed, p)
			}
			seen += len(b)
		}
		if seen != n {
			t.Fatalf("seed %d: %d of %d episodes", seed, seen, n)
		}
		best := bestMakespan(weights, make([]int64, bins))
		ratio := float64(slices.Max(p.Load)) / float64(best)
		if bound := 4.0/3 - 1/(3*float64(bins)); ratio > bound+1e-12 {
			t.Errorf("seed %d: %v times the best, bound %v", seed, ratio, bound)
		}
		worst = max(worst, ratio)
	}
	if worst <= 1 {
		t.Error("no case where LPT is not the best: the bound was not tried")
	}
}

func bestMakespan(weights []int64, load []int64) int64 {
	if len(weights) == 0 {
		return slices.Max(load)
	}
	best := int64(1 << 60)
	for b := range load {
		load[b] += weights[0]
		best = min(best, bestMakespan(weights[1:], load))
		load[b] -= weights[0]
		if load[b] == 0 {
			break // the other empty bins are the same
		}
	}
	return best
}

func TestEpisodes(t *testing.T) {
	for text, want := range map[string][]int{"0-3,7": {0, 1, 2, 3, 7}, "5": {5}, "4,1-2": {1, 2, 4}, "2,2": {2}} {
		got, err := ParseEpisodes(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if back, err := ParseEpisodes(submit.Ranges(got)); err != nil || !slices.Equal(back, want) {
			t.Errorf("%v is written as %s", want, submit.Ranges(got))
		}
	}
	for _, bad := range []string{"a", "3-1", "-1", "1,", "0-999999999999"} {
		if _, err := ParseEpisodes(bad); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	all := make([]int, 1000)
	for i := range all {
		all[i] = i
	}
	a, b, c := ChooseEpisodes(all, 100, 1), ChooseEpisodes(all, 100, 1), ChooseEpisodes(all, 100, 2)
	if len(a) != 100 || !slices.IsSorted(a) || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the choice is not seeded, or not sorted")
	}
	if a[99] < 800 || len(slices.Compact(slices.Clone(a))) != 100 { // not the first hundred
		t.Errorf("%v", a)
	}
	if len(ChooseEpisodes(all, 0, 1)) != 1000 || len(ChooseEpisodes(all, 2000, 1)) != 1000 {
		t.Error("no cap")
	}
}
