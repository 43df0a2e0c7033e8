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

// recording writes a replay buffer next to videos, like diffusion_policy's recorder. The rows of
// each episode have their own step.
func recording(
	t *testing.T,
	rows []int,
	step []float64,
	videos map[string]string,
) map[string]string {
	t.Helper()
	var timestamps, ends []byte
	total := 0
	for e, n := range rows {
		for k := range n {
			timestamps = binary.LittleEndian.AppendUint64(
				timestamps,
				math.Float64bits(1.7e9+1000*float64(e)+float64(k)*step[e]),
			)
		}
		total += n
		ends = binary.LittleEndian.AppendUint64(ends, uint64(total))
	}
	array := func(n int, dtype string) string {
		return fmt.Sprintf(
			`{"zarr_format":2,"shape":[%d],"chunks":[%d],"dtype":"%s","compressor":null,"fill_value":0,"order":"C","filters":null}`,
			n,
			n,
			dtype,
		)
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

// TestVideos checks zarr.A7 with four episodes: a video with one image per row, one at another
// rate, one that is too short, and none.
func TestVideos(t *testing.T) {
	dir := realdata.Path(t, "g1_v21/videos/chunk-000")
	mp4s, _ := filepath.Glob(filepath.Join(dir, "*", "episode_00000*.mp4"))
	if len(mp4s) < 3 {
		t.Fatal(mp4s)
	}
	// 221, 277 and 267 images at 30 Hz.
	files := recording(
		t,
		[]int{221, 92, 300, 5},
		[]float64{1. / 30, 0.1, 1. / 30, 0.1},
		map[string]string{
			"videos/0/0.mp4":     mp4s[0],
			"videos/1/0.mp4":     mp4s[1],
			"videos/2/0.mp4":     mp4s[2],
			"videos/9/0.mp4":     mp4s[0],
			"videos/2/wrist.mp4": mp4s[2],
			"videos/notes/0.mp4": mp4s[0],
		},
	)
	d, err := OpenStore(t.Context(), mem(files), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f := d.Info().Feature("observation.camera_0")
	if f == nil || f.Kind != robocache.KindVideo || f.Height != 480 || f.Width != 640 ||
		f.Codec != "av1" ||
		d.Info().Feature("observation.wrist") == nil {
		t.Fatalf("%+v", d.Info().Features)
	}
	rows := []robocache.Row{
		{Episode: 0, Index: 220},
		{Episode: 1, Index: 0},
		{Episode: 1, Index: 1},
		{Episode: 1, Index: 91},
	}
	out := make([]robocache.FrameRef, len(rows))
	if err := d.Frames(t.Context(), f.Key, rows, out); err != nil {
		t.Fatal(err)
	}
	want := []robocache.FrameRef{
		{Path: "videos/0/0.mp4", Ordinal: 220},
		{Path: "videos/1/0.mp4"},
		{Path: "videos/1/0.mp4", Ordinal: 3},
		{Path: "videos/1/0.mp4", Ordinal: 273},
	}
	for i := range want {
		if g := out[i]; g.Path != want[i].Path || g.Ordinal != want[i].Ordinal || g.Missing {
			t.Errorf("row %v: %+v, not %+v", rows[i], g, want[i])
		}
	}
	// 267 frames for 300 rows: no row of the episode is delivered.
	for _, row := range []int{0, 266, 267} {
		err := d.Frames(t.Context(), f.Key, []robocache.Row{{Episode: 2, Index: row}}, out[:1])
		if !errors.Is(err, robocache.ErrMalformed) ||
			!strings.Contains(err.Error(), "267 frames for 300 rows") {
			t.Errorf("row %d: %v", row, err)
		}
	}
	// Without a file the episode lacks the camera. missing="pad" masks its rows.
	lost := []robocache.Row{{Episode: 3}}
	if err := d.Frames(t.Context(), f.Key, lost, out[:1]); !errors.Is(err,
		robocache.ErrMalformed) || !robocache.Lacks(d, 3, f.Key) {
		t.Error(err)
	}
	padded, valid := robocache.PadLacking(d), []uint8{1}
	if err := padded.Frames(t.Context(), f.Key, lost, out[:1]); err != nil || !out[0].Missing {
		t.Error(out[0], err)
	}
	if err := robocache.Valid(t.Context(), padded, f.Key, lost, valid); err != nil ||
		valid[0] != 0 {
		t.Error(valid, err)
	}
	if ts, err := d.Times(t.Context(), 1, f.Key); err != nil || len(ts) != 92 {
		t.Error(len(ts), err)
	}
	if err := d.Gather(t.Context(), f.Key, rows[:1], nil); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	file, err := d.Video().Acquire(t.Context(), want[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	file.Release()
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	codes := map[string]int64{}
	for _, f := range found {
		codes[f.Code] += max(f.Count, 1)
	}
	// wrist has only the file of episode 2, which is too short.
	if err != nil || codes["video-beyond"] != 1 || codes[robocache.LackingStream] != 1+3 ||
		codes["frame-count"] != 2 ||
		codes["video-rate"] != 1 {
		t.Error(codes, err)
	}
}

// TestSpareFrames checks episodes whose video has the rate of the rows but another number of
// frames. A row shows the frame at its time, never the frame with its number.
func TestSpareFrames(t *testing.T) {
	mp4s, _ := filepath.Glob(
		filepath.Join(realdata.Path(t, "g1_v21/videos/chunk-000"), "*", "episode_00000*.mp4"),
	)
	// 221 frames at 30 Hz for 219 rows: one frame is lost after row 99, another at the end.
	files := recording(
		t,
		[]int{219, 219},
		[]float64{1. / 30, 1. / 30},
		map[string]string{"videos/0/0.mp4": mp4s[0], "videos/1/0.mp4": mp4s[0]},
	)
	times := []byte(files["replay_buffer.zarr/data/timestamp/0"])
	for k := range 219 {
		at := 1.7e9 + float64(k)/30 + 0.002*float64(k%3)
		if k >= 100 {
			at += 1. / 30
		}
		binary.LittleEndian.PutUint64(times[8*k:], math.Float64bits(at))
		if k >= 100 {
			at += 0.5 / 30 // half-way between two frames
		}
		binary.LittleEndian.PutUint64(times[8*(219+k):], math.Float64bits(at))
	}
	files["replay_buffer.zarr/data/timestamp/0"] = string(times)
	d, err := OpenStore(t.Context(), mem(files), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows, out := make([]robocache.Row, 219), make([]robocache.FrameRef, 219)
	for k := range rows {
		rows[k].Index = k
	}
	if err := d.Frames(t.Context(), "observation.camera_0", rows, out); err != nil {
		t.Fatal(err)
	}
	for k := range out {
		want := k
		if k >= 100 {
			want++
		}
		if out[k].Ordinal != want {
			t.Fatalf("row %d shows frame %d, want %d", k, out[k].Ordinal, want)
		}
	}
	err = d.Frames(t.Context(), "observation.camera_0", []robocache.Row{{Episode: 1}}, out[:1])
	if !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "none within half a frame") {
		t.Error(err)
	}
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil || len(found) != 2 || found[0].Code != "frame-count" ||
		found[0].Severity != robocache.SeverityWarning ||
		found[1].Code != "frame-count" ||
		found[1].Severity != robocache.SeverityError {
		t.Errorf("%+v %v", found, err)
	}
}

// TestOddVideo checks that the size of the first episode's video does not apply to the others.
func TestOddVideo(t *testing.T) {
	odd, _ := filepath.Glob(
		filepath.Join(realdata.Path(t, "gr00t_picknplace_v20/videos/chunk-000"), "*", "*.mp4"),
	)
	mp4s, _ := filepath.Glob(
		filepath.Join(realdata.Path(t, "g1_v21/videos/chunk-000"), "*", "episode_00000*.mp4"),
	)
	// 416, 277 and 267 frames.
	files := recording(
		t,
		[]int{416, 277, 267},
		[]float64{1. / 20, 1. / 30, 1. / 30},
		map[string]string{
			"videos/0/0.mp4": odd[0],
			"videos/1/0.mp4": mp4s[1],
			"videos/2/0.mp4": mp4s[2],
		},
	)
	d, err := OpenStore(t.Context(), mem(files), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if f := d.Info().
		Feature("observation.camera_0"); f.Height != 480 || f.Width != 640 ||
		f.Codec != "av1" {
		t.Errorf("%+v", f)
	}
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil || len(found) != 1 || found[0].Code != "bad-video" ||
		!strings.Contains(found[0].Message, "480×640") {
		t.Errorf("%+v %v", found, err)
	}
}

// TestVideosBeside checks that the videos are found from the buffer's own address too. A file that
// is not a video does not affect other streams.
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
	for _, uri := range []string{
		root,
		filepath.Join(root, bufferFolder),
		filepath.Join(root, bufferFolder) + "/",
	} {
		if ok, err := Detect(t.Context(), uri, robocache.OpenOptions{}); !ok || err != nil {
			t.Error(uri, ok, err)
		}
		d := open(t, uri, robocache.OpenOptions{})
		if d.Info().Episodes != 1 || len(d.Info().Findings) != 1 ||
			d.Info().Findings[0].Code != "bad-video" ||
			d.Info().Feature("observation.camera_0") != nil {
			t.Errorf("%s: %+v", uri, d.Info())
		}
		if err := d.Info().Withheld("observation.camera_0"); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Errorf("%s: asking for the camera: %v, want malformed", uri, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVideoWithoutRate checks that a wrong number of images without a rate causes a finding with
// both numbers.
func TestVideoWithoutRate(t *testing.T) {
	mp4s, _ := filepath.Glob(
		filepath.Join(realdata.Path(t, "g1_v21/videos/chunk-000"), "*", "episode_00000*.mp4"),
	)
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
		if f.Code == "frame-count" {
			if !strings.Contains(f.Message, "221 frames for 92 rows") ||
				!strings.Contains(f.Message, "rate") {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("no finding of the video: %+v", found)
}
