package edit_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/synth"
)

// TestFlagsByLabel checks that delete uses the flags of one label. A file with several labels, or
// with flags of rows, is an error until the caller names the label.
func TestFlagsByLabel(t *testing.T) {
	src := data(t, "g1_h264_v30")
	indices := open(t, src).Info().EpisodeIndices([]int{0, 1})
	file := filepath.Join(t.TempDir(), "flags.json")
	write := func(t *testing.T, flags string) {
		t.Helper()
		err := os.WriteFile(file, []byte(`{"robocache_flags": 1, "flags": [`+flags+`]}`),
			0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
	dryRun := func(label string) (*edit.Report, error) {
		verb := edit.Verb{Verb: "delete", Choice: edit.Choice{Flags: file, Label: label}}
		return edit.Run(t.Context(), &edit.Request{
			Sources: []string{src}, DryRun: true, Verbs: []edit.Verb{verb},
		})
	}
	const twoLabels = `{"episode_index": 0, "label": "good"}, {"episode_index": 1, "label": "bad"}`
	for _, c := range []struct {
		name, flags, label string
		deleted            []int64
		message            string
	}{
		{"one label", `{"episode_index": 1, "label": "bad"}`, "", []int64{int64(indices[1])}, ""},
		{"label given", twoLabels, "bad", []int64{int64(indices[1])}, ""},
		{"several labels", twoLabels, "", nil, `flags of several labels: "bad" (1), "good" (1)`},
		{"unknown label", twoLabels, "worse", nil, `no flag has the label "worse"`},
		{
			"flag of rows", `{"episode_index": 1, "label": "bad", "rows": [2, 5]}`, "bad", nil,
			"the flag marks rows 2 to 5",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, c.flags)
			report, err := dryRun(c.label)
			if c.message != "" {
				if !errors.Is(err, robocache.ErrMisuse) ||
					!strings.Contains(err.Error(), c.message) {
					t.Fatalf("got %v, want misuse: %s", err, c.message)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(report.Deleted, c.deleted) {
				t.Errorf("deleted %v, want %v", report.Deleted, c.deleted)
			}
			if want := "1 episodes deleted: 1"; !strings.Contains(report.Text(), want) {
				t.Errorf("text %q, want %q", report.Text(), want)
			}
		})
	}
}

// TestTrimRefusesFlagsOfEpisodes checks that trim rejects flags of whole episodes instead of
// ignoring them.
func TestTrimRefusesFlagsOfEpisodes(t *testing.T) {
	src := data(t, "g1_h264_v30")
	index := open(t, src).Info().EpisodeIndex(1)
	file := filepath.Join(t.TempDir(), "flags.json")
	for _, c := range []struct{ flags, message string }{
		{`{"episode_index": 1, "label": "bad"}`, "the flag is of a whole episode"},
		{`{"episode_index": 1, "label": "bad", "rows": [0, 5]}`, ""},
	} {
		if err := os.WriteFile(file, []byte(`{"robocache_flags": 1, "flags": [`+c.flags+`]}`),
			0o644); err != nil {
			t.Fatal(err)
		}
		verb := edit.Verb{Verb: "trim", Choice: edit.Choice{Flags: file}}
		_, err := edit.Run(
			t.Context(),
			&edit.Request{Sources: []string{src}, DryRun: true, Verbs: []edit.Verb{verb}},
		)
		if c.message == "" {
			if err != nil {
				t.Errorf("flag of rows: %v", err)
			}
			continue
		}
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrMisuse) || !errors.As(err, &e) ||
			!strings.Contains(e.Msg, c.message) ||
			e.Where["episode"] != index {
			t.Errorf("got %v, want misuse of episode %d: %s", err, index, c.message)
		}
	}
}

// TestSplitByFlags checks that split makes a part for each label of a file of flags, cuts episodes
// at flagged rows, and puts every row into one part.
func TestSplitByFlags(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	if _, err := synth.Write(t.Context(), src,
		synth.Options{Episodes: 3, Seconds: 2, Cameras: 1, Width: 64, Height: 64}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "flags.json")
	write := func(t *testing.T, flags string) {
		t.Helper()
		err := os.WriteFile(file, []byte(`{"robocache_flags": 1, "flags": [`+flags+`]}`),
			0o644)
		if err != nil {
			t.Fatal(err)
		}
	}
	split := func(label, format string, dryRun bool) (string, error) {
		dst := filepath.Join(t.TempDir(), "parts")
		verb := edit.Verb{Verb: "split", Choice: edit.Choice{Flags: file, Label: label}}
		_, err := edit.Run(t.Context(), &edit.Request{
			Sources: []string{src}, DST: dst, To: format, DryRun: dryRun, Verbs: []edit.Verb{verb},
		})
		return dst, err
	}
	const flags = `{"episode_index": 0, "label": "bad grasp", "rows": [20, 30]}, {"episode_index": 0, "label": "bad grasp", "rows": [25, 40]},
		{"episode_index": 1, "label": "good"}, {"episode_index": 2, "rows": [50, 60]}`
	whole := open(t, src)
	for _, c := range []struct {
		name, format, label string
		parts               map[string][]place
	}{
		{"labels", "", "", map[string][]place{
			"bad-grasp": {{0, 20, 20}}, "good": {{1, 0, 60}}, "flagged": {{2, 50, 10}}, "rest": {
				{0, 0, 20},
				{0, 40, 20},
				{2, 0, 50},
			},
		}},
		{"one label as MCAP", "mcap", "bad grasp", map[string][]place{
			"bad-grasp": {{0, 20, 20}}, "rest": {{0, 0, 20}, {0, 40, 20}, {1, 0, 60}, {2, 0, 60}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, flags)
			dst, err := split(c.label, c.format, false)
			if err != nil {
				t.Fatal(err)
			}
			if made, _ := os.ReadDir(dst); len(made) != len(c.parts) {
				t.Errorf("parts %v, want %d", made, len(c.parts))
			}
			for name, want := range c.parts {
				part := open(t, filepath.Join(dst, name))
				if got := part.Info().Episodes; got != len(want) {
					t.Fatalf("%s has %d episodes, want %d", name, got, len(want))
				}
				for e, p := range want {
					if part.Len(e) != p.n || part.Info().EpisodeIndex(e) != int64(e) {
						t.Errorf(
							"%s: episode %d has index %d and %d rows, want %d",
							name,
							e,
							part.Info().EpisodeIndex(e),
							part.Len(e),
							p.n,
						)
					}
					size := whole.Info().Feature("action").RowBytes()
					got, from := make([]byte, p.n*size), make([]byte, p.n*size)
					err := part.Gather(t.Context(), "action", robocache.RowsOf(e, 0, p.n),
						got)
					if err != nil {
						t.Fatal(err)
					}
					err = whole.Gather(t.Context(), "action",
						robocache.RowsOf(p.episode, p.from, p.n), from)
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got, from) {
						t.Errorf(
							"%s: episode %d is not rows %d to %d of episode %d",
							name,
							e,
							p.from,
							p.from+p.n,
							p.episode,
						)
					}
				}
			}
		})
	}
	for message, flags := range map[string]string{
		`rows 5 to 10 are flagged both "a" and "b"`: `{"episode_index": 1, "label": "a", "rows": [0, 10]}, {"episode_index": 1, "label": "b", "rows": [5, 15]}`,
		"no episode and no row is flagged":          "",
	} {
		write(t, flags)
		if _, err := split("", "", true); !errors.Is(err, robocache.ErrMisuse) ||
			!strings.Contains(err.Error(), message) {
			t.Errorf("got %v, want misuse: %s", err, message)
		}
	}
}
