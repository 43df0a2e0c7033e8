package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/synth"
)

// Opening a dataset with a split gives the same episodes as the whole dataset, in every format.
// Training uses the split train if it exists and no other is selected.
func TestSplits(t *testing.T) {
	made := filepath.Join(t.TempDir(), "set")
	if _, err := synth.Write(t.Context(), made,
		synth.Options{Episodes: 6, Seconds: 1, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(made, "meta", "info.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var info map[string]any
	if err := json.Unmarshal(b, &info); err != nil {
		t.Fatal(err)
	}
	info["splits"] = map[string]string{"val": "0:2", "train": "2:6"}
	b, _ = json.Marshal(info)
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("made", func(t *testing.T) { splits(t, made, "val", "train", "observation.state", 2, 4) })
	t.Run("RLDS", func(t *testing.T) {
		splits(t, realdata.Path(t, "bridge_rlds"), "val", "train", "observation.state", 25, 25)
	})
	t.Run("robomimic", func(t *testing.T) {
		splits(
			t,
			filepath.Join(realdata.Path(t, "robomimic_like"), "earliest_gzip.hdf5"),
			"valid",
			"train",
			"action",
			1,
			2,
		)
	})
}

func splits(t *testing.T, uri, val, train, key string, nVal, nTrain int) {
	t.Helper()
	open := func(split string) robocache.Dataset {
		t.Helper()
		ds, err := robocache.Open(t.Context(), uri, robocache.OpenOptions{Split: split})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ds.Close() })
		return ds
	}
	whole := open("")
	if n := whole.Info().Episodes; n != nVal+nTrain ||
		open(robocache.SplitAll).Info().Episodes != n ||
		whole.Info().SplitCounts()[val] != nVal {
		t.Fatalf("all: %d episodes, splits %v", n, whole.Info().Splits)
	}
	for split, n := range map[string]int{val: nVal, train: nTrain} {
		ds := open(split)
		positions, err := whole.Info().SplitEpisodes(split)
		if err != nil || ds.Info().Episodes != n || len(positions) != n ||
			ds.Info().Split != split {
			t.Fatalf("%s: %d episodes, %v (%v)", split, ds.Info().Episodes, positions, err)
		}
		var frames int64
		for e, at := range positions {
			frames += int64(ds.Len(e))
			ours, err := ds.Episode(t.Context(), e)
			theirs, err2 := whole.Episode(t.Context(), at)
			if err != nil || err2 != nil || ours.Position != e || ours.Length != theirs.Length ||
				fmt.Sprint(ours.Tasks) != fmt.Sprint(theirs.Tasks) {
				t.Fatalf(
					"%s: episode %d is %+v, in the whole %+v (%v, %v)",
					split,
					e,
					ours,
					theirs,
					err,
					err2,
				)
			}
			f := ds.Info().Feature(key)
			a, b := make([]byte, 2*f.RowBytes()), make([]byte, 2*f.RowBytes())
			last := ds.Len(e) - 1
			if err := errors.Join(ds.Gather(t.Context(), key,
				[]robocache.Row{{Episode: e, Index: 0}, {Episode: e, Index: last}}, a),
				whole.Gather(t.Context(), key,
					[]robocache.Row{
						{Episode: at, Index: 0},
						{Episode: at, Index: last},
					}, b)); err !=
				nil || !bytes.Equal(a, b) {
				t.Fatalf(
					"%s: values of episode %d are not those of %d of the whole (%v)",
					split,
					e,
					at,
					err,
				)
			}
		}
		type starts interface {
			VideoStart(ctx context.Context, episode int, key string) (int64, bool, error)
		}
		if from, ok := whole.(starts); ok { // the frame times that tolerance_s= compares
			cameras := slices.DeleteFunc(
				slices.Clone(whole.Info().Features),
				func(f robocache.Feature) bool { return f.Kind != robocache.KindVideo },
			)
			part, ok := ds.(starts)
			for e, at := range positions {
				if !ok || len(cameras) == 0 {
					t.Fatalf("%s: %T does not say where frames begin in their files", split, ds)
				}
				ours, told, err := part.VideoStart(t.Context(), e, cameras[0].Key)
				theirs, _, err2 := from.VideoStart(t.Context(), at, cameras[0].Key)
				if err != nil || err2 != nil || !told || ours != theirs {
					t.Errorf(
						"%s: frames of episode %d begin at %d, in the whole at %d (%v, %v)",
						split,
						e,
						ours,
						theirs,
						err,
						err2,
					)
				}
			}
		}
		if ds.Info().Frames != frames {
			t.Errorf("%s: %d frames, its episodes have %d", split, ds.Info().Frames, frames)
		}
		if err := ds.Gather(t.Context(), key, []robocache.Row{{Episode: n}},
			make([]byte, ds.Info().Feature(key).RowBytes())); err == nil {
			t.Errorf("%s: an episode beyond it has values", split)
		}
	}
	_, err := robocache.Open(t.Context(), uri, robocache.OpenOptions{Split: "nothing"})
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), val) ||
		!strings.Contains(err.Error(), train) {
		t.Errorf("an unknown split: %v", err)
	}

	samples := func(ds robocache.Dataset, cfg loader.Config) (int64, []string) {
		t.Helper()
		cfg.Keys, cfg.BatchSize = []string{key}, 4
		l, err := loader.New(t.Context(), ds, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Samples(), l.Notes()
	}
	trained, notes := samples(whole, loader.Config{})
	if trained != open(train).Info().Frames || len(notes) != 1 ||
		!strings.Contains(notes[0], train) {
		t.Errorf(
			"training reads %d samples of %d, notes %v",
			trained,
			open(train).Info().Frames,
			notes,
		)
	}
	for want, cfg := range map[int64]loader.Config{
		whole.Info().Frames: {Order: loader.Order{Split: robocache.SplitAll}},
		int64(whole.Len(0)): {Order: loader.Order{Episodes: []int{0}}},
	} {
		if n, notes := samples(whole, cfg); n != want || notes != nil {
			t.Errorf("%+v: %d samples, want %d; notes %v", cfg, n, want, notes)
		}
	}
	held := open(val)
	if n, notes := samples(held, loader.Config{}); n != held.Info().Frames || notes != nil {
		t.Errorf(
			"what was opened as %s: %d samples of %d, notes %v",
			val,
			n,
			held.Info().Frames,
			notes,
		)
	}
	if n, _ := samples(whole, loader.Config{Order: loader.Order{Split: val}}); n !=
		held.Info().Frames {
		t.Errorf("split %s: %d samples of %d", val, n, held.Info().Frames)
	}
	if _, err := loader.New(t.Context(), whole,
		loader.Config{Order: loader.Order{Split: "nothing", BatchSize: 4}}); !errors.Is(err,
		robocache.ErrMisuse) || !strings.Contains(err.Error(), val) {
		t.Errorf("an unknown split of the loader: %v", err)
	}
}
