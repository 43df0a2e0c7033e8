package zarr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// recording makes a replay buffer beside videos as diffusion_policy's recorder leaves them: rows of each episode at their step.
func recording(t *testing.T, rows []int, step []float64, videos map[string]string) map[string]string {
	t.Helper()
	var timestamps, ends []byte
	total := 0
	for e, n := range rows {
		for k := range n {
			timestamps = binary.LittleEndian.AppendUint64(timestamps, math.Float64bits(1.7e9+1000*float64(e)+float64(k)*step[e]))
		}
		total += n
		ends = binary.LittleEndian.AppendUint64(ends, uint64(total))
	}
	array := func(n int, dtype string) string {
		return fmt.Sprintf(`{"zarr_format":2,"shape":[%d],"chunks":[%d],"dtype":"%s","compressor":null,"fill_value":0,"order":"C","filters":null}`, n, n, dtype)
	}
	files := map[string]string{
		"replay_buffer.zarr/.zgroup":                    `{"zarr_format":2}`,
		"replay_buffer.zarr/data/timestamp/.zarray":     array(total, "<f8"),
		"replay_buffer.zarr/data/timestamp/0":           string(timestamps),
		"replay_buffer.zarr/data/stage/.zarray":         array(total, "<i8"),
		"replay_buffer.zarr/meta/episode_ends/.zarray":  array(len(rows), "<i8"),
		"replay_buffer.zarr/meta/episode_ends/0":        string(ends),
		"replay_buffer.zarr/data/observation_x/.zarray": array(total, "<f4"),
	}
	for name, from := range videos {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}

// TestVideos: A7: an episode whose video has an image a row, one at another rate, one too short, one without.
func TestVideos(t *testing.T) {
	dir := realdata.Path(t, "g1_v21/videos/chunk-000")
	mp4s, _ := filepath.Glob(filepath.Join(dir, "*", "episode_00000*.mp4"))
	if len(mp4s) < 3 {
		t.Fatal(mp4s)
	}
	// 221, 277 and 267 images at 30 Hz.
	files := recording(t, []int{221, 92, 300, 5}, []float64{1. / 30, 0.1, 1. / 30, 0.1}, map[string]string{
		"videos/0/0.mp4": mp4s[0], "videos/1/0.mp4": mp4s[1], "videos/2/0.mp4": mp4s[2], "videos/9/0.mp4": mp4s[0], "videos/2/wrist.mp4": mp4s[2], "videos/notes/0.mp4": mp4s[0],
	})
	d, err := OpenStore(t.Context(), mem(files), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f := d.Info().Feature("observation.camera_0")
	if f == nil || f.Kind != robocache.KindVideo || f.Height != 480 || f.Width != 640 || f.Codec != "av1" || d.Info().Feature("observation.wrist") == nil {
		t.Fatalf("%+v", d.Info().Features)
	}
	rows := []robocache.Row{{Episode: 0, Index: 220}, {Episode: 1, Index: 0}, {Episode: 1, Index: 1}, {Episode: 1, Index: 91}, {Episode: 2, Index: 266}, {Episode: 2, Index: 267}, {Episode: 3, Index: 0}}
	out := make([]robocache.FrameRef, len(rows))
	if err := d.Frames(t.Context(), f.Key, rows, out); err != nil {
		t.Fatal(err)
	}
	want := []robocache.FrameRef{{Path: "videos/0/0.mp4", Ordinal: 220}, {Path: "videos/1/0.mp4"}, {Path: "videos/1/0.mp4", Ordinal: 3}, {Path: "videos/1/0.mp4", Ordinal: 273}, {Path: "videos/2/0.mp4", Ordinal: 266}, {Missing: true}, {Missing: true}}
	valid := make([]uint8, len(rows))
	if err := d.Valid(t.Context(), f.Key, rows, valid); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if g := out[i]; g.Path != want[i].Path || g.Ordinal != want[i].Ordinal || g.Missing != want[i].Missing || (valid[i] == 1) == g.Missing {
			t.Errorf("row %v: %+v, valid %d, not %+v", rows[i], g, valid[i], want[i])
		}
	}
	if ts, err := d.Times(t.Context(), 1, f.Key); err != nil || len(ts) != 92 {
		t.Error(len(ts), err)
	}
	if err := d.Gather(t.Context(), f.Key, rows[:1], nil); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	file, err := d.Video().Acquire(t.Context(), out[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	file.Release()
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	codes := map[string]int64{}
	for _, f := range found {
		codes[f.Code] += f.Count
	}
	if err != nil || codes["video-beyond"] != 1 || codes["missing-file"] != 1+3 || codes["frame-count"] != 33+33 || codes["video-rate"] != 1 {
		t.Error(codes, err)
	}
}

// TestVideosBeside: the buffer's own address finds them too; a file that is no video harms the other streams in nothing.
func TestVideosBeside(t *testing.T) {
	root := t.TempDir()
	files := recording(t, []int{5}, []float64{0.1}, nil)
	files["videos/0/0.mp4"] = "no video"
	for name, b := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, uri := range []string{root, filepath.Join(root, bufferFolder), filepath.Join(root, bufferFolder) + "/"} {
		if ok, err := Detect(t.Context(), uri, robocache.OpenOptions{}); !ok || err != nil {
			t.Error(uri, ok, err)
		}
		d := open(t, uri, robocache.OpenOptions{})
		if d.Info().Episodes != 1 || len(d.Info().Findings) != 1 || d.Info().Findings[0].Code != "bad-video" || d.Info().Feature("observation.camera_0") != nil {
			t.Errorf("%s: %+v", uri, d.Info())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVideoWithoutRate: another number of images than rows, and no rate: the finding has both numbers.
func TestVideoWithoutRate(t *testing.T) {
	mp4s, _ := filepath.Glob(filepath.Join(realdata.Path(t, "g1_v21/videos/chunk-000"), "*", "episode_00000*.mp4"))
	files := recording(t, []int{92}, []float64{0.1}, map[string]string{"videos/0/0.mp4": mp4s[0]})
	delete(files, "replay_buffer.zarr/data/timestamp/.zarray")
	delete(files, "replay_buffer.zarr/data/timestamp/0")
	d, err := OpenStore(t.Context(), mem(files), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Code == "bad-video" {
			if !strings.Contains(f.Message, "221 images for 92 rows") || !strings.Contains(f.Message, "rate") {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("no finding of the video: %+v", found)
}
