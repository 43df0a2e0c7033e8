package mcap_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/synth"
)

// TestLayoutsOfTwoConversions checks that separately converted recordings of one robot, with
// different tasks, open as one dataset with their common rate, robot and streams.
func TestLayoutsOfTwoConversions(t *testing.T) {
	both := t.TempDir()
	for i, task := range []string{"put it there", "take it away"} {
		src, err := synth.New(
			synth.Options{Episodes: 2, Seconds: 0.5, Cameras: -1, Tasks: []string{task}, Seed: 1},
		)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "d")
		if _, err := mcap.Write(t.Context(), src, dir, robocache.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		list, _ := filepath.Glob(filepath.Join(dir, "*.mcap"))
		for _, f := range list {
			if err := os.Rename(f,
				filepath.Join(both, string(rune('a'+i))+filepath.Base(f))); err != nil {
				t.Fatal(err)
			}
		}
	}
	ds, err := mcap.Open(t.Context(), both, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	info := ds.Info()
	if info.FPS.Zero() || info.Robot == "" || len(info.Tasks) != 2 {
		t.Errorf("rate %v, robot %q, tasks %v", info.FPS, info.Robot, info.Tasks)
	}
	for _, f := range info.Features {
		if f.Clock != "" {
			t.Errorf("%s has a clock of its own: %s", f.Key, f.Clock)
		}
	}
}
