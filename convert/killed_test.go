package convert_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/synth"
)

// states records the content of a store after every change, which is what a kill at that moment
// leaves.
func states(t *testing.T, m *storetest.Mem) *[]map[string][]byte {
	var out []map[string][]byte
	var mu sync.Mutex // several files of one dataset are closed concurrently
	m.OnChange(func() {
		mu.Lock()
		defer mu.Unlock()
		now := map[string][]byte{}
		files, err := m.List(t.Context(), "")
		if err != nil {
			t.Error(err)
		}
		for _, f := range files {
			if now[f.Name], err = store.ReadFile(t.Context(), m, f.Name, 1<<30); err != nil &&
				!errors.Is(err, robocache.ErrNotFound) {
				t.Error(err)
			}
		}
		out = append(out, now)
	})
	return &out
}

// convert.C5: a kill after any change leaves an incomplete dataset. Resuming gives the bytes of an
// uninterrupted run, with no extra files and no unfinished ones.
func TestKilledAnywhere(t *testing.T) {
	src := open(t, data(t, "g1_h264_v30"))
	opt := Options{
		DataFileBytes:  20_000,
		VideoFileBytes: 300_000,
		Threads:        1,
		Frames:         stats.NoFrames,
		Episodes:       []int{0, 1, 2},
	}
	whole := filepath.Join(t.TempDir(), "whole")
	report, err := ToLeRobot(t.Context(), src, whole, opt)
	if err != nil {
		t.Fatal(err)
	}
	want := tree(t, whole)
	mem := storetest.NewMem("killed-anywhere")
	seen := states(t, mem)
	if _,
		err := write.WriteStore(t.Context(), src, mem, opt.options(true, nil).WriteOptions); err !=
		nil {
		t.Fatal(err)
	}
	if len(*seen) < len(want)+2 {
		t.Fatalf("%d changes for %d files", len(*seen), len(want))
	}
	opt.Resume = true
	for i, state := range (*seen)[:len(*seen)-1] {
		dst := filepath.Join(t.TempDir(), "out")
		// The file that was being written exists too, unfinished.
		state[".robocache-tmp-ROOT"], state["meta/.robocache-tmp-META"] = []byte("{"), nil
		for name, b := range state {
			if err := os.MkdirAll(filepath.Join(dst, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dst, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, ended := state["meta/info.json"]
		if _, err := robocache.Open(t.Context(), dst, robocache.OpenOptions{}); (err == nil) !=
			ended {
			t.Errorf("state %d: info.json there: %v, opened: %v", i, ended, err)
		}
		r, err := ToLeRobot(t.Context(), src, dst, opt)
		if err != nil {
			t.Errorf("state %d (%d files): %v", i, len(state), err)
			continue
		}
		if r.NumEpisodes != report.NumEpisodes || r.NumFrames != report.NumFrames {
			t.Errorf(
				"state %d: the report says %d episodes, %d frames",
				i,
				r.NumEpisodes,
				r.NumFrames,
			)
		}
		if got := tree(t, dst); !maps.Equal(got, want) {
			t.Errorf(
				"state %d: %v, want %v",
				i,
				slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)),
			)
		}
	}
	t.Logf("%d states, each resumed", len(*seen)-1)
}

// If a write fails at any point, no files and no new folders remain, in every format.
func TestFailedWriters(t *testing.T) {
	src := synthetic(t, synth.Options{Episodes: 3, Seconds: 1, Cameras: -1})
	for _, format := range convert.Formats() {
		if strings.HasPrefix(format, "test-") {
			continue
		}
		for _, dst := range []string{filepath.Join(t.TempDir(), "a", "b"), t.TempDir()} {
			ctx, stop := context.WithCancel(t.Context())
			broken := &stopping{Dataset: src, stop: stop}
			if _, err := Write(ctx, broken, format, dst, Options{FPS: src.Info().FPS, Threads: 1},
				nil); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", format, err)
			}
			left, err := os.ReadDir(filepath.Dir(dst))
			if _, gone := os.Stat(filepath.Dir(dst)); filepath.Base(dst) == "b" &&
				!os.IsNotExist(gone) {
				t.Errorf("%s: %v, %v", format, left, err)
			}
			if got, _ := os.ReadDir(dst); len(got) > 0 {
				t.Errorf("%s: %v", format, got)
			}
		}
	}
}

// stopping cancels the context when the rows of the second episode are read.
type stopping struct {
	robocache.Dataset
	stop func()
}

func (s *stopping) Gather(ctx context.Context, key string, rows []robocache.Row, out []byte) error {
	if len(rows) > 0 && rows[0].Episode > 0 {
		s.stop()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Dataset.Gather(ctx, key, rows, out)
}

// After a kill of a conversion to another format, the result does not open. A new run rejects the
// remaining files with a hint, and does not mix with them.
func TestKilledWriters(t *testing.T) {
	for _, format := range []string{"mcap", "rlds", "robomimic", "zarr"} {
		src := synthetic(
			t,
			synth.Options{Episodes: 3, Seconds: 1, Cameras: 1, Width: 64, Height: 64, Codec: "png"},
		)
		mem := storetest.NewMem("killed-" + format)
		defer mem.Drop()
		seen := states(t, mem)
		if _, err := Write(t.Context(), src, format, mem.URI(), Options{}, nil); err != nil {
			t.Fatal(format, err)
		}
		for i, state := range (*seen)[:len(*seen)-1] {
			left := storetest.NewMem(fmt.Sprintf("left-%s-%d", format, i))
			for name, b := range state {
				left.Put(name, b)
			}
			// Zarr's consolidated metadata is written last except for .zgroup, which our reader
			// does not need. Then the dataset is complete.
			if ds, err := robocache.Open(t.Context(), left.URI()); err == nil &&
				!(format == "zarr" && i == len(*seen)-2) {
				t.Errorf(
					"%s: state %d of %d opens as %s with %d episodes: %v",
					format,
					i,
					len(*seen),
					ds.Info().Format,
					ds.Info().Episodes,
					slices.Sorted(maps.Keys(state)),
				)
				ds.Close()
			}
			var e *robocache.Error
			_, err := Write(t.Context(), src, format, left.URI(), Options{},
				nil)
			if !errors.Is(err, robocache.ErrMisuse) || !errors.As(err, &e) ||
				!strings.Contains(e.Hint, "empty") {
				t.Errorf("%s: state %d: a new run: %v", format, i, err)
			}
			left.Drop()
		}
		ds, err := robocache.Open(t.Context(), mem.URI())
		if err != nil {
			t.Fatal(format, err)
		}
		if ds.Info().Episodes != 3 {
			t.Errorf("%s: %d episodes", format, ds.Info().Episodes)
		}
		ds.Close()
		t.Logf("%s: %d states", format, len(*seen))
	}
}
