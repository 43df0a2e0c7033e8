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
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/diagnose"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
	"github.com/goatnote-inc/robocache/loader"
)

// TestMissingKey checks that a key that one record lacks is a finding, and an error of that stream
// and episode only.
func TestMissingKey(t *testing.T) {
	const key = "observation.state"
	ds, err := robocache.Open(
		t.Context(),
		cases.Make(t, "R01", "missing_state", "R01"),
		robocache.OpenOptions{},
	)
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
			lacks := f.Key == key && e == 1
			if lacks != errors.Is(err, robocache.ErrMalformed) ||
				lacks != robocache.Lacks(ds, e, f.Key) {
				t.Errorf("%s of episode %d: %v", f.Key, e, err)
			}
		}
	}
	found, err := diagnose.Run(t.Context(), ds, robocache.DiagnoseOptions{})
	if err != nil || len(found) < 1 || found[0].Code != robocache.LackingStream ||
		found[0].Where["stream"] != key ||
		found[0].Where["episode"] != int64(1) {
		t.Errorf("%v, %v", found, err)
	}
}

// TestUnaskedKeys checks keys of features.json that no record has, or not every record. They do not
// stop a loader or a conversion that does not request them. A request gets an error, or zeros under
// a mask.
func TestUnaskedKeys(t *testing.T) {
	for variant, key := range map[string]string{
		"missing_meta":  "episode_metadata.episode_id",
		"missing_state": "observation.state",
	} {
		absent := variant == "missing_meta" // from all records
		ds, err := robocache.Open(
			t.Context(),
			cases.Make(t, "R01", variant, "R01"),
			robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		n := 0
		for _, f := range ds.Info().Findings {
			if f.Where["stream"] != key {
				continue
			}
			if n++; f.Severity != robocache.SeverityWarning ||
				absent && strings.Contains(f.Hint, "skip") {
				t.Errorf("%s: %+v", variant, f)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d findings about the key: %v", variant, n, ds.Info().Findings)
		}
		load := func(keys []string, missing loader.Missing) (fields []string, err error) {
			var cfg loader.Config
			cfg.BatchSize, cfg.Keys, cfg.Missing = 1, keys, missing
			m, err := loader.NewMap(t.Context(), ds, cfg)
			if err != nil {
				return nil, err
			}
			defer m.Close()
			if _, err = m.Items(t.Context(), []int64{0, 6}); m.Len() != 7 {
				t.Errorf("%s: %d samples", variant, m.Len())
			}
			for _, f := range m.Fields() {
				fields = append(fields, f.Key)
			}
			return fields, err
		}
		if fields, err := load(nil, ""); err != nil || slices.Contains(fields, key) ||
			!slices.Contains(fields, "action") {
			t.Errorf("%s: %v, %v", variant, fields, err)
		}
		if _, err := load([]string{key}, ""); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: a key that was asked for: %v", variant, err)
		}
		fields, err := load(nil, loader.MissingPad)
		if err != nil || slices.Contains(fields, key) == absent ||
			slices.Contains(fields, key+"_is_pad") == absent {
			t.Errorf("%s under missing=\"pad\": %v, %v", variant, fields, err)
		}
		for _, format := range []string{"lerobot", "zarr", "rlds", "delta", "robomimic", "mcap"} {
			opt := convert.Options{
				WriteOptions: robocache.WriteOptions{Options: map[string]string{}},
			}
			if format == "lerobot" {
				opt.Options["images"] = "images"
			}
			if format == "rlds" {
				opt.FPS = robocache.Rate{Num: 10, Den: 1}
			}
			r, err := convert.Write(t.Context(), ds, format, filepath.Join(t.TempDir(), "out"), opt)
			if err != nil || r.Episodes != 2 || r.Frames != 7 {
				t.Errorf("%s to %s: %+v, %v", variant, format, r, err)
			}
		}
	}
}

// TestMissingKeyNamesIndex checks that findings and errors name the episode index. The first of two
// shards, with three episodes, is missing, so that positions and indices differ.
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
			return os.WriteFile(
				path,
				lengths.ReplaceAll(b, []byte(`"shardLengths": ["3", "2"]`)),
				0o644,
			)
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
	err = ds.Gather(
		t.Context(),
		key,
		robocache.RowsOf(1, 0, 1),
		make([]byte, ds.Info().Feature(key).RowBytes()),
	)
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["episode"] != int64(4) {
		t.Errorf("gather: %v, want an error of episode 4", err)
	}
	found, err := ds.Capabilities().Diagnose(t.Context(), robocache.DiagnoseOptions{})
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
