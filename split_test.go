package robocache

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestSplitEpisodes(t *testing.T) {
	i := &Info{
		Episodes: 6,
		Splits:   map[string]string{"val": "3:5,0:1", "train": "1:3,5:9", "none": "", "bad": "4:2"},
	}
	for name, want := range map[string][]int{"val": {0, 3, 4}, "train": {1, 2, 5}, "none": nil} {
		if got, err := i.SplitEpisodes(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := i.SplitEpisodes("bad"); !errors.Is(err, ErrMalformed) {
		t.Errorf("a range that goes back: %v", err)
	}
	if _, err := i.SplitEpisodes("test"); !errors.Is(err, ErrMisuse) ||
		!strings.Contains(err.Error(), "val, train") {
		t.Errorf("an unknown split: %v", err)
	}
	if name, e := i.TrainSplit(); name != "train" || len(e) != 3 {
		t.Errorf("for training: %s %v", name, e)
	}
	for _, j := range []*Info{
		{Episodes: 3, Splits: map[string]string{"train": "0:3"}},
		{Episodes: 3, Splits: map[string]string{"val": "0:1"}},
		{Episodes: 3, Split: "val", Splits: map[string]string{"train": "0:1"}},
	} {
		if name, _ := j.TrainSplit(); name != "" {
			t.Errorf("%v: %s is chosen for training", j.Splits, name)
		}
	}
	// A hostile text costs what its own length does, not that of what it names over and over.
	many := &Info{
		Episodes: 1_000_000,
		Splits:   map[string]string{"train": strings.Repeat("0:1000000,", 500)},
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got, err := many.SplitEpisodes("train"); err != nil || len(got) != many.Episodes {
		t.Errorf("%d episodes, %v", len(got), err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 200<<20 {
		t.Errorf("%d MiB for a million episodes", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	if got := Spans([]int{0, 1, 4, 6, 7}); got != "0:2,4:5,6:8" {
		t.Errorf("spans: %s", got)
	}
}

// TestEpisodesOfADataset: chosen episodes are ascending positions of what a split leaves.
func TestEpisodesOfADataset(t *testing.T) {
	whole := &part{Dataset: nil, info: Info{Episodes: 5}, episodes: []int{0, 1, 2, 3, 4}}
	for _, wrong := range [][]int{{5}, {-1}, {1, 1}, {2, 1}} {
		if _, err := openEpisodes(whole, wrong); !errors.Is(err, ErrMisuse) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
