package lerobot

import (
	"context"
	"math"
	"os"
	"path/filepath"
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

// TestFrameCountV2: a video that is shorter than its table masks the rows after its end; a longer one is only noticed (L5).
func TestFrameCountV2(t *testing.T) {
	dir := copySet(t, "g1_v21")
	const key = "observation.images.cam_high"
	at := func(name string) string { return filepath.Join(dir, "videos/chunk-000", key, name) }
	for _, mv := range [][2]string{{"episode_000000.mp4", "tmp"}, {"episode_000001.mp4", "episode_000000.mp4"}, {"tmp", "episode_000001.mp4"}} {
		if err := os.Rename(at(mv[0]), at(mv[1])); err != nil {
			t.Fatal(err)
		}
	}
	d := mustOpen(t, dir)
	for i, r := range frames(t, d, key, rowsOf(d, 1)) {
		if r.Missing != (i >= 221) || !r.Missing && r.Ordinal != i {
			t.Fatalf("row %d: %+v", i, r)
		}
	}
	for i, r := range frames(t, d, key, rowsOf(d, 0)) {
		if r.Missing || r.Ordinal != i {
			t.Fatalf("row %d: %+v", i, r)
		}
	}
	got := d.Noticed()
	if len(got) != 2 || got[0].Code != "frame-count" || got[0].Count != 56 || got[0].Severity != robocache.SeverityError || got[1].Severity != robocache.SeverityWarning {
		t.Error(got)
	}
}

type camEpisode struct {
	synthEpisode
	Chunk int64   `parquet:"videos/cam/chunk_index"`
	File  int64   `parquet:"videos/cam/file_index"`
	From  float64 `parquet:"videos/cam/from_timestamp"`
	To    float64 `parquet:"videos/cam/to_timestamp"`
}

// camSet is a synthetic set over the 1254 frames of the drifting file; from are the declared starts.
func camSet(t *testing.T, lengths []int, from []float64) *Dataset {
	t.Helper()
	mp4 := filepath.Join(realData(t, "g1_h264_v30_bigdrift"), "videos/observation.images.cam_high/chunk-000/file-000.mp4")
	s := newSynth(lengths...)
	s.fps = "30"
	s.features = `"cam": {"dtype": "video", "shape": [120, 160, 3], "names": ["height", "width", "channels"]},`
	dir := s.write(t)
	var rows []camEpisode
	for i, e := range s.episodes {
		rows = append(rows, camEpisode{synthEpisode: e, From: from[i], To: from[i] + float64(e.Length)/30})
	}
	writeRows(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), rows, 10)
	b, err := os.ReadFile(mp4)
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "videos/cam/chunk-000/file-000.mp4"), string(b))
	return mustOpen(t, dir)
}

// TestFrameCountV3: where frames ≠ rows the starts are snapped to the nearest frame, and episodes that do not fit are flagged.
func TestFrameCountV3(t *testing.T) {
	third := 19.0 / 30
	d := camSet(t, []int{19, 25, 19, 10}, []float64{0, third, 2 * third, 3 * third})
	for e, want := range []struct{ first, span int }{{0, 19}, {19, 19}, {38, 19}, {57, 10}} {
		for k, r := range frames(t, d, "cam", rowsOf(d, e)) {
			if r.Missing != (k >= want.span) || !r.Missing && r.Ordinal != want.first+k {
				t.Fatalf("episode %d row %d: %+v", e, k, r)
			}
		}
		v, err := d.episodeVideo(context.Background(), e, "cam")
		if err != nil || v.First != want.first || v.Images != want.span || v.Exact || v.From != float64(e)*third {
			t.Errorf("%+v %v", v, err)
		}
	}
	var flagged []any
	for _, f := range d.Noticed() {
		flagged = append(flagged, f.Where["episode"])
	}
	if len(flagged) != 3 || flagged[1] != int64(1) || flagged[2] != int64(3) {
		t.Error(flagged, d.Noticed())
	}
	// The order of from_timestamp rules, not the order of the table.
	d = camSet(t, []int{1000, 254}, []float64{254.0 / 30, 0})
	if r := frames(t, d, "cam", []robocache.Row{{Episode: 0, Index: 0}, {Episode: 1, Index: 253}, {Episode: 0, Index: 999}}); r[0].Ordinal != 254 || r[1].Ordinal != 253 || r[2].Ordinal != 1253 {
		t.Error(r)
	}
	// Two starts at one frame: the later episode begins one frame later, and the earlier one has that frame alone.
	d = camSet(t, []int{5, 6}, []float64{0, 0})
	if r := frames(t, d, "cam", []robocache.Row{{Episode: 0, Index: 0}, {Episode: 0, Index: 1}, {Episode: 1, Index: 0}, {Episode: 1, Index: 5}}); r[0].Ordinal != 0 || r[0].Missing || !r[1].Missing || r[2].Ordinal != 1 || r[3].Ordinal != 6 {
		t.Error(r)
	}
	// A start after the end: all rows are missing.
	d = camSet(t, []int{5, 5}, []float64{0, 1e6})
	if r := frames(t, d, "cam", []robocache.Row{{Episode: 1, Index: 0}, {Episode: 0, Index: 4}}); !r[0].Missing || r[1].Ordinal != 4 {
		t.Error(r)
	}
	d = camSet(t, []int{5, 5}, []float64{0, math.NaN()})
	err := d.Frames(context.Background(), "cam", rowsOf(d, 1)[:1], make([]robocache.FrameRef, 1))
	wantError(t, err, robocache.ErrMalformed, "from_timestamp", "episode")
}
