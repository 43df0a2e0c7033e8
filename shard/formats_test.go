package shard_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/synth"
)

// files returns the files of a folder that a run in one process also writes.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	s, err := store.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := contents(t, s)
	delete(out, "_commit.json")
	return out
}

// TestBytesOfConvert checks that shards write the same bytes as convert. The positions of Zarr
// chunks do not depend on the shards. RLDS has one file per shard, and is equal if convert writes
// as many files and splits at the same episodes.
func TestBytesOfConvert(t *testing.T) {
	src := source(t, 9, synth.Options{Seconds: 1.5})
	uneven := "synth://heterogeneous?episodes=23&cap=120"
	grid := convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 50, Den: 1}}}
	for _, c := range []struct {
		source, to string
		opt        convert.Options
		shards     int
	}{
		{src, "zarr", convert.Options{}, 4},
		{src, "zarr", convert.Options{}, 9},
		{src, "zarr", grid, 3},
		{uneven, "zarr", grid, 5},
		{uneven, "rlds", grid, 1},
		{src, "rlds", convert.Options{}, 1},
	} {
		dir := t.TempDir()
		plain, dst := filepath.Join(dir, "plain", "set"), filepath.Join(dir, "out", "set")
		ds := open(t, c.source)
		if _, err := convert.Write(t.Context(), ds, c.to, plain, c.opt); err != nil {
			t.Fatal(err)
		}
		all(
			t,
			plan(
				t,
				shard.Job{
					Name:        "convert",
					Source:      c.source,
					Destination: dst,
					To:          c.to,
					Convert:     c.opt,
				},
				c.shards,
			),
		)
		want, got := files(t, plain), files(t, dst)
		if d := differences(want, got); len(want) < 4 || d != nil {
			t.Errorf("%s of %s in %d: of %d files %v", c.to, c.source, c.shards, len(want), d)
		}
		same(t, open(t, plain), open(t, dst))
	}
}

// TestRLDSShards checks splits of the source, shards that contain two of them, and skipped
// episodes.
func TestRLDSShards(t *testing.T) {
	src := source(t, 8, synth.Options{Cameras: -1})
	info := filepath.Join(src, "meta", "info.json")
	text, err := os.ReadFile(info)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	_ = json.Unmarshal(text, &tree)
	tree["splits"] = map[string]string{"train": "0:5", "val": "5:8"}
	text, _ = json.Marshal(tree)
	if err := os.WriteFile(info, text, 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plain, dst := filepath.Join(dir, "plain", "set"), filepath.Join(dir, "out", "set")
	if _, err := convert.Write(t.Context(), open(t, src), "rlds", plain, convert.Options{}); err !=
		nil {
		t.Fatal(err)
	}
	// The second shard has episodes of both splits.
	all(t, plan(t, shard.Job{Name: "convert", Source: src, Destination: dst, To: "rlds"}, 2))
	want, got := open(t, plain), open(t, dst)
	same(t, want, got)
	if a, b := want.Info().Splits, got.Info().Splits; len(a) != 2 || a["train"] != b["train"] ||
		a["val"] != b["val"] {
		t.Errorf("splits %v, want %v", b, a)
	}
	if f := files(t, dst); f["set-train.tfrecord-00001-of-00002"] == "" ||
		f["set-val.tfrecord-00000-of-00001"] == "" {
		t.Errorf("%v", differences(nil, f))
	}
	damage(t, src)
	opt := convert.Options{WriteOptions: robocache.WriteOptions{SkipBad: true}}
	left := filepath.Join(dir, "left", "set")
	c := all(
		t,
		plan(
			t,
			shard.Job{Name: "convert", Source: src, Destination: left, To: "rlds", Convert: opt},
			8,
		),
	)
	if len(c.Skipped) == 0 || open(t, left).Info().Episodes != 8-len(c.Skipped) {
		t.Errorf("%+v", c)
	}
	healthy(t, left)
	if _, err := shard.NewPlan(t.Context(), shard.Job{
		Name: "convert", Source: src,
		Destination: filepath.Join(dir, "z"), To: "zarr", Convert: opt,
	},
		shard.PlanOptions{Shards: 2}); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "skip episodes") {
		t.Errorf("%v", err)
	}
}

// TestRobomimicShards checks that the files of shards open as one dataset, and that the folder is
// no dataset before the commit.
func TestRobomimicShards(t *testing.T) {
	src := source(t, 7, synth.Options{})
	dir := t.TempDir()
	plain, dst := filepath.Join(dir, "plain"), filepath.Join(dir, "out")
	if _, err := convert.Write(t.Context(), open(t, src), "robomimic", plain,
		convert.Options{}); err != nil {
		t.Fatal(err)
	}
	m := plan(t, shard.Job{Name: "convert", Source: src, Destination: dst, To: "robomimic"}, 3)
	for i := range m.Shards {
		if _, err := shard.Run(t.Context(), m, i, shard.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if f := files(t, dst); f["demos_00002.hdf5"] == "" {
		t.Errorf("its attempt did not bring a shard to its place: %v", differences(nil, f))
	}
	if ds, err := robocache.Open(t.Context(), dst); err == nil {
		t.Errorf("a dataset of %d episodes before the commit", ds.Info().Episodes)
	}
	all(t, m)
	if f := files(t, dst); len(f) != 3 || f["demos_00002.hdf5"] == "" {
		t.Errorf("%v", differences(nil, f))
	}
	// The marker of an attempt that started late does not change the committed result.
	if err := store.WriteFile(t.Context(), dst, ".robocache-unfinished", nil); err != nil {
		t.Fatal(err)
	}
	same(t, open(t, plain), open(t, dst))
	if _, err := shard.GC(t.Context(), m, 0); err != nil || len(files(t, dst)) != 3 {
		t.Error(err)
	}
	scaled := convert.Options{
		WriteOptions: robocache.WriteOptions{Options: map[string]string{"scale_actions": "true"}},
	}
	if _, err := shard.NewPlan(t.Context(),
		shard.Job{Name: "convert", Source: src, Destination: dst, To: "robomimic", Convert: scaled},
		shard.PlanOptions{Shards: 2}); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}
