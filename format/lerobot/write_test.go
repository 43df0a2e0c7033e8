package lerobot

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/store/tests/storetest"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// writerFeatures has every type and shape that a LeRobot column can have.
func writerFeatures() []robocache.Feature {
	num := func(key string, d robocache.DType, shape ...int) robocache.Feature {
		return robocache.Feature{Key: key, Kind: robocache.KindNumeric, DType: d, Shape: shape}
	}
	return []robocache.Feature{
		{
			Key:   "observation.state",
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{3},
			Names: json.RawMessage(`["a","b","c"]`),
		},
		num(
			"f64",
			robocache.Float64,
			1,
		),
		num("f64v", robocache.Float64, 2),
		num("f16", robocache.Float16, 1),
		num("f16v", robocache.Float16, 3),
		num(
			"i8",
			robocache.Int8,
			1,
		),
		num("i16v", robocache.Int16, 3),
		num("i32", robocache.Int32, 1),
		num("i64", robocache.Int64, 2),
		num(
			"u8",
			robocache.Uint8,
			1,
		),
		num("u16", robocache.Uint16, 4),
		num("u32", robocache.Uint32, 1),
		num("u64", robocache.Uint64, 1),
		num("b", robocache.Bool, 1),
		num("bv", robocache.Bool, 2),
		num(
			"m2",
			robocache.Float32,
			2,
			3,
		),
		num("m3", robocache.Float32, 2, 3, 4),
		num("m4", robocache.Float64, 1, 2, 3, 4),
		num("m5", robocache.Int32, 2, 1, 2, 1, 2),
		{Key: "text", Kind: robocache.KindText, DType: robocache.String, Shape: []int{1}},
		{
			Key:   "language_persistent",
			Kind:  robocache.KindEvent,
			DType: robocache.JSON,
			Shape: []int{1},
		},
		{Key: "language_events", Kind: robocache.KindEvent, DType: robocache.JSON, Shape: []int{1}},
		{
			Key:      "photo",
			Kind:     robocache.KindImage,
			DType:    robocache.Uint8,
			Shape:    []int{16, 20, 3},
			Names:    json.RawMessage(`["height","width","channels"]`),
			Height:   16,
			Width:    20,
			Channels: 3,
		},
	}
}

func still(t testing.TB, seed int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 20, 16))
	for y := range 16 {
		for x := range 20 {
			img.Set(x, y, color.RGBA{uint8(x*12 + seed), uint8(y * 15), uint8(x ^ y), 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func writerEpisode(t testing.TB, feats []robocache.Feature, e, n int) write.EpisodeData {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(e), 7))
	ep := write.EpisodeData{
		Length:  n,
		Columns: map[string][]byte{},
		Text:    map[string][]string{},
		Images:  map[string][][]byte{},
	}
	for k := range n {
		ep.Tasks = append(ep.Tasks, fmt.Sprintf("tâsk %d", (e+k/3)%4))
	}
	for _, f := range feats {
		switch {
		case f.Kind == robocache.KindImage:
			for k := range n {
				ep.Images[f.Key] = append(ep.Images[f.Key], still(t, e+k))
			}
		case f.Kind == robocache.KindText:
			for k := range n {
				ep.Text[f.Key] = append(ep.Text[f.Key], strings.Repeat("é", k%4)+fmt.Sprint(k))
			}
		case f.Key == "language_persistent":
			for range n {
				ep.Text[f.Key] = append(
					ep.Text[f.Key],
					`[{"role":"user","content":"go","style":"plan","timestamp":0.5,"camera":null,"tool_calls":null},{"role":"assistant","content":"x","style":"vqa","timestamp":1,"camera":"photo","tool_calls":[{"a":1},{"b":[2]}]}]`,
				)
			}
		case f.Key == "language_events":
			for k := range n {
				s := "[]"
				if k == 2 {
					s = `[{"role":"user","content":"what?","style":"vqa","camera":"photo","tool_calls":[]}]`
				}
				ep.Text[f.Key] = append(ep.Text[f.Key], s)
			}
		default:
			var b []byte
			for range n * f.Elements() {
				v := rng.NormFloat64() * 50
				switch f.DType {
				case robocache.Float64:
					b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
				case robocache.Float32:
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
				case robocache.Float16:
					b = binary.LittleEndian.AppendUint16(b, uint16(0x3c00+rng.IntN(2000)))
				case robocache.Bool:
					b = append(b, byte(rng.IntN(2)))
				default:
					b = append(
						b,
						binary.LittleEndian.AppendUint64(nil, rng.Uint64())[:f.DType.Size()]...)
				}
			}
			ep.Columns[f.Key] = b
		}
	}
	return ep
}

func writeAll(
	t testing.TB,
	dst store.Writable,
	cfg write.Config,
	lengths ...int,
) []write.EpisodeData {
	t.Helper()
	w, err := write.NewWriter(t.Context(), dst, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out []write.EpisodeData
	for e, n := range lengths {
		ep := writerEpisode(t, cfg.Features, e, n)
		out = append(out, ep)
		if err := w.AddEpisode(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWriteRoundTrip checks that every type and shape keeps its bits, over several files, and that
// stats.json equals the statistics of the rows.
func TestWriteRoundTrip(t *testing.T) {
	mem := storetest.NewMem("write-round-trip")
	cfg := write.Config{
		FPS:           robocache.Rate{Num: 30, Den: 1},
		Robot:         "robot",
		Features:      writerFeatures(),
		DataFileBytes: 60_000,
		ChunksSize:    2,
	}
	eps := writeAll(t, mem, cfg, 5, 1, 12, 7, 3, 30, 2, 9)
	ds, err := OpenStore(t.Context(), mem, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if ds.About.Episodes != len(eps) || ds.About.Robot != "robot" {
		t.Fatalf("%+v", ds.About)
	}
	for _, f := range ds.About.Findings {
		if f.Severity != robocache.SeverityInfo {
			t.Errorf("opening finds %+v", f)
		}
	}
	files, _ := mem.List(t.Context(), "data/")
	if len(files) < 3 || files[2].Name != "data/chunk-001/file-000.parquet" {
		t.Errorf("rotation: %v", files)
	}
	whole := map[string][]byte{}
	for e, ep := range eps {
		rows := make([]robocache.Row, ep.Length)
		for k := range rows {
			rows[k] = robocache.Row{Episode: e, Index: k}
		}
		for _, f := range cfg.Features {
			switch f.Kind {
			case robocache.KindNumeric:
				got := make([]byte, len(ep.Columns[f.Key]))
				if err := ds.Gather(t.Context(), f.Key, rows, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, ep.Columns[f.Key]) {
					t.Errorf("episode %d: %s differs", e, f.Key)
				}
				whole[f.Key] = append(whole[f.Key], got...)
			case robocache.KindImage:
				refs := make([]robocache.FrameRef, len(rows))
				if err := ds.Frames(t.Context(), f.Key, rows, refs); err != nil {
					t.Fatal(err)
				}
				for k := range refs {
					if !bytes.Equal(refs[k].Encoded, ep.Images[f.Key][k]) {
						t.Errorf("episode %d row %d: %s differs", e, k, f.Key)
					}
				}
			case robocache.KindText:
				got, err := ds.Text(t.Context(), f.Key, rows)
				if err != nil || strings.Join(got, "\x00") != strings.Join(ep.Text[f.Key], "\x00") {
					t.Errorf("episode %d: %s %q %v", e, f.Key, got, err)
				}
			}
		}
		got, err := ds.Text(t.Context(), "task", rows)
		if err != nil || strings.Join(got, "\x00") != strings.Join(ep.Tasks, "\x00") {
			t.Errorf("episode %d: tasks %q %v", e, got, err)
		}
	}
	brought, err := ds.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cfg.Features {
		if f.Kind != robocache.KindNumeric {
			continue
		}
		want, _, err := stats.NumericBytes(t.Context(), f.DType, f.Shape, whole[f.Key], 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		got := brought[f.Key]
		for _, n := range stats.Names {
			a, b := stats.Vector(want, n), stats.Vector(got, n)
			for i := range a {
				if math.Abs(a[i]-b[i]) > 1e-12*math.Abs(a[i]) {
					t.Errorf("%s %s: %v, want %v", f.Key, n, b, a)
					break
				}
			}
		}
		if got.Count != want.Count {
			t.Errorf("%s: count %d, want %d", f.Key, got.Count, want.Count)
		}
	}
	if brought["photo"] == nil || brought["text"] != nil {
		t.Error("statistics of a frame and of a text")
	}
}

// TestWriteRefuses checks that input that lerobot would misread is rejected before a byte is
// written, and that Abort leaves nothing.
func TestWriteRefuses(t *testing.T) {
	feats := writerFeatures()
	cfg := write.Config{FPS: robocache.Rate{Num: 30, Den: 1}, Features: feats}
	for name, spoil := range map[string]func(*write.EpisodeData){
		"no rows":        func(e *write.EpisodeData) { e.Length = 0 },
		"short column":   func(e *write.EpisodeData) { e.Columns["f64"] = e.Columns["f64"][8:] },
		"missing column": func(e *write.EpisodeData) { delete(e.Columns, "m3") },
		"short text":     func(e *write.EpisodeData) { e.Text["text"] = e.Text["text"][1:] },
		"no frame":       func(e *write.EpisodeData) { delete(e.Images, "photo") },
		"no task":        func(e *write.EpisodeData) { e.Tasks = nil },
	} {
		mem := storetest.NewMem("refuses-" + name)
		w, err := write.NewWriter(t.Context(), mem, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.AddEpisode(t.Context(), writerEpisode(t, feats, 0, 4)); err != nil {
			t.Fatal(err)
		}
		ep := writerEpisode(t, feats, 1, 4)
		spoil(&ep)
		if err := w.AddEpisode(t.Context(), ep); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
		// A rejected episode does not affect the writer.
		if err := w.AddEpisode(t.Context(), writerEpisode(t, feats, 1, 4)); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
		w.Abort()
		if files, _ := mem.List(t.Context(), ""); len(files) > 0 {
			t.Errorf("%s: Abort left %v", name, files)
		}
	}
	for name, f := range map[string]robocache.Feature{
		"slash": {
			Key:   "a/b",
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{1},
		},
		"reserved": {
			Key:   "index",
			Kind:  robocache.KindNumeric,
			DType: robocache.Int64,
			Shape: []int{1},
		},
		"bfloat16": {
			Key:   "x",
			Kind:  robocache.KindNumeric,
			DType: robocache.BFloat16,
			Shape: []int{1},
		},
		"6 axes": {
			Key:   "x",
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{1, 1, 1, 1, 1, 2},
		},
		"no axis": {
			Key:   "x",
			Kind:  robocache.KindNumeric,
			DType: robocache.Float32,
			Shape: []int{0},
		},
	} {
		if err := write.CanWrite(f); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	mem := storetest.NewMem("refuses-empty")
	w, err := write.NewWriter(t.Context(), mem, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a dataset without episodes: %v", err)
	}
	w.Abort()
	writeAll(t, mem, cfg, 3)
	if _, err := write.NewWriter(t.Context(), mem, cfg); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("over a dataset: %v", err)
	}
}

// TestWritePeer checks that lerobot and the plain datasets library open every type that is written.
func TestWritePeer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts LeRobot: some 8 s")
	}
	py := realdata.Python(t, "lerobot")
	dst := filepath.Join(t.TempDir(), "out")
	s, err := store.OpenWritable(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	feats := writerFeatures()
	for i := range feats {
		if feats[i].DType == robocache.Uint64 {
			// torch cannot make uint64 tensors from Python numbers above 2^63
			feats[i].DType = robocache.Int64
		}
	}
	eps := writeAll(
		t,
		s,
		write.Config{
			FPS:           robocache.Rate{Num: 2997, Den: 100},
			Features:      feats,
			DataFileBytes: 60_000,
		},
		5,
		1,
		12,
		7,
	)
	type item struct {
		Row  int
		Hex  map[string]string
		Text string
		Task string
	}
	var items []item
	row := 0
	for _, ep := range eps {
		for k := range ep.Length {
			it := item{
				Row:  row,
				Hex:  map[string]string{},
				Text: ep.Text["text"][k],
				Task: ep.Tasks[k],
			}
			for _, f := range feats {
				if n := f.RowBytes(); n > 0 {
					it.Hex[f.Key] = fmt.Sprintf("%x", ep.Columns[f.Key][k*n:(k+1)*n])
				}
			}
			items = append(items, it)
			row++
		}
	}
	raw, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "items.json")
	if err := os.WriteFile(list, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(py, "-c", `
import sys, json, numpy as np, datasets
from lerobot.datasets.lerobot_dataset import LeRobotDataset
ds = LeRobotDataset("x/y", root=sys.argv[1])
items = json.load(open(sys.argv[2]))
assert len(ds) == len(items), len(ds)
table = ds.hf_dataset.with_format("arrow")[:]
for it in items:
    got = ds[it["Row"]]
    assert got["task"] == it["Task"] and got["text"] == it["Text"], (got["task"], it)
    for key, hexed in it["Hex"].items():
        f = ds.meta.features[key]
        want = np.frombuffer(bytes.fromhex(hexed), dtype=f["dtype"]).reshape(f["shape"])
        stored = np.asarray(table.column(key)[it["Row"]].as_py(), dtype=f["dtype"]).reshape(f["shape"])
        assert np.array_equal(stored, want), (key, stored, want)
    assert got["photo"].shape == (3, 16, 20)
assert ds[2]["language_events"][0]["content"] == "what?" and ds[0]["language_persistent"][1]["tool_calls"] == [{"a": 1}, {"b": [2]}]
assert ds.meta.stats["photo"]["mean"].shape == (3, 1, 1)
plain = datasets.load_dataset("parquet", data_files=sys.argv[1] + "/data/*/*.parquet", cache_dir=sys.argv[2] + ".cache")["train"]
assert plain.features == ds.hf_dataset.features, (plain.features, ds.hf_dataset.features)
`, dst, list)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "HF_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}

// TestWriteCancelled checks that a canceled context is an error, after which the writer can only be
// aborted.
func TestWriteCancelled(t *testing.T) {
	mem := storetest.NewMem("write-cancelled")
	cfg := write.Config{FPS: robocache.Rate{Num: 30, Den: 1}, Features: writerFeatures()}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := write.NewWriter(ctx, mem, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddEpisode(ctx, writerEpisode(t, cfg.Features, 0, 4)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.AddEpisode(ctx, writerEpisode(t, cfg.Features, 1, 4)); !errors.Is(err,
		context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := w.Close(t.Context()); err == nil {
		t.Error("Close after a failed episode")
	}
	w.Abort()
	if files, _ := mem.List(t.Context(), ""); len(files) > 0 {
		t.Errorf("left %v", files)
	}
}

// TestWriterFindingsAreCounted checks that a fault of many episodes is one finding with a count.
func TestWriterFindingsAreCounted(t *testing.T) {
	mem := storetest.NewMem("counted-findings")
	defer mem.Drop()
	w, err := write.NewWriter(
		t.Context(),
		mem,
		write.Config{
			FPS: robocache.Rate{Num: 10, Den: 1},
			Features: []robocache.Feature{
				{Key: "x", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{1}},
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	nan := []byte{0, 0, 0xc0, 0x7f, 0, 0, 0xc0, 0x7f, 0, 0, 0, 0}
	for range 5 {
		if err := w.AddEpisode(t.Context(), write.EpisodeData{
			Length: 3, Tasks: []string{"t"},
			Columns: map[string][]byte{"x": nan},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if f := w.Findings(); len(f) != 1 || f[0].Count != 10 || f[0].Code != "non-finite-values" {
		t.Errorf("%+v", f)
	}
}
