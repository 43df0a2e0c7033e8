package edit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/edit"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func data(t testing.TB, name string) string { return realdata.Path(t, name) }

func open(t testing.TB, path string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// skipDecoding skips a test in short mode, because it decodes the frames of whole sets.
func skipDecoding(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes every frame of whole sets")
	}
}

// run edits src into a new folder.
func run(t testing.TB, src string, verbs ...edit.Verb) (string, *edit.Report) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "out")
	r, err := edit.Run(t.Context(), &edit.Request{Sources: []string{src}, Verbs: verbs, DST: dst})
	if err != nil {
		t.Fatal(err)
	}
	return dst, r
}

// tree returns the SHA-256 of every file below a folder, by path.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s := sha256.Sum256(b)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = hex.EncodeToString(s[:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// place describes the rows of a result's episode: the source episode and its first row.
type place struct{ episode, from, n int }

// whole returns places with all rows of the episodes.
func whole(ds robocache.Dataset, episodes ...int) (out []place) {
	for _, e := range episodes {
		out = append(out, place{e, 0, ds.Len(e)})
	}
	return out
}

// hashes returns hashes of the decoded frames of rows.
func hashes(t testing.TB, ds robocache.Dataset, key string, rows []robocache.Row) (out []string) {
	t.Helper()
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(t.Context(), key, rows, refs); err != nil {
		t.Fatal(err)
	}
	f := ds.Info().Feature(key)
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	if f.Depth != nil {
		spec.Pixel = video.Gray16
	}
	var buf []byte
	err := video.EachFrame(
		t.Context(),
		video.LibraryOf(ds),
		refs,
		video.Each{},
		func(at []int, pic video.Frame) (err error) {
			h := ""
			if pic != nil {
				if buf, err = video.ConvertTo(buf, pic, spec); err != nil {
					return err
				}
				s := sha256.Sum256(buf)
				h = hex.EncodeToString(s[:8])
			} else {
				r := refs[at[0]]
				s := sha256.Sum256(r.Encoded)
				if r.Raw != nil {
					s = sha256.Sum256(r.Raw.Pix)
				}
				h = hex.EncodeToString(s[:8])
			}
			for range at {
				out = append(out, h)
			}
			return nil
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var decoded = map[string][]string{} // cache of shown

// shown returns the hashes of a source's rows. Each episode of the shared data is decoded only
// once, because it never changes.
func shown(t testing.TB, src robocache.Dataset, key string, p place) []string {
	t.Helper()
	if uri := src.Info().URI; strings.HasPrefix(uri, realdata.Dir(t)) {
		id := fmt.Sprint(uri, " ", key, " ", p.episode)
		if decoded[id] == nil {
			decoded[id] = hashes(t, src, key, robocache.RowsOf(p.episode, 0, src.Len(p.episode)))
		}
		return decoded[id][p.from : p.from+p.n]
	}
	return hashes(t, src, key, robocache.RowsOf(p.episode, p.from, p.n))
}

// same compares the values, texts and frames of a result with its source. rename maps keys to keys
// of the source.
func same(t testing.TB, got, src robocache.Dataset, places []place, rename map[string]string) {
	t.Helper()
	if got.Info().Episodes != len(places) {
		t.Fatalf("%d episodes, want %d", got.Info().Episodes, len(places))
	}
	for _, f := range got.Info().Features {
		name := f.Key
		if rename[name] != "" {
			name = rename[name]
		}
		old := src.Info().Feature(name)
		if f.Default || old == nil {
			continue
		}
		for e, p := range places {
			if got.Len(e) != p.n {
				t.Fatalf("episode %d has %d rows, want %d", e, got.Len(e), p.n)
			}
			a, b := robocache.RowsOf(e, 0, p.n), robocache.RowsOf(p.episode, p.from, p.n)
			switch f.Kind {
			case robocache.KindNumeric:
				x, y := make([]byte, p.n*f.RowBytes()), make([]byte, p.n*f.RowBytes())
				if err := got.Gather(t.Context(), f.Key, a, x); err != nil {
					t.Fatal(err)
				}
				if err := src.Gather(t.Context(), name, b, y); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x, y) {
					t.Errorf("%s of episode %d differs", f.Key, e)
				}
			case robocache.KindText, robocache.KindEvent:
				x, err := got.Text(t.Context(), f.Key, a)
				if err != nil {
					t.Fatal(err)
				}
				y, err := src.Text(t.Context(), name, b)
				if err != nil || !slices.Equal(x, y) {
					t.Errorf("%s of episode %d differs %v", f.Key, e, err)
				}
			case robocache.KindVideo, robocache.KindImage:
				if x, y := hashes(t, got, f.Key, a), shown(t, src, name, p); !slices.Equal(x, y) {
					t.Errorf("%s of episode %d shows other frames", f.Key, e)
				}
			}
		}
	}
}

// healthy checks that the doctor has no finding above info.
func healthy(t testing.TB, path string) {
	t.Helper()
	ds := open(t, path)
	diagnose := ds.Capabilities().Diagnose
	if diagnose == nil {
		t.Fatal("no doctor")
	}
	found, err := diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Severity != robocache.SeverityInfo {
			t.Errorf("%s %s: %s %v", f.Severity, f.Code, f.Message, f.Where)
		}
	}
}

// reference compares a result with its source, both read by LeRobot.
func reference(t *testing.T, result, source string, places []place, more map[string]any) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts LeRobot: some 10 s a dataset")
	}
	py := realdata.Python(t, "lerobot", "torchcodec")
	src := open(t, source)
	starts, at := []int{}, 0
	for e := range src.Info().Episodes {
		starts = append(starts, at)
		at += src.Len(e)
	}
	m := map[string]any{"index": []int{}, "task": nil}
	var index []int
	for _, p := range places {
		for k := range p.n {
			index = append(index, starts[p.episode]+p.from+k)
		}
	}
	m["index"] = index
	for k, v := range more {
		m[k] = v
	}
	b, _ := json.Marshal(m)
	file := filepath.Join(t.TempDir(), "map.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(py, filepath.Join("testdata", "reference.py"), result, source, file)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "HF_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	t.Log(lines[len(lines)-1])
}

// made writes a synthetic dataset in a format. Each image shows the number of its row.
func made(t testing.TB, format string, opt synth.Options, options map[string]string) string {
	t.Helper()
	ds, err := synth.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "src")
	if format == "rlds" {
		dst = filepath.Join(dst, "1.0.0")
	}
	if format == "mcap" {
		dst += ".mcap"
	}
	_, err = convert.Write(context.Background(), ds, format, dst,
		convert.Options{WriteOptions: robocache.WriteOptions{Options: options}})
	if err != nil {
		t.Fatal(err)
	}
	return dst
}
