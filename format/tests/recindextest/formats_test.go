// Package recindextest tests the index of recordings with the formats that use it.
package recindextest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/aloha"
	_ "github.com/goatnote-inc/robocache/format/hdf5"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	_ "github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/recindex"
	_ "github.com/goatnote-inc/robocache/format/robomimic"
	_ "github.com/goatnote-inc/robocache/format/rosbag2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
	_ "github.com/goatnote-inc/robocache/store/s3"
	"github.com/goatnote-inc/robocache/store/tests/servers"
)

// copyTree copies files of the shared data into a folder. The copies were modified an hour ago.
func copyTree(t testing.TB, dir string, paths ...string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	for _, p := range paths {
		top, rest, _ := strings.Cut(p, "/")
		from := filepath.Join(realdata.Path(t, top), filepath.FromSlash(rest))
		err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			to := filepath.Join(dir, name)
			if name == "." {
				to = filepath.Join(dir, filepath.Base(from))
			}
			if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(to, data, 0o666); err != nil {
				return err
			}
			return os.Chtimes(to, old, old)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// indexedSet is a dataset whose recordings are in several files.
type indexedSet struct {
	name  string
	paths []string
	opt   robocache.OpenOptions
	// recording is a file of one recording
	recording string
	records   int
}

// scanSample makes opening read only the first messages.
var scanSample = map[string]string{"scan": "sample"}

var indexedSets = []indexedSet{
	{
		name: "MCAP",
		paths: []string{
			"mcap_robot/recording_lz4.mcap",
			"mcap_robot/recording_zstd.mcap",
		},
		opt:       robocache.OpenOptions{Options: scanSample},
		recording: "recording_lz4.mcap",
		records:   2,
	},
	{
		name: "MCAP, all messages",
		paths: []string{
			"mcap_robot/recording_lz4.mcap",
			"mcap_robot/recording_zstd.mcap",
		},
		recording: "recording_lz4.mcap",
		records:   2,
	},
	{
		name:      "rosbag2",
		paths:     []string{"rosbag2/py"},
		opt:       robocache.OpenOptions{Options: scanSample},
		recording: "mcap/convert_a/rewriter_a_0.mcap",
	},
	{
		name:      "ALOHA",
		paths:     []string{"aloha_like"},
		opt:       robocache.OpenOptions{HZ: robocache.Rate{Num: 50, Den: 1}},
		recording: "episode_0.hdf5",
		records:   2,
	},
	{
		name: "robomimic",
		paths: []string{
			"robomimic_like/latest_gzip_shuffle.hdf5",
			"robomimic_like/earliest_gzip.hdf5",
			"robomimic_like/earliest_lzf.hdf5",
		},
		opt:       robocache.OpenOptions{HZ: robocache.Rate{Num: 20, Den: 1}},
		recording: "earliest_lzf.hdf5",
		records:   3,
	},
	{
		name: "generic HDF5",
		paths: []string{
			"hdf5_features/latest.hdf5", "hdf5_features/v108.hdf5",
		},
		opt:       robocache.OpenOptions{HZ: robocache.Rate{Num: 20, Den: 1}},
		recording: "v108.hdf5",
		records:   2,
	},
	{
		name:      "LeRobot v2",
		paths:     []string{"g1_v21"},
		recording: "data/chunk-000/episode_000001.parquet",
		records:   5,
	},
}

// content returns everything that a dataset delivers: its description, rows, texts, timestamps,
// frames and findings.
func content(t testing.TB, uri string, opt robocache.OpenOptions) string {
	t.Helper()
	ctx := t.Context()
	ds, err := robocache.Open(ctx, uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	var out bytes.Buffer
	put := func(v any, err error) {
		b, jsonErr := json.Marshal(v)
		fmt.Fprintf(&out, "%s %v %v\n", b, err, jsonErr)
	}
	info := *ds.Info()
	findings := info.Findings
	info.Findings = nil
	put(info, nil)
	for e := range info.Episodes {
		episode, err := ds.Episode(ctx, e)
		put(episode, err)
		times, err := ds.Times(ctx, e, "")
		put(times, err)
		for i := range info.Features {
			f := &info.Features[i]
			n, err := robocache.RowsIn(ctx, ds, e, f)
			put([]any{f.Key, n}, err)
			rows := make([]robocache.Row, n)
			for k := range rows {
				rows[k] = robocache.Row{Episode: e, Index: k}
			}
			times, err := ds.Times(ctx, e, f.Key)
			put(times, err)
			putStream(ctx, ds, f, rows, put)
		}
	}
	if noticed := ds.Capabilities().Noticed; noticed != nil {
		findings = append(findings, noticed()...)
	}
	var lines []string
	for _, f := range findings {
		b, _ := json.Marshal(f)
		lines = append(lines, string(b))
	}
	slices.Sort(lines)
	put(slices.Compact(lines), nil)
	return out.String()
}

// putStream puts the rows of a stream.
func putStream(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, rows []robocache.Row,
	put func(v any, err error),
) {
	switch f.Kind {
	case robocache.KindNumeric:
		if f.RowBytes() > 0 {
			dst := make([]byte, len(rows)*f.RowBytes())
			put(dst, ds.Gather(ctx, f.Key, rows, dst))
		}
	case robocache.KindText, robocache.KindEvent:
		text, err := ds.Text(ctx, f.Key, rows)
		put(text, err)
	case robocache.KindImage, robocache.KindVideo:
		frames := make([]robocache.FrameRef, len(rows))
		put(frames, ds.Frames(ctx, f.Key, rows, frames))
	}
}

// firstDifference returns the first lines that differ.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	clip := func(s string) string { return s[:min(len(s), 600)] }
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d:\n%s\n%s", i, clip(x[i]), clip(y[i]))
		}
	}
	return fmt.Sprintf("%d and %d lines", len(x), len(y))
}

// without returns opt with the index off.
func without(opt robocache.OpenOptions) robocache.OpenOptions {
	opt.RecordingIndex = recindex.Off
	return opt
}

// checkUpdate updates an index, and checks the counts.
func checkUpdate(t testing.TB, uri string, opt robocache.OpenOptions, added, changed, removed int) {
	t.Helper()
	r, err := recindex.Update(t.Context(), uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	if added >= 0 && r.Added != added || r.Changed != changed || r.Removed != removed {
		t.Fatalf("%+v, want %d, %d, %d", r, added, changed, removed)
	}
	if r.Recordings == 0 {
		t.Fatal("the index is empty")
	}
}

// ix.C5, ix.C6: a dataset is the same with and without its index, also after a recording has changed,
// is new or is gone.
func TestFormatsAreEqualWithIndex(t *testing.T) {
	for _, set := range indexedSets {
		t.Run(set.name, func(t *testing.T) {
			dir := t.TempDir()
			copyTree(t, dir, set.paths...)
			want := content(t, dir, without(set.opt))
			added := set.records
			if added == 0 {
				added = -1
			}
			checkUpdate(t, dir, set.opt, added, 0, 0)
			if got := content(t, dir, set.opt); got != want {
				t.Fatalf("the dataset differs: %s", firstDifference(want, got))
			}
			checkUpdate(t, dir, set.opt, 0, 0, 0)
			// The modification time of a recording changes, and its size does not.
			path := filepath.Join(dir, set.recording)
			newer := time.Now().Add(-30 * time.Minute)
			if err := os.Chtimes(path, newer, newer); err != nil {
				t.Fatal(err)
			}
			got := content(t, dir, set.opt)
			if !strings.Contains(got, "index-behind") {
				t.Error("the change is not noticed")
			}
			checkUpdate(t, dir, set.opt, 0, 1, 0)
			if got := content(t, dir, set.opt); got != want {
				t.Fatalf("the dataset differs after a change: %s", firstDifference(want, got))
			}
			if strings.HasPrefix(set.name, "LeRobot") {
				return // a missing data file is an error
			}
			moved := filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(path, moved); err != nil {
				t.Fatal(err)
			}
			want = content(t, dir, without(set.opt))
			if got := content(t, dir, set.opt); got != want {
				t.Fatalf("the dataset differs without a file: %s", firstDifference(want, got))
			}
			isListed := set.name == "rosbag2" // metadata.yaml still lists the recording
			gone := 1
			if isListed {
				gone = 0
			}
			checkUpdate(t, dir, set.opt, 0, 0, gone)
			if err := os.Rename(moved, path); err != nil {
				t.Fatal(err)
			}
			checkUpdate(t, dir, set.opt, gone, 0, 0)
			want = content(t, dir, without(set.opt))
			if got := content(t, dir, set.opt); got != want {
				t.Fatalf("the dataset differs with a new file: %s", firstDifference(want, got))
			}
		})
	}
}

// An index that is cut off anywhere leaves the dataset as it is.
func TestFormatsWithCutIndex(t *testing.T) {
	for _, set := range indexedSets {
		t.Run(set.name, func(t *testing.T) {
			dir := t.TempDir()
			copyTree(t, dir, set.paths...)
			checkUpdate(t, dir, set.opt, -1, 0, 0)
			path := filepath.Join(dir, recindex.Name)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			ds, err := robocache.Open(t.Context(), dir, without(set.opt))
			if err != nil {
				t.Fatal(err)
			}
			want := ds.Info()
			ds.Close()
			for cut := 24; cut < len(whole); cut += max(1, len(whole)/40) {
				if err := os.WriteFile(path, whole[:cut], 0o666); err != nil {
					t.Fatal(err)
				}
				ds, err := robocache.Open(t.Context(), dir, set.opt)
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				if got := ds.Info(); got.Frames != want.Frames || got.Episodes != want.Episodes ||
					len(got.Features) != len(want.Features) {
					t.Errorf("cut at %d: %d rows, want %d", cut, got.Frames, want.Frames)
				}
				ds.Close()
			}
		})
	}
}

// ix.C7: a recording that was replaced by another one with the same size and modification time is
// an error when it is read.
func TestReplacedRecordingIsAnError(t *testing.T) {
	dir := t.TempDir()
	copyTree(t, dir, "mcap_robot/recording_lz4.mcap", "mcap_robot/recording_zstd.mcap")
	opt := robocache.OpenOptions{Options: scanSample}
	checkUpdate(t, dir, opt, 2, 0, 0)
	path := filepath.Join(dir, "recording_zstd.mcap")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	copyTree(t, dir, "rosbag2/cpp/only_topics.mcap")
	other, err := os.ReadFile(filepath.Join(dir, "only_topics.mcap"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "only_topics.mcap")); err != nil {
		t.Fatal(err)
	}
	// Bytes after the end of an MCAP file make it the same size; it is then scanned.
	if int64(len(other)) > info.Size() {
		t.Skip("the other recording is larger")
	}
	other = append(other, make([]byte, info.Size()-int64(len(other)))...)
	if err := os.WriteFile(path, other, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	ds, err := robocache.Open(t.Context(), dir, opt)
	if err == nil {
		defer ds.Close()
		_, err = ds.Times(t.Context(), 1, "")
	}
	if !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), "recording_zstd.mcap") {
		t.Errorf("reading the replaced recording: %v", err)
	}
}

// ix.C10: an index in a bucket, with ETags as versions.
func TestIndexInBucket(t *testing.T) {
	folder, endpoint := servers.S3(t)
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	if err := os.Mkdir(filepath.Join(folder, "lab"), 0o777); err != nil {
		t.Fatal(err)
	}
	for i, set := range indexedSets {
		t.Run(set.name, func(t *testing.T) {
			dir, uri := t.TempDir(), fmt.Sprintf("s3://lab/set%d", i)
			copyTree(t, dir, set.paths...)
			w, err := store.OpenWritable(uri)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close(w)
			names := []string{}
			err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				name, _ := filepath.Rel(dir, path)
				names = append(names, name)
				return store.Put(t.Context(), w, filepath.ToSlash(name), data)
			})
			if err != nil {
				t.Fatal(err)
			}
			want := content(t, uri, without(set.opt))
			checkUpdate(t, uri, set.opt, -1, 0, 0)
			if got := content(t, uri, set.opt); got != want {
				t.Fatalf("the dataset differs: %s", firstDifference(want, got))
			}
			checkUpdate(t, uri, set.opt, 0, 0, 0)
			if set.name != "MCAP" {
				return
			}
			// Another object with the same name has another ETag.
			other, err := os.ReadFile(filepath.Join(dir, names[1]))
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Put(t.Context(), w, names[0], other); err != nil {
				t.Fatal(err)
			}
			want = content(t, uri, without(set.opt))
			if got := content(t, uri, set.opt); !strings.Contains(got, "index-behind") {
				t.Error("the other object is not noticed")
			}
			checkUpdate(t, uri, set.opt, 0, 1, 0)
			if got := content(t, uri, set.opt); got != want {
				t.Fatalf("the dataset differs: %s", firstDifference(want, got))
			}
		})
	}
}

// TestOpenLargeSet measures opening the folder RECINDEX_LARGE_SET with its index, in this process:
// docs/dev/index.md.
func TestOpenLargeSet(t *testing.T) {
	dir := os.Getenv("RECINDEX_LARGE_SET")
	if dir == "" {
		t.Skip("RECINDEX_LARGE_SET names no folder")
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for range 3 {
		start, used := time.Now(), cpu()
		ds, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		t.Logf("%d episodes: %v, %v of CPU, heap %d MB", ds.Info().Episodes,
			time.Since(start), cpu()-used, memory.HeapAlloc>>20)
		ds.Close()
	}
}
