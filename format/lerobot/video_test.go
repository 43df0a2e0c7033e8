package lerobot

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func frames(t *testing.T, d *Dataset, key string, rows []robocache.Row) []robocache.FrameRef {
	t.Helper()
	out := make([]robocache.FrameRef, len(rows))
	if err := d.Frames(context.Background(), key, rows, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// noFrames asserts that Frames fails for each row of an episode, and returns the error.
func noFrames(t *testing.T, d *Dataset, key string, episode int) (err error) {
	t.Helper()
	for k := range d.Len(episode) {
		err = d.Frames(
			context.Background(),
			key,
			[]robocache.Row{{Episode: episode, Index: k}},
			make([]robocache.FrameRef, 1),
		)
		wantError(t, err, robocache.ErrMalformed, "episode", key)
	}
	return err
}

// ordinals asserts that each row of an episode has the frame first + step·row.
func ordinals(t *testing.T, d *Dataset, key string, episode, first, step int) {
	t.Helper()
	for k, r := range frames(t, d, key, rowsOf(d, episode)) {
		if r.Missing || r.Ordinal != first+k*step {
			t.Fatalf("episode %d row %d: %+v", episode, k, r)
		}
	}
}

// TestFrameCountV2 checks that no row of an episode is delivered if its video is shorter than its
// table. If the video is longer, frames are found by time (lerobot.L5).
func TestFrameCountV2(t *testing.T) {
	dir := copySet(t, "g1_v21")
	const key = "observation.images.cam_high"
	at := func(name string) string { return filepath.Join(dir, "videos/chunk-000", key, name) }
	for _, mv := range [][2]string{
		{"episode_000000.mp4", "tmp"},
		{"episode_000001.mp4", "episode_000000.mp4"},
		{"tmp", "episode_000001.mp4"},
	} {
		if err := os.Rename(at(mv[0]), at(mv[1])); err != nil {
			t.Fatal(err)
		}
	}
	d := mustOpen(t, dir)
	if err := noFrames(t, d, key, 1); !strings.Contains(err.Error(), "221 frames for 277 rows") ||
		!strings.Contains(err.Error(), "row 221") {
		t.Error(err)
	}
	ordinals(t, d, key, 0, 0, 1)
	wantFrameCounts(t, d, 1, "episode_000000.mp4", "episode_000001.mp4")
}

// wantFrameCounts checks that doctor reports an error for some episodes and a warning for some
// files, each with its location and a hint.
func wantFrameCounts(t *testing.T, d *Dataset, episodes int, files ...string) {
	t.Helper()
	found, err := d.Diagnose(context.Background(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	errors, warnings := 0, ""
	for _, f := range found {
		switch {
		case f.Code != "frame-count":
		case f.Severity == robocache.SeverityWarning:
			warnings += " " + filepath.Base(f.Where["file"].(string))
		case f.Where["episode"] == nil || f.Where["stream"] == nil ||
			f.Where["file"] == nil || f.Hint == "":
			t.Error("no place or hint:", f)
		default:
			errors++
		}
	}
	for _, f := range files {
		if !strings.Contains(warnings, f) {
			t.Errorf("no warning for %s: %s", f, warnings)
		}
	}
	if errors != episodes {
		t.Errorf("%d episodes found, not %d: %v", errors, episodes, found)
	}
}

type camEpisode struct {
	synthEpisode
	Chunk int64   `parquet:"videos/cam/chunk_index"`
	File  int64   `parquet:"videos/cam/file_index"`
	From  float64 `parquet:"videos/cam/from_timestamp"`
	To    float64 `parquet:"videos/cam/to_timestamp"`
}

// camSet is a synthetic dataset over the 1254 frames of the drifting file. from holds the declared
// starts.
func camSet(t *testing.T, lengths []int, from []float64) *Dataset {
	t.Helper()
	return timedCamSet(t, lengths, from, func(r dataRow) float64 { return float64(r.Frame) / 30 })
}

// timedCamSet is camSet with other timestamps.
func timedCamSet(
	t *testing.T,
	lengths []int,
	from []float64,
	seconds func(dataRow) float64,
) *Dataset {
	t.Helper()
	mp4 := filepath.Join(
		realData(t, "g1_h264_v30_bigdrift"),
		"videos/observation.images.cam_high/chunk-000/file-000.mp4",
	)
	s := newSynth(lengths...)
	s.fps = "30"
	for i := range s.rows {
		s.rows[i].Time = float32(seconds(s.rows[i]))
	}
	s.features = `"cam": {"dtype": "video", "shape": [120, 160, 3], "names": ["height", "width", "channels"]},`
	dir := s.write(t)
	var rows []camEpisode
	for i, e := range s.episodes {
		rows = append(
			rows,
			camEpisode{synthEpisode: e, From: from[i], To: from[i] + float64(e.Length)/30},
		)
	}
	writeRows(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), rows, 10)
	b, err := os.ReadFile(mp4)
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "videos/cam/chunk-000/file-000.mp4"), string(b))
	return mustOpen(t, dir)
}

// TestFrameCountV3 checks files with another number of frames than rows, whose frames are found by
// time. An episode fails from its first row on if a row has no frame, or if another episode has its
// frames.
func TestFrameCountV3(t *testing.T) {
	third := 19.0 / 30
	d := camSet(t, []int{19, 25, 19, 10}, []float64{0, third, 2 * third, 3 * third})
	ordinals(t, d, "cam", 0, 0, 1)
	ordinals(t, d, "cam", 3, 57, 1)
	noFrames(t, d, "cam", 1) // 25 rows, and the next episode begins after 19
	noFrames(t, d, "cam", 2)
	wantFrameCounts(t, d, 2, "file-000.mp4")
	// The order of from_timestamp applies, not the order of the table.
	d = camSet(t, []int{1000, 254}, []float64{254.0 / 30, 0})
	if r := frames(t, d, "cam", []robocache.Row{
		{Episode: 0, Index: 0},
		{Episode: 1, Index: 253},
		{Episode: 0, Index: 999},
	}); r[0].Ordinal != 254 || r[1].Ordinal != 253 || r[2].Ordinal !=
		1253 {
		t.Error(r)
	}
	// Two episodes begin at the same frame.
	d = camSet(t, []int{5, 6, 4}, []float64{0, 0, 20.0 / 30})
	noFrames(t, d, "cam", 0)
	noFrames(t, d, "cam", 1)
	ordinals(t, d, "cam", 2, 20, 1)
	// An episode after the end of its file.
	d = camSet(t, []int{5, 5}, []float64{0, 1e6})
	noFrames(t, d, "cam", 1)
	ordinals(t, d, "cam", 0, 0, 1)
	for _, from := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		d = camSet(t, []int{5, 5}, []float64{0, from})
		wantError(t, noFrames(t, d, "cam", 1), robocache.ErrMalformed, "from_timestamp")
		ordinals(t, d, "cam", 0, 0, 1)
	}
}

// TestUnknownStart checks that frames are not counted if the place of an episode among the others
// is unknown.
func TestUnknownStart(t *testing.T) {
	d := camSet(t, []int{254, 500, 500}, []float64{1000.0 / 30, math.NaN(), 0})
	wantError(t, noFrames(t, d, "cam", 1), robocache.ErrMalformed, "from_timestamp")
	d = camSet(t, []int{254, 500, 500}, []float64{0, math.NaN(), 754.0 / 30})
	ordinals(t, d, "cam", 1, 254, 1)
}

// TestRepeatedTimestamps checks frames that are found by time: rows with repeated timestamps are an
// error before the first row and do not share a frame.
func TestRepeatedTimestamps(t *testing.T) {
	d := timedCamSet(t, []int{20, 20}, []float64{0, 20.0 / 30}, func(r dataRow) float64 {
		if r.Ep == 1 && r.Frame == 7 {
			return 6.0 / 30
		}
		return float64(r.Frame) / 30
	})
	ordinals(t, d, "cam", 0, 0, 1)
	wantError(
		t,
		noFrames(t, d, "cam", 1),
		robocache.ErrMalformed,
		"row 7",
		"timestamps repeat",
		"frame 26",
	)
}
