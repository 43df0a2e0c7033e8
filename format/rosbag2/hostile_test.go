package rosbag2

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// FuzzMetadata checks that any metadata.yaml yields files inside the folder or a typed error, with
// memory limited by its size.
func FuzzMetadata(f *testing.F) {
	f.Add(
		"rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: sqlite3\n  " +
			"relative_file_paths:\n    - a_0.db3\n    - ../b\n  topics_with_message_count:\n  " +
			"  - topic_metadata: {name: /a, type: b/msg/C, offered_qos_profiles: \"- " +
			"durability: 1\"}\n      message_count: 3\n",
	)
	f.Add(
		"rosbag2_bagfile_information: {relative_file_paths: [x/a.db3], version: 2, " +
			"custom_data: {a: b}, files: [{path: q}]}\n",
	)
	f.Add("a: &a [1]\nb: [*a, *a]\nrosbag2_bagfile_information: *a\n")
	f.Add(strings.Repeat("[", 200))
	f.Add(strings.Repeat("- ", 2000))
	f.Fuzz(func(t *testing.T, text string) {
		before := hostile.Allocated()
		m, err := parseMetadata([]byte(text), "x")
		hostile.Typed(t, err)
		if m != nil {
			for _, n := range m.files {
				if clean, err := store.CleanName(n); err != nil || clean != n {
					t.Errorf("%q leaves the folder", n)
				}
			}
			for _, tp := range m.topics {
				bag.Latched(tp.qos)
			}
		}
		if got := hostile.Allocated() - before; got > uint64(8<<20+4000*len(text)) {
			t.Errorf("%d bytes were allocated for %d", got, len(text))
		}
	})
}

type mem []byte

func (m mem) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m)-len(p)) {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "outside"}
	}
	copy(p, m[off:])
	return nil
}

func (m mem) Size() int64     { return int64(len(m)) }
func (m mem) Version() string { return "1" }
func (m mem) Close() error    { return nil }

// FuzzDB3 opens any bytes as a db3 file.
func FuzzDB3(f *testing.F) {
	small, err := os.ReadFile(
		filepath.Join(realdata.Path(f, "rosbag2/tests/sqlite3/cdr_test"), "cdr_test_0.db3"),
	)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(small)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		s, err := openDB3(t.Context(), mem(b), "a.db3", nil, nil)
		hostile.Typed(t, err)
		if err == nil {
			for k, info := range s.Topics() {
				hostile.Typed(
					t,
					s.Messages(
						t.Context(),
						k,
						0,
						int(min(info.Messages, 100)),
						func(int, *bag.Message) error { return nil },
					),
				)
			}
		}
		if got := hostile.Allocated() - before; got > uint64(32<<20+4000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// TestBombs checks that a frame that declares more than 64 MiB and a ratio of 1,000 allocates no
// memory (rosbag2.B5).
func TestBombs(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := w.EncodeAll(make([]byte, 256<<20), nil)
	z := &zstdMessages{}
	d := z.acquireDecoder()
	before := hostile.Allocated()
	if _, err := d.decompress(bomb); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("%d bytes: %v", len(bomb), err)
	}
	if _, err := unpackFile(t.Context(), mem(bomb), "x.zstd"); !errors.Is(err,
		robocache.ErrResourceLimit) {
		t.Errorf("%d bytes: %v", len(bomb), err)
	}
	if got := hostile.Allocated() - before; got > 64<<20 {
		t.Errorf("%d bytes were allocated", got)
	}
	if _, err := d.decompress([]byte("no frame")); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	ok := w.EncodeAll([]byte("payload"), nil)
	if out, err := d.decompress(ok); err != nil || string(out) != "payload" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestUnpackLarge checks that a large file is decompressed into an unnamed file and read by ranges.
func TestUnpackLarge(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, (4<<20)+5<<20)
	for k := range whole {
		whole[k] = byte(k * 2654435761 >> 13)
	}
	u, err := unpackFile(t.Context(), mem(w.EncodeAll(whole, nil)), "x.zstd")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if u.file == nil || u.Size() != int64(len(whole)) {
		t.Fatalf("%d bytes", u.Size())
	}
	p := make([]byte, 1000)
	for _, off := range []int64{0, (4 << 20) - 500, int64(len(whole)) - 1000} {
		if err := u.ReadAt(t.Context(), p, off); err != nil ||
			string(p) != string(whole[off:off+1000]) {
			t.Errorf("at %d: %v", off, err)
		}
	}
	if err := u.ReadAt(t.Context(), p, int64(len(whole))-999); err == nil {
		t.Error("a range outside the file was read")
	}
}

// TestKilledRecorder checks that messages in the write-ahead log of a killed recorder are read, and
// that nothing is written (rosbag2.B3).
func TestKilledRecorder(t *testing.T) {
	dir := t.TempDir()
	const killed = `
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,offered_qos_profiles TEXT NOT NULL)")
db.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL)")
db.execute("INSERT INTO topics VALUES (1, '/t', 'std_msgs/msg/String', 'cdr', '- durability: transient_local')")
for k in range(40):
    db.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", (1000 + k, b"\0\1\0\0\2\0\0\0a\0" + bytes(3000)))
db.commit()
os._exit(0)
`
	if out, err := exec.Command(python(t), "-c", killed, filepath.Join(dir, "a.db3")).
		CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	names := func() (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			i, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, e.Name(), i.ModTime().String())
		}
		return out
	}
	before := names()
	all, err := openAll(t, dir, openOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(read(t, all[0])); n != 40 || !slices.Contains(codes(all[0]), "not-closed") ||
		!all[0].Topics()[0].Latched {
		t.Errorf("%d messages, %v", n, all[0].Findings())
	}
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("files changed: %v, %v", before, after)
	}
}

// TestEmptyLog checks that an empty log is reported as well, because a recorder deletes the log
// when it closes the file.
func TestEmptyLog(t *testing.T) {
	dir := t.TempDir()
	from := realdata.Path(t, "rosbag2/py/sqlite3/wbag")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.db3"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	count := func(said bool) int {
		t.Helper()
		all, err := openAll(t, dir, openOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(codes(all[0]), "not-closed") != said {
			t.Errorf("%v", all[0].Findings())
		}
		return len(read(t, all[0]))
	}
	closed := count(false)
	if err := os.WriteFile(files[0]+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := count(true); n != closed || n == 0 {
		t.Errorf("%d messages of %d", n, closed)
	}
}

// TestHTTP checks that the metadata lists the files over HTTP, and that a db3 file is read by
// ranges.
func TestHTTP(t *testing.T) {
	dir := realdata.Path(t, "rosbag2/py/sqlite3/wbag")
	srv := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer srv.Close()
	ds, err := robocache.Open(t.Context(), srv.URL, robocache.OpenOptions{Format: Name})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	times, err := ds.Times(t.Context(), 0, "AAA")
	if err != nil || len(times) != 804 && len(times) < 700 {
		t.Errorf("%d, %v", len(times), err)
	}
}

// TestFolder checks that each recording of a folder is an episode, in the order of their numbers.
// One has version 3, whose paths begin with the name of the folder.
func TestFolder(t *testing.T) {
	one, want := written(t, "db3", "none", "9")
	db, err := os.ReadFile(filepath.Join(one, "bag.db3"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"run_10", "run_2", "run_1"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, name+"_0.db3"), db, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	meta := "rosbag2_bagfile_information:\n  version: 3\n  relative_file_paths:\n    - " +
		"run_2/run_2_0.db3\n"
	if err := os.WriteFile(filepath.Join(dir, "run_2", metadataName), []byte(meta), 0o644); err !=
		nil {
		t.Fatal(err)
	}
	if ok, err := Detect(t.Context(), dir, robocache.OpenOptions{}); !ok || err != nil {
		t.Errorf("not detected: %v", err)
	}
	recs, _, _, err := findRecordings(t.Context(), local(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range recs {
		names = append(names, r.name)
		if len(r.files) != 1 {
			t.Errorf("%s: %v", r.name, r.files)
		}
	}
	if !slices.Equal(names, []string{"run_1", "run_2", "run_10"}) {
		t.Error(names)
	}
	all, err := openAll(t, dir, openOptions{strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		same(t, "folder", read(t, st), want)
	}
}
