package convert_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

var sources = []string{
	"g1_v21",
	"gr00t_picknplace_v20",
	"g1_v30_drift",
	"g1_v30_exact",
	"g1_h264_v30",
	"g1_h264_v30_bigdrift",
}

// C1, C2: the result equals the source: every numeric row bit by bit, every image packet, every
// task text.
func TestRoundTrip(t *testing.T) {
	for _, name := range sources {
		for _, small := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/small=%v", name, small), func(t *testing.T) {
				t.Parallel()
				src := open(t, data(t, name))
				dst := filepath.Join(t.TempDir(), "out")
				opt := Options{Frames: stats.NoFrames}
				if small {
					opt.DataFileBytes, opt.VideoFileBytes, opt.ChunksSize = 50_000, 1_500_000, 2
				}
				rep, err := ToLeRobot(t.Context(), src, dst, opt)
				if err != nil {
					t.Fatal(err)
				}
				if rep.Encoded != 0 {
					t.Errorf("%d segments were encoded; all of these can be copied", rep.Encoded)
				}
				compare(t, src, open(t, dst), rep)
			})
		}
	}
}

// TestVersion21 checks conversions to v2.1: rows, packets and tasks equal the source; files, tasks and
// lines of episodes equal those of a dataset that lerobot wrote; statistics differ by rounding.
func TestVersion21(t *testing.T) {
	for _, name := range sources[:5] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, dst := open(t, data(t, name)), filepath.Join(t.TempDir(), "out")
			opt := Options{Frames: stats.NoFrames}
			r, err := Write(
				t.Context(),
				src,
				"lerobot",
				dst,
				opt,
				map[string]string{"version": "v2.1"},
			)
			if err != nil {
				t.Fatal(err)
			}
			compareVersion(t, "v2.1", src, open(t, dst), r.Own.(*Report))
			if name == "gr00t_picknplace_v20" {
				want := tree(t, data(t, name))["meta/modality.json"]
				if got := tree(t, dst)["meta/modality.json"]; got != want {
					t.Error("modality.json differs from the source")
				}
			}
			if name == "g1_v21" {
				equalsLeRobot(t, dst, data(t, name))
			}
		})
	}
	src := open(t, data(t, "g1_v21"))
	for option, words := range map[string]string{
		"version=v2.2":             "version",
		"hidden=2":                 "hidden with version v2.1",
		"video_file_bytes=1000000": "video_file_bytes with version v2.1",
	} {
		key, value, _ := strings.Cut(option, "=")
		more := map[string]string{"version": "v2.1", key: value}
		_, err := Write(t.Context(), src, "lerobot", t.TempDir(), Options{}, more)
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want misuse that names %q", option, err, words)
		}
	}
}

// equalsLeRobot compares the files of a converted dataset with those of the original by lerobot.
func equalsLeRobot(t *testing.T, dst, original string) {
	t.Helper()
	got, want := tree(t, dst), tree(t, original)
	for name := range want {
		if _, ok := got[name]; !ok && (strings.HasPrefix(name, "data/") ||
			strings.HasPrefix(name, "meta/") || strings.HasPrefix(name, "videos/")) {
			t.Errorf("%s is missing", name)
		}
	}
	lines := func(dir, name string) (out []map[string]any) {
		for line := range strings.Lines(readText(t, filepath.Join(dir, "meta", name))) {
			var object map[string]any
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Fatal(err)
			}
			out = append(out, object)
		}
		return out
	}
	for _, name := range []string{"episodes.jsonl", "tasks.jsonl"} {
		if a, b := lines(dst, name), lines(original, name); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %v, want %v", name, a, b)
		}
	}
	made, stored := lines(dst, "episodes_stats.jsonl"), lines(original, "episodes_stats.jsonl")
	for e := range stored {
		for _, key := range []string{"action", "observation.state", "timestamp", "frame_index"} {
			a := made[e]["stats"].(map[string]any)[key].(map[string]any)
			b := stored[e]["stats"].(map[string]any)[key].(map[string]any)
			if len(a) != len(b) {
				t.Errorf("episode %d: %s has %d statistics, want %d", e, key, len(a), len(b))
			}
			for statistic, values := range b {
				for i, want := range values.([]any) {
					got := a[statistic].([]any)[i].(float64)
					if d := math.Abs(got - want.(float64)); !(d <= 1e-5*max(1, math.Abs(got))) {
						t.Errorf(
							"episode %d: %s %s[%d] is %v, want %v",
							e,
							key,
							statistic,
							i,
							got,
							want,
						)
					}
				}
			}
		}
	}
	table := readText(t, filepath.Join(dst, "data/chunk-000/episode_000000.parquet"))
	if strings.Contains(table, `"List"`) || !strings.Contains(table, `"_type": "Sequence"`) {
		t.Error("the table names a type that readers of v2.1 do not know")
	}
	var info, wanted map[string]any
	for to, dir := range map[*map[string]any]string{&info: dst, &wanted: original} {
		if err := json.Unmarshal(
			[]byte(readText(t, filepath.Join(dir, "meta/info.json"))),
			to,
		); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range wanted {
		if got := info[key]; key != "features" && !reflect.DeepEqual(got, want) {
			t.Errorf("info.json: %s is %v, want %v", key, got, want)
		}
	}
	if len(info) != len(wanted) {
		t.Errorf("info.json has %d keys, want %d", len(info), len(wanted))
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func compare(t *testing.T, src, dst robocache.Dataset, rep *Report) {
	t.Helper()
	compareVersion(t, "v3.0", src, dst, rep)
}

func compareVersion(t *testing.T, version string, src, dst robocache.Dataset, rep *Report) {
	t.Helper()
	for _, f := range dst.Info().Findings {
		if f.Severity == robocache.SeverityInfo {
			continue
		}
		t.Errorf("opening the result finds %v", f)
	}
	if d, ok := dst.(interface {
		Diagnose(context.Context, robocache.DiagnoseOptions) ([]robocache.Finding, error)
	}); ok {
		found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Severity != robocache.SeverityInfo {
				t.Errorf("doctor finds %+v", f)
			}
		}
	} else {
		t.Error("the result cannot be diagnosed")
	}
	if dst.Info().Version != version || dst.Info().Episodes != src.Info().Episodes ||
		dst.Info().Frames != src.Info().Frames {
		t.Fatalf("%+v", dst.Info())
	}
	fps := dst.Info().FPS.Float()
	next := int64(0)
	for e := range src.Info().Episodes {
		n := src.Len(e)
		if dst.Len(e) != n {
			t.Fatalf("episode %d has %d rows, want %d", e, dst.Len(e), n)
		}
		rows := rowsOf(e, n)
		for _, f := range src.Info().Features {
			if f.Default {
				continue
			}
			g := dst.Info().Feature(f.Key)
			if g == nil || g.DType != f.DType ||
				fmt.Sprint(g.Shape) != fmt.Sprint(f.Shape) && f.Kind == robocache.KindNumeric {
				t.Fatalf("%s: %+v became %+v", f.Key, f, g)
			}
			switch f.Kind {
			case robocache.KindNumeric:
				a, b := make([]byte, n*f.RowBytes()), make([]byte, n*f.RowBytes())
				if err := src.Gather(t.Context(), f.Key, rows, a); err != nil {
					t.Fatal(err)
				}
				if err := dst.Gather(t.Context(), f.Key, rows, b); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(a, b) {
					t.Errorf("episode %d: %s differs", e, f.Key)
				}
			case robocache.KindVideo:
				samePackets(t, src, dst, f.Key, rows, fps)
			}
		}
		a, err := src.Text(t.Context(), "task", rows)
		if err != nil {
			t.Fatal(err)
		}
		b, err := dst.Text(t.Context(), "task", rows)
		if err != nil {
			t.Fatal(err)
		}
		for k := range a {
			if a[k] != b[k] {
				t.Fatalf("episode %d row %d: task %q became %q", e, k, a[k], b[k])
			}
		}
		for key, want := range map[string]func(k int) int64{
			"index":         func(k int) int64 { return next + int64(k) },
			"frame_index":   func(k int) int64 { return int64(k) },
			"episode_index": func(int) int64 { return int64(e) },
		} {
			raw := make([]byte, 8*n)
			if err := dst.Gather(t.Context(), key, rows, raw); err != nil {
				t.Fatal(err)
			}
			for k := range n {
				if v := int64(binary.LittleEndian.Uint64(raw[8*k:])); v != want(k) {
					t.Fatalf("episode %d row %d: %s is %d, want %d", e, k, key, v, want(k))
				}
			}
		}
		raw := make([]byte, 4*n)
		if err := dst.Gather(t.Context(), "timestamp", rows, raw); err != nil {
			t.Fatal(err)
		}
		for k := range n {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:])); v !=
				float32(float64(k)/fps) {
				t.Fatalf("episode %d row %d: timestamp %v", e, k, v)
			}
		}
		if m := rep.Episodes[e]; m.New != e || m.Length != n || m.FromIndex != next {
			t.Errorf("report of episode %d: %+v", e, m)
		}
		next += int64(n)
	}
}

// samePackets compares the encoded bytes of every image and its time on the grid.
func samePackets(
	t *testing.T,
	src, dst robocache.Dataset,
	key string,
	rows []robocache.Row,
	fps float64,
) {
	t.Helper()
	packet := func(ds robocache.Dataset, r robocache.FrameRef) ([]byte, int64) {
		if r.Missing {
			t.Fatal("a row without an image")
		}
		f, err := ds.(video.Source).Video().Acquire(t.Context(), r.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		s := f.Index.Sample(f.Index.DecodeIndex(r.Ordinal))
		b := make([]byte, s.Size)
		if err := f.Ranged.ReadAt(t.Context(), b, s.Offset); err != nil {
			t.Fatal(err)
		}
		return b, f.Index.TimeNS(r.Ordinal)
	}
	a, b := make([]robocache.FrameRef, len(rows)), make([]robocache.FrameRef, len(rows))
	if err := src.Frames(t.Context(), key, rows, a); err != nil {
		t.Fatal(err)
	}
	if err := dst.Frames(t.Context(), key, rows, b); err != nil {
		t.Fatal(err)
	}
	for k := range rows {
		x, _ := packet(src, a[k])
		y, at := packet(dst, b[k])
		if !bytes.Equal(x, y) {
			t.Fatalf("%s episode %d row %d: another image", key, rows[k].Episode, k)
		}
		if want := dst.Info().FPS.Nanos(int64(b[k].Ordinal)); at != want {
			t.Fatalf("%s ordinal %d at %d ns, want %d", key, b[k].Ordinal, at, want)
		}
	}
}

// W2: the same input gives the same bytes.
func TestDeterministic(t *testing.T) {
	src := open(t, data(t, "g1_h264_v30"))
	run := func() map[string]string {
		dst := filepath.Join(t.TempDir(), "out")
		_, err := ToLeRobot(t.Context(), src, dst,
			Options{DataFileBytes: 50_000, VideoFileBytes: 500_000})
		if err != nil {
			t.Fatal(err)
		}
		return tree(t, dst)
	}
	a, b := run(), run()
	if !maps.Equal(a, b) {
		for k := range a {
			if a[k] != b[k] {
				t.Errorf("%s differs between two runs", k)
			}
		}
	}
	if len(a) < 8 {
		t.Errorf("only %d files: the small limits should have made more", len(a))
	}
}
