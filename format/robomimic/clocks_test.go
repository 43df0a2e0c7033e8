package robomimic_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/hdf5"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

var keepClocks = robocache.WriteOptions{Options: map[string]string{"timestamps": "true"}}

// TestClocks checks that streams keep their clocks with the option timestamps (robomimic.M6,
// robomimic.M7). Samples and timestamps are read back exactly, equal to those of MCAP.
func TestClocks(t *testing.T) {
	for name, opt := range map[string]synth.Options{
		"rtx":           {Preset: "rtx", Episodes: 3},
		"heterogeneous": {Preset: "heterogeneous", Episodes: 7, Cap: 100},
		"arm": {
			Episodes: 3,
			Seconds:  0.6,
			Spread:   0.5,
			Cameras:  2, Width: 80, Height: 64, Codec: "png", Rates: map[string]float64{
				"joints": 100,
				"force":  333,
				"text":   5,
			}, Jitter: time.Millisecond, Late: 100 * time.Millisecond, Gaps: 0.05,
		},
	} {
		src, err := synth.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		dst, r := write(t, src, "clocks.hdf5", keepClocks)
		formattest.Run(t, formattest.Fixture{URI: dst, Format: "robomimic"})
		ds := openSet(t, dst, robocache.OpenOptions{})
		if r.Dropped != nil || len(ds.Info().Features) != len(src.Info().Features) ||
			ds.Info().FPS != src.Info().FPS {
			t.Errorf(
				"%s: dropped %v, %v of %v, at %v Hz",
				name,
				r.Dropped,
				ds.Info().Keys(),
				src.Info().Keys(),
				ds.Info().FPS,
			)
		}
		recording := filepath.Join(t.TempDir(), "a.mcap")
		if _, err := mcap.Write(t.Context(), src, recording, robocache.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		other, err := robocache.Open(t.Context(), recording, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for i := range src.Info().Features {
			f := &src.Info().Features[i]
			key := f.Key
			if k, ok := map[string]string{"next.reward": "rewards", "next.done": "dones"}[key]; ok {
				key = k
			}
			for e := range src.Info().Episodes {
				want, err1 := src.Times(t.Context(), e, f.Key)
				got, err2 := ds.Times(t.Context(), e, key)
				if err := errors.Join(err1, err2); err != nil || !slices.Equal(got, want) {
					t.Fatalf(
						"%s: timestamps of %s in episode %d differ: %d, not %d (%v)",
						name,
						key,
						e,
						len(got),
						len(want),
						err,
					)
				}
				if f.Kind != robocache.KindNumeric {
					continue
				}
				rows := robocache.RowsOf(e, 0, len(want))
				x, y, z := make([]byte, len(rows)*f.RowBytes()),
					make([]byte, len(rows)*f.RowBytes()), make([]byte, len(rows)*f.RowBytes())
				if err := errors.Join(src.Gather(t.Context(), f.Key, rows, x),
					ds.Gather(t.Context(), key, rows, y),
					other.Gather(t.Context(), f.Key, rows, z)); err != nil || !bytes.Equal(x, y) ||
					!bytes.Equal(x, z) {
					t.Fatalf("%s: %s of episode %d differs (%v)", name, key, e, err)
				}
				if got, err := other.Times(t.Context(), e, f.Key); err != nil ||
					!slices.Equal(got, want) {
					t.Errorf("%s: MCAP has other timestamps of %s (%v)", name, key, err)
				}
			}
		}
		if len(ds.Info().Findings) > 0 {
			t.Errorf("%s: %v", name, ds.Info().Findings)
		}
	}
}

// TestTimestampsByName reads files of h5py whose timestamps are named after their streams, and
// malformed ones (robomimic.M7).
func TestTimestampsByName(t *testing.T) {
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with h5py: ", err)
	}
	made := func(layout, change string) robocache.Dataset {
		t.Helper()
		dir := t.TempDir()
		script := `
import h5py, numpy as np
with h5py.File('a.hdf5', 'w') as f:
    for k in range(2):
        g = f.create_group(f'data/demo_{k}' if '` + layout + `' == 'robomimic' else f'traj_{k}')
        g['actions'] = np.arange(5 * 2, dtype='f4').reshape(5, 2); g['actions_timestamps'] = np.arange(5) / 10
        g['obs/vision'] = np.arange(15 * 3, dtype='f4').reshape(15, 3) + k; g['obs/vision_timestamps'] = np.arange(15) / 30
        g['obs/force'] = np.arange(50, dtype='f4'); g['obs/force_timestamps'] = np.arange(50) * 10_000_000 + k
        if k == 1:
            ` + change + `
`
		cmd := exec.CommandContext(t.Context(), py, "-c", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		ds, err := robocache.Open(
			t.Context(),
			filepath.Join(dir, "a.hdf5"),
			robocache.OpenOptions{},
		)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ds.Close() })
		if ds.Info().Format != layout {
			t.Fatal(ds.Info().Format)
		}
		return ds
	}
	for layout, keys := range map[string][]string{
		"robomimic": {"action", "observation.vision", "observation.force"},
		"hdf5":      {"actions", "obs.vision", "obs.force"},
	} {
		ds := made(layout, "pass")
		got := ds.Info().Keys()
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(keys)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: streams %v", layout, got)
		}
		for i, last := range []int64{400_000_000, 466_666_667, 490_000_001} {
			times, err := ds.Times(t.Context(), 1, keys[i])
			if err != nil || times[len(times)-1] != last {
				t.Errorf("%s: %s: %v %v", layout, keys[i], times, err)
			}
		}
		if times, err := ds.Times(t.Context(), 0, ""); err != nil || len(times) != 5 {
			t.Errorf("%s: rows at %v %v", layout, times, err)
		}
		for change, want := range map[string]string{
			"del g['obs/vision_timestamps']; g['obs/vision_timestamps'] = np.arange(14) / 30": "15",
			"g['obs/vision_timestamps'][3] = 0.2":                                             "index 4",
			"g['obs/vision_timestamps'][3] = np.nan":                                          "index 3",
			"del g['obs/vision_timestamps']":                                                  "vision_timestamps",
			"del g['obs/vision_timestamps']; g['obs/vision_timestamps'] = np.zeros((15, " +
				"2))": "15",
			"del g['obs/vision_timestamps']; g['obs/vision_timestamps'] = [b'x'] * 15": "15",
			"del g['actions_timestamps']; g['actions_timestamps'] = g['obs/vision_timestamps']; " +
				"keys = 'actions'": "",
		} {
			ds := made(layout, change)
			key := keys[1]
			if want == "" {
				key = keys[0]
			}
			_, err1 := ds.Times(t.Context(), 1, key)
			n, err2 := robocache.RowsIn(t.Context(), ds, 1, ds.Info().Feature(key))
			err3 := ds.Gather(
				t.Context(),
				key,
				[]robocache.Row{{Episode: 1}},
				make([]byte, ds.Info().Feature(key).RowBytes()),
			)
			err := errors.Join(err1, err2, err3)
			if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrNotFound) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %d rows, %v", layout, change, n, err)
			}
			if _, err := ds.Times(t.Context(), 0, key); err != nil {
				t.Errorf("%s: %s: the sound episode: %v", layout, change, err)
			}
			if diagnose := ds.Capabilities().Diagnose; diagnose != nil {
				found, err := diagnose(t.Context(), robocache.DiagnoseOptions{})
				if err != nil || len(found) == 0 {
					t.Errorf("%s: %s: the doctor finds nothing (%v)", layout, change, err)
				}
			}
		}
	}
}

// TestSharedTimestamps checks that streams with shared timestamps share a clock in every episode,
// named after the first stream. Timestamps next to streams that are as long as the rows do not make
// a separate clock, unless the file says so.
func TestSharedTimestamps(t *testing.T) {
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with h5py: ", err)
	}
	made := func(streams, change string) robocache.Dataset {
		t.Helper()
		path := filepath.Join(t.TempDir(), "a.hdf5")
		script := "import h5py, numpy as np\nwith h5py.File(" + strconv.Quote(path) +
			", 'w') as f:\n    for k in range(2):\n        g = " +
			"f.create_group(f'data/demo_{k}')\n        g['actions'] = np.zeros((5, 2), 'f4')\n  " +
			"      " + streams + "\n        if k == 1:\n            " + change + "\n"
		if out, err := exec.CommandContext(t.Context(), py, "-c", script).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return openSet(t, path, robocache.OpenOptions{})
	}
	shared := "g['actions_timestamps'] = np.arange(5) / 10; g['obs/a'] = g['obs/b'] = " +
		"np.zeros((20, 1), 'f4'); g['obs/a_timestamps'] = np.arange(20) / 40; " +
		"g['obs/b_timestamps'] = g['obs/a_timestamps']; " +
		"g['obs/c'] = np.zeros((5, 1), 'f4'); g['obs/c_timestamps'] = g['actions_timestamps']"
	ds := made(shared, "pass")
	for key, want := range map[string]string{
		"observation.a": "observation.a",
		"observation.b": "observation.a",
		"observation.c": "",
		"action":        "",
	} {
		if f := ds.Info().Feature(key); f == nil || f.Clock != want {
			t.Errorf("%s: %+v, want the clock %q", key, f, want)
		}
	}
	for key, change := range map[string]string{
		"observation.b": "del g['obs/b_timestamps']; g['obs/b_timestamps'] = np.arange(20) / 50",
		"observation.c": "del g['obs/c_timestamps']; g['obs/c_timestamps'] = np.arange(5) / 7",
	} {
		ds := made(shared, change)
		f := ds.Info().Feature(key)
		err := ds.Gather(
			t.Context(),
			key,
			[]robocache.Row{{Episode: 1}},
			make([]byte, f.RowBytes()),
		)
		if !errors.Is(err, robocache.ErrMalformed) ||
			!strings.Contains(err.Error(), "timestamps of its own") {
			t.Errorf("%s no longer shares its timestamps: %v", key, err)
		}
		if err := ds.Gather(t.Context(), key, []robocache.Row{{Episode: 0}},
			make([]byte, f.RowBytes())); err != nil {
			t.Errorf("%s: the sound episode: %v", key, err)
		}
	}
	ds = made(
		"g['obs/a'] = np.zeros((5, 1), 'f4'); g['obs/a_timestamps'] = np.arange(5) / 10",
		"pass",
	)
	if f := ds.Info().
		Feature("observation.a_timestamps"); f == nil ||
		ds.Info().Feature("observation.a").Clock != "" {
		t.Errorf("timestamps as long as the rows: %v", ds.Info().Keys())
	}
}
