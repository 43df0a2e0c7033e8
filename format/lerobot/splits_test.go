package lerobot

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// splitsOf returns the splits of a set as info.json has them.
func splitsOf(splits map[string]string) string {
	var parts []string
	for name, text := range splits {
		parts = append(parts, fmt.Sprintf("%q: %q", name, text))
	}
	return `"splits": {` + strings.Join(parts, ", ") + `},`
}

// TestSplitsOfRecoveredEpisodes checks to which splits repair adds recovered episodes.
func TestSplitsOfRecoveredEpisodes(t *testing.T) {
	type splits = map[string]string
	appended, twice := []int64{0, 1, 2, -1}, []int64{0, 1, 2, 1}
	for name, c := range map[string]struct {
		table       []int64 // episode_index of each row of the table, -1: no row
		splits, out splits
		unsplit     int64 // episodes that the finding counts
	}{
		"train": {appended, splits{"train": "0:3"}, splits{"train": "0:4"}, 0},
		"train and a part": {
			appended,
			splits{"train": "0:3", "val": "2:3"},
			splits{"train": "0:4", "val": "2:3"},
			0,
		},
		"last split": {
			appended,
			splits{"train": "0:2", "val": "2:3"},
			splits{"train": "0:2", "val": "2:4"},
			0,
		},
		"counted already":    {appended, splits{"train": "0:4"}, splits{"train": "0:4"}, 0},
		"part":               {appended, splits{"train": "0:2"}, splits{"train": "0:2"}, 2},
		"listed twice":       {twice, splits{"train": "0:4"}, splits{"train": "0:4"}, 0},
		"listed twice, once": {twice, splits{"train": "0:3"}, splits{"train": "0:4"}, 0},
		"listed twice, apart": {
			twice,
			splits{"train": "0:2", "val": "2:3"},
			splits{"train": "0:2", "val": "2:4"},
			0,
		},
		"none": {appended, splits{}, splits{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSynth(5, 5, 5, 5)
			s.setIndexes(0, 1, 2, 1)
			s.info = splitsOf(c.splits)
			episodes := s.episodes
			s.episodes = nil
			for i, id := range c.table {
				if id >= 0 {
					episodes[i].Index = id
					s.episodes = append(s.episodes, episodes[i])
				}
			}
			d := wantRepair(t, s.write(t), "occurs twice", []int{0, 1, 2, 3}, []int64{0, 1, 2, 3})
			if !maps.Equal(d.Info().Splits, c.out) {
				t.Errorf("splits %v, want %v", d.Info().Splits, c.out)
			}
			f := pick(d.Info().Findings, "episodes-without-split")
			if (f != nil) != (c.unsplit > 0) || f != nil && f.Count != c.unsplit {
				t.Errorf("%+v, want %d episodes", f, c.unsplit)
			}
		})
	}
}

// TestEpisodesWithoutSplit checks the finding about episodes that belong to no split.
func TestEpisodesWithoutSplit(t *testing.T) {
	for text, want := range map[string]robocache.Severity{
		`"train": "0:5"`:                 robocache.SeverityWarning,
		`"train": "0:3", "val": "3:5"`:   robocache.SeverityWarning,
		`"train": "0:2", "val": "3:5"`:   robocache.SeverityInfo,
		`"train": "1:6"`:                 robocache.SeverityInfo,
		`"train": "0:6"`:                 "",
		`"train": "0:4", "val": "4:6"`:   "",
		`"train": "0:0"`:                 "",
		`"train": "all"`:                 "",
		`"train": "0:100"`:               "",
		``:                               "",
		`"train": "0:5", "late": "4:60"`: "",
	} {
		s := newSynth(5, 5, 5, 5, 5, 5)
		s.info = `"splits": {` + text + `},`
		f := pick(mustOpen(t, s.write(t)).Info().Findings, "episodes-without-split")
		switch {
		case f == nil && want == "":
		case f == nil || f.Severity != want || f.Count == 0:
			t.Errorf("%s: %+v, want %q", text, f, want)
		case want == robocache.SeverityWarning && !strings.Contains(f.Hint, "split"):
			t.Errorf("%s: hint %q", text, f.Hint)
		}
	}
}
