package edit_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/edit"
)

// After one of five episodes is deleted, the other frames are unchanged, LeRobot opens the result,
// the doctor finds nothing, the statistics equal NumPy's, and the source is untouched.
func TestDelete(t *testing.T) {
	skipDecoding(t)
	from := data(t, "g1_v30_exact")
	before := tree(t, from)
	dst, r := run(t, from, edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "1"}})
	src := open(t, from)
	if r.Video.Encoded != 0 || r.Video.Hidden != 0 || r.Video.Copied == 0 {
		t.Errorf("%+v", r.Video)
	}
	places := whole(src, 0, 2, 3, 4)
	same(t, open(t, dst), src, places, nil)
	healthy(t, dst)
	if after := tree(t, from); len(after) != len(before) {
		t.Error("the source changed")
	}
	again, _ := run(t, from, edit.Verb{Verb: "keep", Choice: edit.Choice{Episodes: "0,2-4"}})
	a, b := tree(t, dst), tree(t, again)
	delete(a, "meta/edits.jsonl")
	delete(b, "meta/edits.jsonl")
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs between delete and keep", name)
		}
	}
	reference(t, dst, from, places, map[string]any{"stride": 41})
}

// All errors are reported before anything is written.
func TestRefusals(t *testing.T) {
	from := data(t, "g1_v30_exact")
	for _, c := range []struct {
		verb edit.Verb
		says string
	}{
		{edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "5"}}, "no such episode"},
		{edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0-4"}}, "no episode is left"},
		{
			edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0-999999999999"}},
			"no such episode",
		},
		{
			edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "4-2"}},
			"episode indices such as",
		},
		{edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "-1"}}, "episode indices such as"},
		{
			edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0,,1"}},
			"episode indices such as",
		},
		{
			edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "99999999999999999999"}},
			"episode indices such as",
		},
		{edit.Verb{Verb: "delete"}, "without a choice"},
		{edit.Verb{Verb: "add", Features: []string{"../x"}, From: "1"}, "no name for a feature"},
		{edit.Verb{Verb: "add", Features: []string{"task"}, From: "1"}, "no name for a feature"},
		{
			edit.Verb{Verb: "delete", Choice: edit.Choice{Where: "max(actoin) > 1"}},
			"nearest: action",
		},
		{edit.Verb{Verb: "delete", Choice: edit.Choice{Task: "[x"}}, "no pattern"},
		{edit.Verb{Verb: "rename", Names: map[string]string{"actio": "b"}}, "nearest: action"},
		{
			edit.Verb{Verb: "rename", Names: map[string]string{"action": "index"}},
			"no name for a feature",
		},
		{
			edit.Verb{Verb: "rename", Names: map[string]string{"action": "observation.state"}},
			"one name",
		},
		{edit.Verb{Verb: "remove", Features: []string{"x"}}, "no feature"},
		{edit.Verb{Verb: "trim", From: "100"}, "none of the"},
		{edit.Verb{Verb: "trim", From: "1e99"}, "expected seconds"},
		{edit.Verb{Verb: "split", Into: []string{"a=0.8", "b=0.1"}}, "4.5 of 5 episodes"},
		{
			edit.Verb{Verb: "split", Into: []string{"a=0.9", "b=0.05", "c=0.05"}},
			"no episode is left for",
		},
		{edit.Verb{Verb: "split", Into: []string{"a=0-3", "b=3-4"}}, "both"},
		{edit.Verb{Verb: "split", Into: []string{"../a=0.5", "b=0.5"}}, "no name for a part"},
		{
			edit.Verb{Verb: "relabel", Names: map[string]string{"nothing": "b"}},
			"no episode has the task",
		},
		{edit.Verb{Verb: "relabel", Rows: "0:10-5", Text: "x"}, "rows 10 to 5"},
		{edit.Verb{Verb: "add", Features: []string{"action"}, From: "1"}, "already has a feature"},
		{edit.Verb{Verb: "add", Features: []string{"r"}, From: "nowhere.npy"}, "nowhere.npy"},
		{edit.Verb{Verb: "merge"}, "merge needs two or more sources"},
		{edit.Verb{Verb: "dlete"}, "delete"},
	} {
		dst := filepath.Join(t.TempDir(), "out")
		_, err := edit.Run(
			t.Context(),
			&edit.Request{Sources: []string{from}, Verbs: []edit.Verb{c.verb}, DST: dst},
		)
		var e *robocache.Error
		if err == nil || !errors.As(err, &e) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.verb, err, c.says)
		}
		if _, err := os.Stat(dst); !os.IsNotExist(err) {
			t.Errorf("%+v left something", c.verb)
		}
	}
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{from},
		Verbs:   []edit.Verb{{Verb: "delete", Choice: edit.Choice{Episodes: "0"}}}, DST: taken,
	}); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// A destination that contains the source, lies in it, or is the source is rejected, also through a
// link.
func TestInside(t *testing.T) {
	dir := copied(t, "g1_h264_v30")
	other, _ := run(t, dir, dropFirst)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, "videos"), link); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	for _, dst := range []string{
		dir,
		dir + "/x/y",
		"file://" + dir + "/x",
		link + "/x",
		filepath.Dir(dir),
	} {
		for _, r := range []edit.Request{
			{Sources: []string{dir}, Verbs: []edit.Verb{dropFirst}},
			{Sources: []string{dir}, Verbs: []edit.Verb{dropFirst}, DryRun: true},
			{
				Sources: []string{dir},
				Verbs:   []edit.Verb{{Verb: "split", Into: []string{"a=1", "b=rest"}}},
			},
			{Sources: []string{other, dir}, Verbs: []edit.Verb{{Verb: "merge"}}},
		} {
			if r.DST = dst; r.Verbs[0].Verb == "split" && dst == filepath.Dir(dir) {
				continue // the parts are next to the source
			}
			if _, err := edit.Run(t.Context(), &r); !errors.Is(err, robocache.ErrMisuse) ||
				!strings.Contains(err.Error(), "lies in the other") {
				t.Errorf("%s to %s: %v", r.Verbs[0].Verb, dst, err)
			}
		}
		_, err := convert.Write(t.Context(), open(t, dir), "lerobot", dst,
			convert.Options{})
		if !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), "lies in the other") {
			t.Errorf("convert to %s: %v", dst, err)
		}
	}
	if !maps.Equal(tree(t, dir), before) {
		t.Error("the source changed")
	}
}

// Splitting and merging gives the source again, row by row. The same seed gives the same result.
func TestSplitAndMerge(t *testing.T) {
	skipDecoding(t)
	from := data(t, "g1_h264_v30")
	src := open(t, from)
	n := src.Info().Episodes
	seed := uint64(7)
	for _, v := range []edit.Verb{
		{Into: []string{"train=0.5,val=0.5"}},
		{Into: []string{"train=1", "val=rest"}},
		{Into: []string{"train=0.5", "val=0.5"}, Seed: &seed},
	} {
		v.Verb = "split"
		dst, r := run(t, from, v)
		second, _ := run(t, from, v)
		again := tree(t, second)
		for name, sum := range tree(t, dst) {
			if again[name] != sum {
				t.Errorf("%s differs between two runs", name)
			}
		}
		var parts []string
		var order []int
		for _, p := range r.Parts {
			parts = append(parts, p.DST)
			for _, e := range p.Plan.Episodes {
				order = append(order, e.Episode)
			}
			healthy(t, p.DST)
		}
		sorted := slices.Clone(order)
		slices.Sort(sorted)
		for i, e := range sorted {
			if i != e || len(sorted) != n {
				t.Fatalf("%v", order)
			}
		}
		both := filepath.Join(t.TempDir(), "both")
		_, err := edit.Run(t.Context(),
			&edit.Request{Sources: parts, Verbs: []edit.Verb{{Verb: "merge"}}, DST: both})
		if err !=
			nil {
			t.Fatal(err)
		}
		same(t, open(t, both), src, whole(src, order...), nil)
		healthy(t, both)
		if v.Seed != nil {
			reference(t, both, from, whole(src, order...), map[string]any{"stride": 41})
		}
	}
}

// Trims by seconds and by rows.
func TestTrim(t *testing.T) {
	skipDecoding(t)
	from := data(t, "g1_v30_exact")
	src := open(t, from)
	dst, r := run(
		t,
		from,
		edit.Verb{Verb: "trim", From: "0.5", To: "-1.0"},
		edit.Verb{Verb: "trim", From: "3r", To: "-4r", Choice: edit.Choice{Episodes: "2"}},
	)
	var places []place
	for e := range src.Info().Episodes {
		p := place{e, 15, src.Len(e) - 45}
		if e == 2 {
			p.from, p.n = p.from+3, p.n-7
		}
		places = append(places, p)
	}
	same(t, open(t, dst), src, places, nil)
	healthy(t, dst)
	if r.Video.Encoded != 0 || r.Video.Hidden == 0 || r.Video.Frames > maxHidden*r.Video.Hidden {
		t.Errorf("%+v", r.Video)
	}
	reference(t, dst, from, places, map[string]any{"stride": 41})
	// A second edit of the result uses the right frames.
	out := open(t, dst)
	next, _ := run(t, dst, edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0,3"}})
	same(t, open(t, next), out, whole(out, 1, 2, 4), nil)
	healthy(t, next)
	if b, err := os.ReadFile(filepath.Join(next, "meta", "edits.jsonl")); err != nil ||
		strings.Count(string(b), "\n") != 2 {
		t.Errorf("%v %s", err, b)
	}
}

const maxHidden = 32
