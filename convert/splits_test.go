package convert_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
)

// splitUp adds splits to a dataset.
type splitUp struct {
	robocache.Dataset
	info robocache.Info
}

func (s *splitUp) Info() *robocache.Info     { return &s.info }
func (s *splitUp) Unwrap() robocache.Dataset { return s.Dataset }

// The source's splits become ranges of episodes in the result. A finding reports splits that are
// lost, because train and val must not silently become one train split.
func TestSplits(t *testing.T) {
	made := synthetic(t, synth.Options{Episodes: 5, Seconds: 0.5, Cameras: -1})
	halves := map[string]string{"train": "0:3", "val": "3:5"}
	for _, c := range []struct {
		name, format string
		splits       map[string]string
		episodes     []int
		want         map[string]string // in LeRobot and RLDS
		lost         string
		unsplit      int64 // episodes of the result without a split, in LeRobot
	}{
		{"none", "lerobot", nil, nil, map[string]string{"train": "0:5"}, "", 0},
		{"two", "lerobot", halves, nil, halves, "", 0},
		{
			"some episodes",
			"lerobot",
			halves,
			[]int{2, 3},
			map[string]string{"train": "0:1", "val": "1:2"},
			"",
			0,
		},
		{
			"other order",
			"lerobot",
			halves,
			[]int{4, 3, 0},
			map[string]string{"train": "2:3", "val": "0:2"},
			"",
			0,
		},
		{"of one", "lerobot", halves, []int{4}, map[string]string{"val": "0:1"}, "", 0},
		{
			"overlapping",
			"lerobot",
			map[string]string{"train": "0:3", "few": "1:2"},
			nil,
			map[string]string{"train": "0:3", "few": "1:2"},
			"",
			2,
		},
		{
			"apart",
			"lerobot",
			map[string]string{"train": "0:1,2:5", "val": "1:2"},
			nil,
			map[string]string{"val": "1:2"},
			"train",
			4,
		},
		{
			"apart by order",
			"lerobot",
			halves,
			[]int{0, 3, 1},
			map[string]string{"val": "1:2"},
			"train",
			2,
		},
		{
			"all apart",
			"lerobot",
			map[string]string{"train": "0:1,2:3", "val": "1:2,3:5"},
			nil,
			nil,
			"train, val",
			0,
		},
		{
			"no range",
			"lerobot",
			map[string]string{"train": "0:3", "val": "80%"},
			nil,
			map[string]string{"train": "0:3"},
			"val",
			2,
		},
		{"two", "mcap", halves, nil, nil, "train, val", 0},
		{"two", "zarr", halves, nil, nil, "train, val", 0},
		{"two", "rlds", halves, nil, halves, "", 0},
		{
			"apart",
			"rlds",
			map[string]string{"train": "0:1,2:5", "val": "1:2"},
			nil,
			map[string]string{"train": "0:5"},
			"train, val",
			0,
		},
		{"one", "mcap", map[string]string{"train": "0:5"}, nil, nil, "", 0},
		{"of one", "zarr", halves, []int{0, 2}, nil, "", 0},
	} {
		src := &splitUp{made, *made.Info()}
		src.info.Splits = c.splits
		dst := filepath.Join(t.TempDir(), "out")
		opt := Options{Episodes: c.episodes}
		var found []robocache.Finding
		if c.format == "lerobot" {
			dry := opt
			dry.DryRun = true
			plan, err := ToLeRobot(t.Context(), src, dst, dry)
			if err != nil {
				t.Fatal(c.name, err)
			}
			r, err := ToLeRobot(t.Context(), src, dst, opt)
			if err != nil {
				t.Fatal(c.name, err)
			}
			again := filepath.Join(t.TempDir(), "again")
			opt.Resume = true
			if _, err := ToLeRobot(t.Context(), src, again, opt); err != nil ||
				!maps.Equal(tree(t, dst), tree(t, again)) {
				t.Errorf("%s: with resume: %v, or other bytes", c.name, err)
			}
			found = r.Findings
			if len(plan.Findings) != len(found) {
				t.Errorf("%s: the plan finds %v, the run %v", c.name, plan.Findings, found)
			}
		} else {
			r, err := Write(t.Context(), src, c.format, dst, opt, nil)
			if err != nil {
				t.Fatal(c.name, c.format, err)
			}
			found = r.Findings
		}
		lost := ""
		i := slices.IndexFunc(
			found,
			func(f robocache.Finding) bool { return f.Code == "splits-dropped" },
		)
		if i >= 0 {
			lost = found[i].Message
		}
		if (lost == "") != (c.lost == "") ||
			!strings.Contains(lost, "the splits "+c.lost) && lost != "" {
			t.Errorf("%s to %s: lost %q, want %q", c.name, c.format, lost, c.lost)
		}
		info := open(t, dst).Info()
		if !maps.Equal(info.Splits, c.want) {
			t.Errorf("%s to %s: splits %v, want %v", c.name, c.format, info.Splits, c.want)
		}
		// Splits that leave episodes out are copied as they are; the reader reports these episodes.
		unsplit := int64(0)
		others := slices.DeleteFunc(slices.Clone(info.Findings), func(f robocache.Finding) bool {
			if f.Code == "episodes-without-split" {
				unsplit = f.Count
			}
			return f.Code == "episodes-without-split"
		})
		if c.format == "lerobot" && (len(others) > 0 || unsplit != c.unsplit) {
			t.Errorf(
				"%s: %d episodes without split, want %d; %v",
				c.name,
				unsplit,
				c.unsplit,
				others,
			)
		}
	}
}
