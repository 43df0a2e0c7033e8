package lerobot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// synthEpisode is a row of a small episodes table.
type synthEpisode struct {
	Index     int64    `parquet:"episode_index"`
	Tasks     []string `parquet:"tasks,list"`
	Length    int64    `parquet:"length"`
	DataChunk int64    `parquet:"data/chunk_index"`
	DataFile  int64    `parquet:"data/file_index"`
	From      int64    `parquet:"dataset_from_index"`
	To        int64    `parquet:"dataset_to_index"`
}

// synth is a small v3 dataset that tests modify before writing it.
type synth struct {
	info     string // extra keys of info.json, each followed by a comma
	features string // extra features, each followed by a comma
	version  string
	fps      string
	episodes []synthEpisode
	rows     []dataRow
	tasks    []taskRow
	perGroup int
}

func newSynth(lengths ...int) *synth {
	s := &synth{version: "v3.0", fps: "10", perGroup: 1 << 20, tasks: []taskRow{{0, "a"}, {1, "b"}}}
	at := int64(0)
	for e, n := range lengths {
		s.episodes = append(
			s.episodes,
			synthEpisode{
				Index:  int64(e),
				Tasks:  []string{"a"},
				Length: int64(n),
				From:   at,
				To:     at + int64(n),
			},
		)
		for k := range n {
			s.rows = append(
				s.rows,
				dataRow{
					State: []float32{float32(e), float32(k), 0.5},
					Time:  float32(float64(k) / 10),
					Frame: int64(k),
					Ep:    int64(e),
					Index: at + int64(k),
					Task:  int64(e % 2),
				},
			)
		}
		at += int64(n)
	}
	return s
}

func (s *synth) infoJSON() string {
	return fmt.Sprintf(
		`{"codebase_version": %q, "fps": %s, %s "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
"features": {%s "observation.state": {"dtype": "float32", "shape": [3]}, "timestamp": {"dtype": "float32", "shape": [1]}, "frame_index": {"dtype": "int64", "shape": [1]},
"episode_index": {"dtype": "int64", "shape": [1]}, "index": {"dtype": "int64", "shape": [1]}, "task_index": {"dtype": "int64", "shape": [1]}}}`,
		s.version,
		s.fps,
		s.info,
		s.features,
	)
}

var pandasTask = parquet.KeyValueMetadata("pandas", `{"index_columns": ["task"]}`)

func (s *synth) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, infoPath), s.infoJSON())
	writeRows(t, filepath.Join(dir, tasksParquet), s.tasks, 100, pandasTask)
	writeRows(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), s.episodes, 10)
	writeRows(t, filepath.Join(dir, "data/chunk-000/file-000.parquet"), s.rows, s.perGroup)
	return dir
}

// codes returns the codes of the findings.
func codes(d *Dataset) string {
	var out []string
	for _, f := range append(append([]robocache.Finding(
		nil,
	), d.Info().Findings...), d.Noticed()...) {
		out = append(out, f.Code)
	}
	return strings.Join(out, " ")
}

// states returns columns 0 and 1 of observation.state of an episode, which hold the episode and row
// that made them.
func states(t *testing.T, d *Dataset, episode int) []float32 {
	t.Helper()
	b := gather(t, d, "observation.state", rowsOf(d, episode))
	var out []float32
	for i := 0; i < len(b); i += 4 {
		out = append(out, float32(robocache.Float64s(nil, robocache.Float32, b[i:i+4])[0]))
	}
	return out
}

// wantStates checks that the rows of an episode are its own and in order.
func wantStates(t *testing.T, d *Dataset, episode int) {
	t.Helper()
	s := states(t, d, episode)
	for k := range d.Len(episode) {
		if s[3*k] != float32(episode) || s[3*k+1] != float32(k) {
			t.Fatalf("episode %d row %d is row %v of episode %v", episode, k, s[3*k+1], s[3*k])
		}
	}
}

// wantError checks the class of an error and the words in its message.
func wantError(t *testing.T, err, class error, words ...string) {
	t.Helper()
	var e *robocache.Error
	if !errors.Is(err, class) || !errors.As(err, &e) {
		t.Fatalf("got %v, want %v", err, class)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func tryOpen(t *testing.T, dir string) (*Dataset, error) {
	t.Helper()
	d, err := Open(context.Background(), dir, robocache.OpenOptions{})
	if err == nil {
		t.Cleanup(func() { d.Close() })
	}
	return d, err
}

// copySet copies a real dataset, without its oracle.
func copySet(t *testing.T, name string) string {
	t.Helper()
	src, dir := realData(t, name), t.TempDir()
	err := filepath.WalkDir(src, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(src, p)
		if e.IsDir() {
			if e.Name() == "oracle" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, rel), 0o755)
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit replaces text in a file.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), old, new)), 0o644); err !=
		nil {
		t.Fatal(err)
	}
}

const lfsText = "version https://git-lfs.github.com/spec/v1\noid " +
	"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

// fixed is a store of a few files in memory.
type fixed map[string][]byte

func (m fixed) URI() string { return "fixed" }

func (m fixed) Open(_ context.Context, name string) (robocache.Ranged, error) {
	b, ok := m[name]
	if !ok {
		return nil, &robocache.Error{
			Class: robocache.ErrNotFound,
			Op:    "open",
			Where: robocache.Where{"file": name},
			Msg:   "not there",
		}
	}
	return fixedFile(b), nil
}

func (m fixed) Stat(ctx context.Context, name string) (store.Entry, error) {
	_, err := m.Open(ctx, name)
	return store.Entry{Name: name, Size: int64(len(m[name]))}, err
}

func (m fixed) List(context.Context, string) ([]store.Entry, error) {
	return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "list", Msg: "cannot"}
}

type fixedFile []byte

func (f fixedFile) Size() int64     { return int64(len(f)) }
func (f fixedFile) Version() string { return "" }
func (f fixedFile) Close() error    { return nil }

func (f fixedFile) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(f)) || copy(p, f[off:]) < len(p) {
		return &robocache.Error{
			Class: robocache.ErrMalformed,
			Op:    "read",
			Where: robocache.Where{"offset": off},
			Msg:   "read after the end of the file",
		}
	}
	return nil
}
