package rosbag2

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// script writes a recording with the rosbags package and prints the messages that rosbags reads
// from it: [topic, time, payload].
const script = `
import json, sys
from pathlib import Path
from rosbags.rosbag2 import Writer, Reader, StoragePlugin, CompressionFormat, CompressionMode
from rosbags.typesys import Stores, get_typestore
ts = get_typestore(Stores.ROS2_HUMBLE)
path, plugin, mode, version = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
w = Writer(path, version=version, storage_plugin=StoragePlugin.SQLITE3 if plugin == "db3" else StoragePlugin.MCAP)
if mode != "none":
    w.set_compression(CompressionMode[mode], CompressionFormat.ZSTD)
w.set_custom_data("task", "pick the cup")
S, F = ts.types["std_msgs/msg/String"], ts.types["std_msgs/msg/Float64"]
with w:
    a = w.add_connection("/text", "std_msgs/msg/String", typestore=ts)
    b = w.add_connection("/value", "std_msgs/msg/Float64", typestore=ts)
    for k in range(60):
        t = 1_000_000_000 + (k ^ 3) * 1000            # not in order
        w.write(a, t, ts.serialize_cdr(S(data="x" * (k * 200)), "std_msgs/msg/String"))
        if k % 2:
            w.write(b, t + 5, ts.serialize_cdr(F(data=k / 2), "std_msgs/msg/Float64"))
out = []
with Reader(path) as r:
    for c, t, raw in r.messages():
        out.append([c.topic, t, bytes(raw).hex()])
print(json.dumps(out))
`

type reference struct {
	topic string
	time  int64
	data  string
}

func python(tb testing.TB) string {
	tb.Helper()
	return realdata.Python(tb, "rosbags")
}

// written makes a recording and returns the messages that rosbags reads.
func written(tb testing.TB, plugin, mode, version string) (dir string, want []reference) {
	tb.Helper()
	dir = filepath.Join(tb.TempDir(), "bag")
	cmd := exec.Command(python(tb), "-c", script, dir, plugin, mode, version)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	var rows [][3]any
	if err := json.Unmarshal(out, &rows); err != nil {
		tb.Fatal(err)
	}
	for _, r := range rows {
		b, _ := hex.DecodeString(r[2].(string))
		want = append(want, reference{r[0].(string), int64(r[1].(float64)), string(b)})
	}
	return dir, want
}

func local(tb testing.TB, dir string) store.Store {
	tb.Helper()
	s, err := store.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { store.Close(s) })
	return s
}

func openAll(tb testing.TB, dir string, opt openOptions) ([]bag.Storage, error) {
	tb.Helper()
	s := local(tb, dir)
	recs, _, _, err := findRecordings(tb.Context(), s)
	if err != nil {
		return nil, err
	}
	var out []bag.Storage
	for k := range recs {
		st, err := recs[k].openStorage(tb.Context(), s, opt)
		if err != nil {
			return nil, err
		}
		tb.Cleanup(func() { st.Close() })
		out = append(out, st)
	}
	return out, nil
}

// read returns all messages by topic, in order.
func read(tb testing.TB, st bag.Storage) (out []reference) {
	tb.Helper()
	for k, info := range st.Topics() {
		last := int64(-1)
		err := st.Messages(
			tb.Context(),
			k,
			0,
			int(info.Messages),
			func(_ int, m *bag.Message) error {
				if m.Log < last {
					tb.Errorf("%s: %d after %d", info.Name, m.Log, last)
				}
				last = m.Log
				out = append(out, reference{info.Name, m.Log, string(m.Data)})
				return nil
			},
		)
		if err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

func same(tb testing.TB, what string, got, want []reference) {
	tb.Helper()
	order := func(a, b reference) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		return int(a.time - b.time)
	}
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortStableFunc(got, order)
	slices.SortStableFunc(want, order)
	if !slices.Equal(got, want) {
		tb.Errorf("%s: %d messages, not the %d that rosbags reads", what, len(got), len(want))
	}
}

func codes(st bag.Storage) (out []string) {
	for _, f := range st.Findings() {
		out = append(out, f.Code)
	}
	return out
}

// TestEqualsRosbags checks both storages, both compressions and both versions that rosbags writes
// against the messages that it reads (rosbag2.B5).
func TestEqualsRosbags(t *testing.T) {
	for _, c := range [][3]string{
		{"db3", "none", "8"},
		{"db3", "FILE", "9"},
		{"db3", "MESSAGE", "9"},
		{"mcap", "none", "9"},
		{"mcap", "FILE", "8"},
	} {
		dir, want := written(t, c[0], c[1], c[2])
		all, err := openAll(t, dir, openOptions{strict: true})
		if err != nil || len(all) != 1 {
			t.Fatalf("%v: %d, %v", c, len(all), err)
		}
		same(t, c[0]+" "+c[1], read(t, all[0]), want)
		scanned(t, all[0])
		notes, err := all[0].Notes(t.Context())
		if err != nil || notes["custom_data.task"] != "pick the cup" {
			t.Errorf("notes %v, %v", notes, err)
		}
		if f := all[0].Findings(); len(f) > 0 {
			t.Errorf("%v: findings %v", c, f)
		}
	}
}

// TestMetadataLies checks recordings without metadata, with outdated metadata, with a missing
// split, and with a split that is not listed (rosbag2.B1).
func TestMetadataLies(t *testing.T) {
	dir, want := written(t, "db3", "none", "9")
	meta := filepath.Join(dir, metadataName)
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	file := "bag.db3"
	if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
	put := func(s string) {
		if err := os.WriteFile(meta, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, text, code string, strictFails bool) {
		t.Helper()
		put(text)
		if text == "none" {
			os.Remove(meta)
		}
		all, err := openAll(t, dir, openOptions{})
		if err != nil || len(all) != 1 {
			t.Errorf("%s: %d recordings, %v", what, len(all), err)
			return
		}
		same(t, what, read(t, all[0]), want)
		if got := codes(all[0]); !slices.Contains(got, code) {
			t.Errorf("%s: findings %v, not %s", what, got, code)
		}
		if _, err := openAll(t, dir, openOptions{strict: true}); (err != nil) != strictFails {
			t.Errorf("%s: strict: %v", what, err)
		}
	}
	whole := string(text)
	check("no metadata", "none", "no-metadata", false)
	check("empty metadata", "", "no-metadata", false)
	check("other YAML", "a: [1, 2]\n", "no-metadata", false)
	check(
		"stale counts",
		strings.ReplaceAll(whole, "message_count: 90", "message_count: 89"),
		"stale-metadata",
		false,
	)
	check(
		"a missing split",
		strings.Replace(whole, "- bag.db3", "- bag.db3\n  - bag_1.db3", 1),
		"missing-split",
		true,
	)
	check(
		"an unlisted split",
		strings.Replace(whole, "- bag.db3", "- other.db3", 1),
		"unlisted-split",
		true,
	)
}

// TestEscapes checks that all paths that leave the folder are rejected (rosbag2.B2).
func TestEscapes(t *testing.T) {
	for _, p := range []string{"../bag.db3", "/etc/passwd", "a/../../b.db3", "\"a\\0b\""} {
		dir := t.TempDir()
		text := "rosbag2_bagfile_information:\n  version: 9\n  storage_identifier: sqlite3\n  " +
			"relative_file_paths:\n    - " + p + "\n"
		if err := os.WriteFile(filepath.Join(dir, metadataName), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := openAll(t, dir, openOptions{}); err == nil ||
			robocache.Classify(err) != robocache.ErrMalformed {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestSplits checks that splits that overlap in time are merged, and the order of the real split
// recording (rosbag2.B4).
func TestSplits(t *testing.T) {
	one, want := written(t, "db3", "none", "9")
	two, more := written(t, "mcap", "none", "9")
	dir := t.TempDir()
	for from, to := range map[string]string{
		filepath.Join(one, "bag.db3"):  "x_0.db3",
		filepath.Join(two, "bag.mcap"): "x_1.mcap",
	} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	meta := "rosbag2_bagfile_information:\n  version: 9\n  relative_file_paths: [x_0.db3, " +
		"x_1.mcap]\n"
	if err := os.WriteFile(filepath.Join(dir, metadataName), []byte(meta), 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := openAll(t, dir, openOptions{strict: true})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "two storages", read(t, all[0]), append(slices.Clone(want), more...))
	scanned(t, all[0])

	all, err = openAll(t, realdata.Path(t, "rosbag2/py/sqlite3/wbag"), openOptions{strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(read(t, all[0])); len(all) != 1 || n != 6074 {
		t.Errorf("%d recordings, %d messages", len(all), n)
	}
	scanned(t, all[0])
}

// TestDamagedFiles checks that a damaged split is a gap, and a typed error if it is the only file.
func TestDamagedFiles(t *testing.T) {
	dir, _ := written(t, "db3", "none", "9")
	file := filepath.Join(dir, "bag.db3")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 1024 {
		if err := os.WriteFile(file, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		all, err := openAll(t, dir, openOptions{})
		if err != nil {
			if c := robocache.Classify(err); c != robocache.ErrMalformed &&
				c != robocache.ErrNotFound {
				t.Errorf("cut at %d: %v", n, err)
			}
			continue
		}
		if !slices.Contains(codes(all[0]), "damaged") {
			t.Errorf("cut at %d: %v", n, codes(all[0]))
		}
	}
}
