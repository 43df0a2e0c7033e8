package rlds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// judge returns the Python interpreter with tensorflow-datasets, or skips the test.
func judge(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: tensorflow takes its time to start (-short)")
	}
	py := tfdsPython(t)
	if py == "" {
		t.Skip(
			"skipped: no Python with tensorflow-datasets (scripts/tests/venv-tfds.sh makes " +
				".venv-tfds)",
		)
	}
	return py
}

func tfdsPython(t testing.TB) string {
	py := os.Getenv("ROBOCACHE_TFDS_PYTHON")
	if py == "" {
		py = filepath.Join(realdata.Root(t), ".venv-tfds", "bin", "python")
	}
	if _, err := os.Stat(py); err != nil {
		return ""
	}
	return py
}

func python(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.Command(
		judge(t),
		append(
			[]string{filepath.Join(realdata.Root(t), "format", "rlds", "testdata", "tfds.py")},
			args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tensorflow-datasets: %v\n%s", err, out[max(0, len(out)-4000):])
	}
}

var tfdsOnce struct {
	sync.Once
	dir string
}

// tfdsSets returns a folder of datasets that tensorflow-datasets wrote, with what it reads from
// them.
func tfdsSets(t testing.TB) string {
	t.Helper()
	judge(t)
	tfdsOnce.Do(func() {
		dir, err := os.MkdirTemp("", "tfds")
		if err != nil {
			t.Fatal(err)
		}
		python(t, "write", dir)
		tfdsOnce.dir = dir
	})
	if tfdsOnce.dir == "" {
		t.Fatal("tensorflow-datasets wrote nothing")
	}
	return tfdsOnce.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(tfdsOnce.dir)
	os.Exit(code)
}

type tfdsValue struct {
	DType  string
	Counts []int
	Inner  [][]int64
	Shape  []int
	SHA256 string `json:"sha256"`
	Texts  []any
}

type tfdsDump struct {
	Name   string
	Splits map[string][]struct {
		Steps    int
		Features map[string]tfdsValue
	}
}

func readDump(t testing.TB, path string) tfdsDump {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d tfdsDump
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEqualsTFDS checks that every kind of feature that tensorflow-datasets writes is read as it
// reads it.
func TestEqualsTFDS(t *testing.T) {
	root := tfdsSets(t)
	for _, name := range []string{"kinds", "shards", "bare"} {
		want := readDump(t, filepath.Join(root, name+".json"))
		for split, episodes := range want.Splits {
			d := mustOpen(
				t,
				filepath.Join(root, name),
				robocache.OpenOptions{
					HZ:      robocache.Rate{Num: 10, Den: 1},
					Options: map[string]string{"split": split},
				},
			)
			if d.Info().Episodes != len(episodes) || len(d.Info().Findings) != 0 {
				t.Fatalf("%s: %+v", name, d.Info())
			}
			for e, ep := range episodes {
				if d.Len(e) != ep.Steps {
					t.Fatalf("%s episode %d: %d steps, expected %d", name, e, d.Len(e), ep.Steps)
				}
				for key, v := range ep.Features {
					compareTFDS(t, d, e, key, v)
				}
			}
		}
	}
}

func compareTFDS(t *testing.T, d *Dataset, e int, key string, want tfdsValue) {
	t.Helper()
	f := d.Info().Feature(key)
	if f == nil {
		t.Errorf("no stream %s", key)
		return
	}
	rows := rowsOf(d, e)
	if strings.HasPrefix(key, "episode_metadata.") {
		rows = rows[:min(1, len(rows))]
		if len(rows) == 0 {
			return
		}
	}
	switch {
	case f.Kind == robocache.KindText:
		got, err := d.Text(t.Context(), key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i] != want.Texts[i] {
				t.Errorf("episode %d %s: %q, expected %q", e, key, got[i], want.Texts[i])
			}
		}
	case f.Kind == robocache.KindEvent:
		got, err := d.Text(t.Context(), key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			var list []any
			if err := json.Unmarshal([]byte(got[i]), &list); err != nil ||
				!reflect.DeepEqual(list, want.Texts[i]) {
				t.Errorf("episode %d %s: %s, expected %v", e, key, got[i], want.Texts[i])
			}
		}
	case f.Kind == robocache.KindImage:
		if jpeg(t, d, key, rows) {
			return // decoders differ in the last bits
		}
		if got := hash(pixels(t, d, f, rows)); got != want.SHA256 ||
			f.DType.String() != want.DType {
			t.Errorf("episode %d %s: pixels differ", e, key)
		}
	case f.Ragged():
		data, counts, err := d.GatherRagged(t.Context(), key, rows)
		if err != nil {
			t.Fatal(key, err)
		}
		if hash(data) != want.SHA256 || !reflect.DeepEqual(counts, want.Counts) ||
			f.DType.String() != want.DType {
			t.Errorf("episode %d %s: %v, expected %v", e, key, counts, want.Counts)
		}
		if want.Inner != nil && d.Info().Feature(key+".lengths") != nil {
			data, counts, err := d.GatherRagged(t.Context(), key+".lengths", rows)
			if err != nil {
				t.Fatal(err)
			}
			at := 0
			for i, n := range counts {
				var got []int64
				for range n {
					got = append(got, int64(binary.LittleEndian.Uint64(data[at:])))
					at += 8
				}
				if len(got) != len(want.Inner[i]) ||
					len(got) > 0 && !reflect.DeepEqual(got, want.Inner[i]) {
					t.Errorf(
						"episode %d %s: inner lengths %v, expected %v",
						e,
						key,
						got,
						want.Inner[i],
					)
				}
			}
		}
	default:
		b := make([]byte, len(rows)*f.RowBytes())
		if err := d.Gather(t.Context(), key, rows, b); err != nil {
			t.Fatal(key, err)
		}
		if hash(b) != want.SHA256 || f.DType.String() != want.DType {
			t.Errorf("episode %d %s %s: values differ from %s", e, key, f.DType, want.DType)
		}
	}
}

func jpeg(t *testing.T, d *Dataset, key string, rows []robocache.Row) bool {
	t.Helper()
	refs := make([]robocache.FrameRef, 1)
	if len(rows) == 0 || d.Frames(t.Context(), key, rows[:1], refs) != nil {
		t.Error(key, "has no images")
		return true
	}
	return len(refs[0].Encoded) > 2 && refs[0].Encoded[0] == 0xff
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// pixels decodes PNG images to the declared channels.
func pixels(t *testing.T, d *Dataset, f *robocache.Feature, rows []robocache.Row) []byte {
	t.Helper()
	refs := make([]robocache.FrameRef, len(rows))
	if err := d.Frames(t.Context(), f.Key, rows, refs); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, r := range refs {
		if r.Raw != nil {
			for y := range r.Raw.Height {
				out = append(out, r.Raw.Pix[y*r.Raw.Stride:][:r.Raw.Width*4]...)
			}
			continue
		}
		m, err := png.Decode(bytes.NewReader(r.Encoded))
		if err != nil {
			t.Fatal(err)
		}
		b := m.Bounds()
		for y := b.Min.Y; y < b.Max.Y; y++ {
			for x := b.Min.X; x < b.Max.X; x++ {
				switch p := m.(type) {
				case *image.Gray16:
					out = binary.LittleEndian.AppendUint16(out, p.Gray16At(x, y).Y)
				case *image.Gray:
					out = append(out, p.GrayAt(x, y).Y)
				case *image.NRGBA:
					c := p.NRGBAAt(x, y)
					out = append(out, c.R, c.G, c.B, c.A)
				case *image.RGBA:
					c := p.RGBAAt(x, y)
					out = append(out, c.R, c.G, c.B)
				default:
					t.Fatalf("%T", m)
				}
			}
		}
	}
	return out
}

// TestFixedSequences checks sequences of fixed length. tensorflow-datasets writes them but cannot
// read them inside steps, so its input is the expected value.
func TestFixedSequences(t *testing.T) {
	root := tfdsSets(t)
	b, err := os.ReadFile(filepath.Join(root, "fixed.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Four, Pairs, Grid string
		Counts            []int `json:"pairs_counts"`
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	d := mustOpen(
		t,
		filepath.Join(root, "fixed"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
	)
	rows := rowsOf(d, 0)
	for key, sum := range map[string]string{"four": want.Four, "grid": want.Grid} {
		f := d.Info().Feature(key)
		b := make([]byte, len(rows)*f.RowBytes())
		if err := d.Gather(t.Context(), key, rows, b); err != nil || hash(b) != sum {
			t.Errorf("%s %v: %v", key, f.Shape, err)
		}
	}
	data, counts, err := d.GatherRagged(t.Context(), "pairs", rows)
	if err != nil || hash(data) != want.Pairs || !reflect.DeepEqual(counts, want.Counts) {
		t.Errorf("pairs: %v %v", counts, err)
	}
}

// judgeReads checks that tfds.builder_from_directory opens the folder without code and reads the
// same values.
func judgeReads(t *testing.T, dir string) {
	t.Helper()
	judge(t)
	to := filepath.Join(t.TempDir(), "dump.json")
	python(t, "read", dir, to)
	want := readDump(t, to)
	for split, episodes := range want.Splits {
		d := mustOpen(
			t,
			dir,
			robocache.OpenOptions{
				HZ:      robocache.Rate{Num: 10, Den: 1},
				Options: map[string]string{"split": split},
			},
		)
		if d.Info().Episodes != len(episodes) {
			t.Fatalf("%s: %d episodes, expected %d", split, d.Info().Episodes, len(episodes))
		}
		for e, ep := range episodes {
			if d.Len(e) != ep.Steps {
				t.Fatalf("episode %d: %d steps, expected %d", e, d.Len(e), ep.Steps)
			}
			if len(ep.Features) == 0 {
				t.Error("no features")
			}
			for key, v := range ep.Features {
				compareTFDS(t, d, e, key, v)
			}
			for _, f := range d.Info().Features {
				if _, ok := ep.Features[f.Key]; !ok && ep.Steps > 0 &&
					!strings.HasSuffix(f.Key, ".lengths") {
					t.Errorf("tensorflow-datasets does not see %s", f.Key)
				}
			}
		}
	}
}
