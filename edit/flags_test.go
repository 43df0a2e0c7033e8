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
)

// TestFlagsByLabel checks that delete takes the flags of one label: a file of flags with several
// labels, or with flags of rows, is an error until the caller names the label.
func TestFlagsByLabel(t *testing.T) {
	src := data(t, "g1_h264_v30")
	indices := open(t, src).Info().EpisodeIndices([]int{0, 1})
	file := filepath.Join(t.TempDir(), "flags.json")
	write := func(t *testing.T, flags string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(`{"robocache_flags": 1, "flags": [`+flags+`]}`), 0o644); err != nil {
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
			"the flag is of rows 2 to 5",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, c.flags)
			report, err := dryRun(c.label)
			if c.message != "" {
				if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), c.message) {
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

// TestTrimRefusesFlagsOfEpisodes checks that trim refuses flags of whole episodes instead of ignoring them.
func TestTrimRefusesFlagsOfEpisodes(t *testing.T) {
	src := data(t, "g1_h264_v30")
	index := open(t, src).Info().EpisodeIndex(1)
	file := filepath.Join(t.TempDir(), "flags.json")
	for _, c := range []struct{ flags, message string }{
		{`{"episode_index": 1, "label": "bad"}`, "the flag is of a whole episode"},
		{`{"episode_index": 1, "label": "bad", "rows": [0, 5]}`, ""},
	} {
		if err := os.WriteFile(file, []byte(`{"robocache_flags": 1, "flags": [`+c.flags+`]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		verb := edit.Verb{Verb: "trim", Choice: edit.Choice{Flags: file}}
		_, err := edit.Run(t.Context(), &edit.Request{Sources: []string{src}, DryRun: true, Verbs: []edit.Verb{verb}})
		if c.message == "" {
			if err != nil {
				t.Errorf("flag of rows: %v", err)
			}
			continue
		}
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrMisuse) || !errors.As(err, &e) || !strings.Contains(e.Msg, c.message) || e.Where["episode"] != index {
			t.Errorf("got %v, want misuse of episode %d: %s", err, index, c.message)
		}
	}
}
