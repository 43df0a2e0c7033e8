package rlds_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

// TestMissingKey checks that a missing key of a record is an error of that stream only, and a finding.
func TestMissingKey(t *testing.T) {
	for variant, c := range map[string]struct {
		key      string
		episodes []int
	}{
		"missing_meta":  {"episode_metadata.episode_id", []int{0, 1}},
		"missing_state": {"observation.state", []int{1}},
	} {
		ds, err := robocache.Open(t.Context(), cases.Make(t, "R01", variant, "R01"), robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		for e := range 2 {
			rows := robocache.RowsOf(e, 0, 1)
			for i := range ds.Info().Features {
				f := &ds.Info().Features[i]
				switch f.Kind {
				case robocache.KindNumeric:
					err = ds.Gather(t.Context(), f.Key, rows, make([]byte, f.RowBytes()))
				case robocache.KindImage:
					err = ds.Frames(t.Context(), f.Key, rows, make([]robocache.FrameRef, 1))
				default:
					_, err = ds.Text(t.Context(), f.Key, rows)
				}
				if lacks := f.Key == c.key && slices.Contains(c.episodes, e); lacks != errors.Is(err, robocache.ErrMalformed) {
					t.Errorf("%s: %s of episode %d: %v", variant, f.Key, e, err)
				}
			}
		}
		found, err := ds.(robocache.Diagnoser).Diagnose(t.Context(), robocache.DiagnoseOptions{})
		n := 0
		for _, f := range found {
			if f.Code == robocache.LackingStream && f.Where["stream"] == c.key {
				if n++; strings.Contains(f.Hint, "pad") {
					t.Errorf("the hint %q names an option that has no effect", f.Hint)
				}
			}
		}
		if err != nil || n != len(c.episodes) {
			t.Errorf("%s: %v, %v", variant, found, err)
		}
	}
}

// TestMissingKeyNamesIndex checks that findings and errors name the episode index. The first of two
// shards, of three episodes, is absent, so that positions and indices differ.
func TestMissingKeyNamesIndex(t *testing.T) {
	dir := cases.Make(t, "R01", "missing_state", "R01")
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		if filepath.Base(path) == "dataset_info.json" {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			lengths := regexp.MustCompile(`"shardLengths": *\[\s*"2"\s*\]`)
			if !lengths.Match(b) {
				t.Fatalf("no shardLengths of one shard in %s", b)
			}
			return os.WriteFile(path, lengths.ReplaceAll(b, []byte(`"shardLengths": ["3", "2"]`)), 0o644)
		}
		return os.Rename(path, strings.Replace(path, "00000-of-00001", "00001-of-00002", 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	ds, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if got := ds.Info().EpisodeIndices([]int{0, 1}); got[0] != 3 || got[1] != 4 {
		t.Fatalf("episode indices %v, want 3 and 4", got)
	}
	const key = "observation.state"
	err = ds.Gather(t.Context(), key, robocache.RowsOf(1, 0, 1), make([]byte, ds.Info().Feature(key).RowBytes()))
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["episode"] != int64(4) {
		t.Errorf("gather: %v, want an error of episode 4", err)
	}
	found, err := ds.(robocache.Diagnoser).Diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Code == robocache.LackingStream {
			if f.Where["episode"] != int64(4) {
				t.Errorf("finding of episode %v, want 4", f.Where["episode"])
			}
			return
		}
	}
	t.Errorf("no finding %s in %v", robocache.LackingStream, found)
}
