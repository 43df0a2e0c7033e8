package loader

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/zarr"
	"github.com/goatnote-inc/robocache/loader/options"
)

// objectBuffer writes a replay buffer whose array of a name holds Python objects.
func objectBuffer(t *testing.T, objects string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		".zgroup":                   `{"zarr_format": 2}`,
		"data/.zgroup":              `{"zarr_format": 2}`,
		"meta/.zgroup":              `{"zarr_format": 2}`,
		"meta/episode_ends/.zarray": `{"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "<i8", "compressor": null, "fill_value": 0, "order": "C", "filters": null}`,
		"meta/episode_ends/0":       "\x04\x00\x00\x00\x00\x00\x00\x00",
	}
	for _, name := range []string{"action", "state"} {
		files["data/"+name+"/.zarray"] = `{"zarr_format": 2, "shape": [4, 2], "chunks": [4, 2], "dtype": "<f4", "compressor": null, "fill_value": 0, "order": "C", "filters": null}`
		files["data/"+name+"/0.0"] = strings.Repeat("\x00\x00\x80\x3f", 8)
	}
	for _, codec := range []string{objects} {
		name, id, _ := strings.Cut(codec, " ")
		files["data/"+name+"/.zarray"] = `{"zarr_format": 2, "shape": [4, 2], "chunks": [4, 2], "dtype": "|O", "compressor": null, "fill_value": 0, "order": "C", "filters": [{"id": "` + id + `"}]}`
	}
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestWithheldStreams checks a stream that is declared and cannot be delivered. It is in findings
// and stats, and requesting it returns the reason. If it is the action, opening fails unless
// options select other streams.
func TestWithheldStreams(t *testing.T) {
	for _, codec := range []string{"pickle", "vlen-utf8", "json2"} {
		for name, key := range map[string]string{"action": "action", "state": "observation.state"} {
			ds, err := robocache.Open(
				t.Context(),
				objectBuffer(t, name+" "+codec),
				robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
			)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ds.Close() })
			rest := ds.Info().Keys()
			if err := ds.Info().
				Withheld(key); !errors.Is(err, robocache.ErrUnsupported) ||
				!strings.Contains(err.Error(), "object") {
				t.Errorf("%s %s: %v, %v", codec, key, err, ds.Info().Findings)
			}
			for option, cfg := range map[string]options.Config{
				"keys": {Windows: options.Windows{Keys: []string{key}}},
				"delta_timestamps": {
					Windows: options.Windows{
						Keys:   rest,
						Deltas: Deltas{{Key: key, Offsets: []float64{0}}},
					},
				},
				"delta_indices": {
					Windows: options.Windows{
						Keys:    rest,
						Indices: Indices{{Key: key, Rows: []int{0}}},
					},
				},
				"windows": {
					Windows: options.Windows{
						Keys:   rest,
						Native: NativeWindows{{Key: key, Offsets: []float64{0}}},
					},
				},
				"anchor": {Windows: options.Windows{Keys: rest, Anchor: key}},
				"align": {
					Align: &align.Config{
						HZ:    robocache.Rate{Num: 10, Den: 1},
						Modes: map[string]align.Mode{key: align.Nearest},
					},
					Windows: options.Windows{Keys: rest},
				},
			} {
				cfg.BatchSize = 2
				if _, err := New(t.Context(), ds, cfg); !errors.Is(err, robocache.ErrUnsupported) ||
					!strings.Contains(err.Error(), key) {
					t.Errorf("%s: %s of %s: %v", codec, option, key, err)
				}
			}
			l, err := New(t.Context(), ds, options.Config{Order: options.Order{BatchSize: 2}})
			if name == "action" {
				if !errors.Is(err, robocache.ErrUnsupported) ||
					!strings.Contains(err.Error(), "action") {
					t.Errorf("%s: went on without an action: %v", codec, err)
				}
				l, err = New(
					t.Context(),
					ds,
					options.Config{
						Order:   options.Order{BatchSize: 2},
						Windows: options.Windows{Keys: []string{"observation.state"}},
					},
				)
			}
			if err != nil {
				t.Errorf("%s %s: %v", codec, key, err)
				continue
			}
			left := l.Stats().NotDelivered
			l.Close()
			if len(left) != 1 || left[0].Key != key || left[0].Reason == "" {
				t.Errorf("%s %s: stats say %v", codec, key, left)
			}
		}
	}
}
