package query_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/query"
)

var nan = math.NaN()

// arm returns two episodes of 8 rows and one of a single row, at 10 Hz.
func arm() *table {
	d := newTable(8, 8, 1)
	d.tasks = [][]string{{"pick cube"}, {"place"}, {"pick cube", "other"}}
	d.add("gripper", robocache.Float32, nil,
		[]float64{1, 1, 0, 0, 1, 1, 0, 0}, []float64{0, 0, 0, 0, 0, 0, 0, 1}, []float64{1})
	d.add("pose", robocache.Float64, []string{"x", "z"},
		[]float64{0, 0, 3, .1, 6, .3, 6, .3, 6, .3, 6, .3, 6, nan, 6, .1},
		[]float64{0, 5, 0, 5, 0, 5, 0, 0, 0, 0, 0, 0, 0, 5, 0, 5}, []float64{-9, 1})
	d.add("contact", robocache.Bool, nil,
		[]float64{0, 1, 1, 0, 1, 1, 1, 1}, []float64{0, 0, 0, 0, 0, 0, 0, 0}, []float64{1})
	d.add("odd key/1", robocache.Float32, nil, make([]float64, 8), make([]float64, 8), []float64{2})
	d.info.Features = append(d.info.Features,
		robocache.Feature{Key: "subtask", Kind: robocache.KindText, DType: robocache.String},
		robocache.Feature{Key: "rgb", Kind: robocache.KindVideo})
	d.texts["subtask"] = [][]string{
		{"reach", "reach", "grasp", "grasp", "reach", "reach", "grasp", "grasp"},
		slices.Repeat([]string{"reach"}, 8),
		{"grasp"},
	}
	return d
}

// TestFind compares the ranges of expressions with values that were worked out by hand.
func TestFind(t *testing.T) {
	for text, want := range map[string][][3]int{
		// Values of the episode find whole episodes.
		"length < 8":                                                   {{2, 0, 1}},
		"task == 'pick cube' and length > 1":                           {{0, 0, 8}},
		"task != 'pick cube' or index >= 2":                            {{1, 0, 8}, {2, 0, 1}},
		"not (index == 0) and duration > 0.5":                          {{1, 0, 8}},
		"max(gripper) == 1 and min(pose[x]) < -8":                      {{2, 0, 1}},
		"max(gripper) - min(gripper) + length / 2 >= 5":                {{0, 0, 8}, {1, 0, 8}},
		"last(odd key/1) == 2":                                         nil, // replaced below
		"count(gripper) == 8 and mean(contact) == 0":                   {{1, 0, 8}},
		"mean(gripper > 0.5) == 0.5":                                   {{0, 0, 8}},
		"-length <= -8 and index == 1":                                 {{1, 0, 8}},
		"std(pose[x]) == 0 and first(pose) == 0":                       {{1, 0, 8}},
		"count(rising(gripper)) >= 1 and count(falling(gripper)) == 2": {{0, 0, 8}},
		// NaN compares false.
		"max(pose[z]) > 0":   {{1, 0, 8}, {2, 0, 1}},
		"pose[z] != pose[z]": nil,
		"not pose[z] < 99":   {{0, 6, 7}},
		// Conditions are runs of rows; channels have names.
		"z > 0.2":                          {{0, 2, 6}, {1, 0, 3}, {1, 6, 8}, {2, 0, 1}},
		"z > 0.2 and gripper < 0.5":        {{0, 2, 4}, {1, 0, 3}, {1, 6, 7}},
		"z > 0.2 and index == 1":           {{1, 0, 3}, {1, 6, 8}},
		"pose['x'] + 1 > 6 or contact":     {{0, 1, 8}, {2, 0, 1}},
		"contact":                          {{0, 1, 3}, {0, 4, 8}, {2, 0, 1}},
		"not contact":                      {{0, 0, 1}, {0, 3, 4}, {1, 0, 8}},
		"pose[0] * 2 == 6":                 {{0, 1, 2}},
		"abs(x) > 8":                       {{2, 0, 1}},
		"norm(pose) > 9":                   {{2, 0, 1}},
		"max(norm(pose[x])) == 6":          {{0, 0, 8}},
		"diff(x) == 3":                     {{0, 0, 3}},
		"speed(x) > 29":                    {{0, 0, 3}},
		"subtask == 'grasp'":               {{0, 2, 4}, {0, 6, 8}, {2, 0, 1}},
		"'grasp' != subtask and index < 1": {{0, 0, 2}, {0, 4, 6}},
		// Runs that last.
		"z > 0.2 for 0.3s":             {{0, 2, 6}},
		"z > 0.2 for 200ms":            {{0, 2, 6}, {1, 0, 3}},
		"z > 0.2 for 0.1s for 0.31s":   nil,
		"not (z > 0.2) for 0.2s":       {{1, 3, 6}},
		"contact for 0.1s while z < 1": {{0, 1, 3}, {0, 4, 6}, {0, 7, 8}},
		// Events.
		"rising(gripper)":                         {{0, 4, 5}, {1, 7, 8}},
		"falling(gripper)":                        {{0, 2, 3}, {0, 6, 7}},
		"falling(gripper, 2)":                     nil,
		"rising(x, 3)":                            {{0, 2, 3}},
		"rising(contact)":                         {{0, 1, 2}, {0, 4, 5}},
		"falling(z > 0.2)":                        {{0, 6, 7}, {1, 3, 4}},
		"falling(gripper) while z > 0.2":          {{0, 2, 3}},
		"falling(gripper) and z > 0.2":            {{0, 2, 3}},
		"rising(gripper) or falling(gripper)":     {{0, 2, 3}, {0, 4, 5}, {0, 6, 7}, {1, 7, 8}},
		"falling(gripper) while z > 0.2 for 0.5s": nil,
		"count(rising(contact)) >= 2":             {{0, 0, 8}},
		"count(contact) == 8":                     {{0, 0, 8}, {1, 0, 8}},
		"count(contact == 1) == 2":                {{0, 0, 8}},
		// Sequences.
		"falling(gripper) then rising(gripper)":               {{0, 2, 5}},
		"falling(gripper) then rising(gripper) within 0.2s":   {{0, 2, 5}},
		"falling(gripper) then rising(gripper) within 0.1s":   nil,
		"contact then falling(gripper) within 1s":             {{0, 1, 7}},
		"rising(contact) then falling(gripper)":               {{0, 1, 3}, {0, 4, 7}},
		"(rising(contact) then falling(gripper)) for 0.2s":    {{0, 4, 7}},
		"(rising(contact) then falling(gripper)) while z > 0": {{0, 1, 3}},
		"count(rising(contact) then falling(gripper)) == 2":   {{0, 0, 8}},
	} {
		if text == "last(odd key/1) == 2" {
			text, want = "last('odd key/1') == 2", [][3]int{{2, 0, 1}}
		}
		for _, threads := range []int{1, 4} {
			got := find(t, arm(), text, query.Options{Threads: threads})
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", text, got, want)
			}
		}
	}
}

// TestClocks is query.Q8: streams with clocks of their own.
func TestClocks(t *testing.T) {
	d := newTable(4)
	d.stamps[""] = [][]int64{{0, 100e6, 200e6, 300e6}}
	d.add("slow", robocache.Float64, nil, []float64{1, 2, 3, 4})
	d.add("fast", robocache.Float64, nil, []float64{0, 9, 0, 0, 9})
	d.info.Features[1].Clock = "fast"
	d.stamps["fast"] = [][]int64{{50e6, 60e6, 90e6, 240e6, 260e6}}
	for text, want := range map[string][][3]int{
		"fast >= 0":                      {{0, 1, 4}}, // no sample before row 1
		"fast > 5":                       {{0, 3, 4}}, // row 1 takes the sample of 90 ms
		"rising(fast)":                   {{0, 1, 2}, {0, 3, 4}},
		"count(rising(fast)) == 2":       {{0, 0, 4}},
		"mean(fast) == 3.6":              {{0, 0, 4}},
		"slow + fast == 13":              {{0, 3, 4}},
		"fast == 0 for 150ms":            {{0, 1, 3}}, // 90 to 240 ms
		"falling(fast) while slow > 1":   {{0, 1, 2}},
		"rising(fast) then slow > 3":     {{0, 1, 4}},
		"rising(fast) then fast == 0":    {{0, 1, 4}},
		"falling(fast) and not fast > 5": {{0, 1, 2}},
	} {
		if got := find(t, d, text, query.Options{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestMasks is query.Q4 for rows without a value and for streams that an episode lacks.
func TestMasks(t *testing.T) {
	d := newTable(3, 3)
	d.add("force", robocache.Float32, nil, []float64{0, 5, 0}, nil)
	d.info.Features[0].Masked = true
	d.capabilities.Lacks = func(e int, _ string) bool { return e == 1 }
	d.capabilities.Valid = func(
		_ context.Context, _ string, rows []robocache.Row, valid []uint8,
	) error {
		for i, r := range rows {
			valid[i] = uint8(min(r.Index, 1))
		}
		return nil
	}
	if got := find(t, d, "force < 1", query.Options{}); !slices.Equal(got, [][3]int{{0, 2, 3}}) {
		t.Error(got)
	}
}

// TestErrors is query.Q1 and Q3: the message names the place and the problem.
func TestErrors(t *testing.T) {
	d := arm()
	d.add("other", robocache.Float32, []string{"x", "y"}, make([]float64, 16), make([]float64, 16),
		make([]float64, 2))
	for text, want := range map[string]string{
		"":                         "character 1: expected a number, a name",
		"length <":                 `character 9: expected a number, a name or a parenthesis, found "the end"`,
		"length < 3 4":             `character 12: unexpected "4"`,
		"(length < 3":              "expected ) to close",
		"max(gripper < 1":          "expected ) after the arguments of max",
		"length = 3":               `character 8: unexpected '='`,
		"task == 'x":               "quote is not closed",
		"1e999 > 0":                "not a number of 64 bits",
		"3px > 0":                  "neither a number nor a duration",
		"z > 0 for 3":              "expected a duration such as 0.5s after for",
		"rising(z) then z within":  "expected a duration",
		"length":                   "is a number of the episode, no comparison",
		"gripper":                  "is a signal, no comparison",
		"pose > 1":                 "compares a signal of 2 channels",
		"x > 1":                    "several streams have a channel x",
		"nope > 1":                 "no stream of numbers of that name",
		"rgb > 1":                  "no stream of numbers of that name",
		"pose[w] > 1":              `no channel "w" of 2`,
		"gripper[3] > 1":           `no channel "3" of 1`,
		"median(gripper) > 1":      "unknown function median",
		"max(gripper, 2) > 1":      "takes at most 1",
		"max(task) > 1":            "expects a signal or a condition, found a text",
		"max(3) > 1":               "found a number",
		"rising(pose)":             "a signal of one channel",
		"rising(gripper, task)":    "a number as its threshold",
		"task < 'a'":               "texts are compared by == and !=",
		"index + 1 < 2":            "is no quantity",
		"(index < 1) < 2":          "expects two numbers",
		"length and 1":             "expects conditions",
		"not length":               "expects a condition",
		"length < 3 for 1s":        "expects a condition or ranges",
		"rising(z) for 1s":         "expects a condition or ranges, found events",
		"length < 3 while z > 1":   "at its left",
		"z > 1 while rising(z)":    "at its right",
		"rising(z) then length":    "expects events",
		"(z>1 then z<1) and z > 1": "expects conditions, found ranges",
		"pose + other > 1 ":        "compares a signal of 2",
		strings.Repeat("(", 300):   "nested deeper than 200",
		strings.Repeat("-", 300):   "nested deeper than 200",
		strings.Repeat(" ", 4097):  "more than 4096 bytes",
		"ü > 1 ? 2":                `character 7: unexpected '?'`,
	} {
		_, err := query.Episodes(t.Context(), d, text, query.Options{})
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
	}
}

// FuzzParse is query.Q1. Bound expressions give the same result from any number of threads.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"length < 30", "max(pose[x]) > 1.2 or (index == 2)", "max(abs(pose)) > 3",
		"task == 'x' and length >= -4e3", "((((", "min(", "1", "a.b/c < 1", "'", "0.5s", "1e+",
		"falling(gripper) while z > 0.2 for 0.5s", "count(rising(contact)) >= 2",
		"rising(x, 1) then not contact within 2s", "speed(pose) / norm(pose) - -x != .5",
		"q.idle < 0.3", "subtask == 'grasp' for 1min",
	} {
		f.Add(s)
	}
	d := arm()
	opt := query.Options{Threads: 1, Quality: &quality.Table{}}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := query.Parse(s)
		if err == nil {
			var b *query.Bound
			if b, err = e.Bind(t.Context(), d, opt); err == nil {
				_, err = b.Find(t.Context(), nil, 0)
			}
		}
		if err != nil && !errors.Is(err, robocache.ErrMisuse) {
			t.Error(err)
		}
	})
}

// TestQuality checks columns of the quality table, which is found beside the dataset.
func TestQuality(t *testing.T) {
	d := arm()
	q := &quality.Table{
		Episodes: []int64{0, 1}, Lengths: []int64{8, 8},
		Columns: map[string][]float64{"idle_share": {0.1, 0.7}, "blur@top": {nan, 2}},
	}
	opt := query.Options{Quality: q}
	for text, want := range map[string][][3]int{
		"q.idle_share < 0.5":                  {{0, 0, 8}},
		"q.blur@top > 1 or q.idle_share == 0": {{1, 0, 8}},
		"q['blur@top'] != 3":                  {{1, 0, 8}},
		"z > q.idle_share * 0 + 1":            {{1, 0, 3}, {1, 6, 8}},
	} {
		if got := find(t, d, text, opt); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if _, err := query.Episodes(t.Context(), d, "q.none > 1", opt); err == nil ||
		!strings.Contains(err.Error(), "no metric none") {
		t.Error(err)
	}
	d.info.URI = filepath.Join(t.TempDir(), "set")
	_, err := query.Episodes(t.Context(), d, "q.idle_share > 1", query.Options{})
	if !errors.Is(err, robocache.ErrNotFound) ||
		!strings.Contains(err.Error(), "robocache quality") {
		t.Error(err)
	}
}

// success is whether the stream of success is true in a row of the episode.
func TestSuccess(t *testing.T) {
	d := arm()
	if _, err := query.Episodes(t.Context(), d, "success", query.Options{}); err == nil {
		t.Error("success of a dataset that states none")
	}
	d.add("next.success", robocache.Bool, nil, []float64{0, 0, 1, 0, 0, 0, 0, 0},
		make([]float64, 8), []float64{1})
	for text, want := range map[string][][3]int{
		"success":                    {{0, 0, 8}, {2, 0, 1}},
		"not success":                {{1, 0, 8}},
		"success and length > 1":     {{0, 0, 8}},
		"count(rising(success)) > 0": {{0, 0, 8}},
		"next.success":               {{0, 2, 3}, {2, 0, 1}},
	} {
		if got := find(t, d, text, query.Options{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// A range ends, in seconds as in rows, where the next row begins.
func TestRangesInSeconds(t *testing.T) {
	d := arm()
	e, err := query.Parse("contact")
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Bind(t.Context(), d, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := b.Find(t.Context(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]float64
	for _, r := range ranges {
		got = append(got, [2]float64{r.FromS, r.ToS})
	}
	// Rows 1 to 3, 4 to 8 of 8, and the only row of an episode.
	if want := [][2]float64{{0.1, 0.3}, {0.4, 0.8}, {0, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The hint of an unknown name lists a name once that is both a stream and a value of the episode.
func TestHintListsNamesOnce(t *testing.T) {
	d := arm()
	d.add("index", robocache.Float32, nil, make([]float64, 8), make([]float64, 8),
		make([]float64, 1))
	_, err := query.Episodes(t.Context(), d, "indx > 1", query.Options{})
	if err == nil || strings.Count(err.Error(), "index") != 1 {
		t.Error(err)
	}
}
