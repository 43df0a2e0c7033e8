package robocache

import (
	"errors"
	"slices"
	"testing"
)

// oddInfo describes a set whose episodes are numbered 3, 7, 8 and 20, stored in another order.
func oddInfo() *Info {
	info := &Info{Episodes: 4}
	info.NumberEpisodes([]int64{7, 3, 20, 8})
	return info
}

func TestParseEpisodesByIndex(t *testing.T) {
	odd, plain := oddInfo(), &Info{Episodes: 10}
	for _, c := range []struct {
		info *Info
		text string
		want []int
	}{
		{odd, "3", []int{1}},
		{odd, "20,3", []int{2, 1}},
		{odd, "3-8", []int{1, 0, 3}},
		{odd, "0-8", []int{1, 0, 3}},
		{odd, "7-20", []int{0, 3, 2}},
		{odd, "", nil},
		{plain, "0,3,5-9", []int{0, 3, 5, 6, 7, 8, 9}},
		{plain, " 2 , 1", []int{2, 1}},
	} {
		if got, err := c.info.ParseEpisodes(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
	for _, c := range []struct {
		info *Info
		text string
	}{
		{odd, "0"},
		{odd, "4"},
		{odd, "4-6"},
		{odd, "3-21"},
		{odd, "21-30"},
		{odd, "x"},
		{odd, "8-3"},
		{odd, "-1"},
		{odd, "3,"},
		{plain, "10"},
		{plain, "0-10"},
		{plain, "1,x"},
		{plain, "0-999999999999"},
		{&Info{}, "0"},
		{&Info{}, "0-3"},
	} {
		if got, err := c.info.ParseEpisodes(c.text); !errors.Is(err, ErrMisuse) {
			t.Errorf("%q of %s: %v, %v; want misuse", c.text, c.info.EpisodeRanges(), got, err)
		}
	}
}

func TestEpisodeNumbers(t *testing.T) {
	info := oddInfo()
	for position, index := range []int64{7, 3, 20, 8} {
		if got := info.EpisodeIndex(position); got != index {
			t.Errorf("position %d has the index %d, want %d", position, got, index)
		}
		if got, err := info.EpisodePosition(index); err != nil || got != position {
			t.Errorf("index %d is at %d, %v; want %d", index, got, err, position)
		}
		if got, named := info.PositionIn(Where{"episode": index}); got != position || !named {
			t.Errorf("a place in episode %d: %d, %v", index, got, named)
		}
	}
	if got := info.EpisodeRanges(); got != "3,7-8,20" {
		t.Errorf("ranges %s", got)
	}
	if _, named := info.PositionIn(Where{"file": "x"}); named {
		t.Error("a place without an episode names one")
	}
	if got, named := info.PositionIn(Where{"episode": 4}); got != -1 || !named {
		t.Errorf("a place in an episode that is not there: %d, %v", got, named)
	}
	twice := &Info{Episodes: 3}
	twice.NumberEpisodes([]int64{1, 2, 1})
	if _, err := twice.EpisodePosition(1); !errors.Is(err, ErrMisuse) {
		t.Errorf("an index that occurs twice: %v, want misuse", err)
	}
	if _, err := twice.ParseEpisodes("1-2"); !errors.Is(err, ErrMisuse) {
		t.Errorf("a range with an index that occurs twice: %v, want misuse", err)
	}
	same := &Info{Episodes: 3}
	same.NumberEpisodes([]int64{0, 1, 2})
	if same.NumberedEpisodes() != nil {
		t.Error("indices that are the positions are kept")
	}
}
