package diff_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/diff"
	"github.com/goatnote-inc/robocache/edit"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func open(t testing.TB, path string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// compare returns the differences of two datasets. They must not depend on the number of threads.
func compare(t testing.TB, a, b, frames string) *diff.Report {
	t.Helper()
	var texts [2]string
	var report *diff.Report
	for i, threads := range []int{1, 4} {
		var err error
		report, err = diff.Compare(t.Context(), open(t, a), open(t, b),
			diff.Options{Frames: frames, Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Errorf("threads change the report:\n%s\n%s", texts[0], texts[1])
	}
	return report
}

// edited edits a dataset into a new folder.
func edited(t testing.TB, src string, verbs ...edit.Verb) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "out")
	_, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{src}, Verbs: verbs, DST: dst, Stats: "rows",
	})
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

// made returns a synthetic dataset of n episodes with still images.
func made(t testing.TB, n int) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "set")
	_, err := synth.Write(t.Context(), dst, synth.Options{
		Episodes: n, Cameras: 1, Width: 64, Height: 64, Codec: "png", Spread: 0.3,
	})
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

func TestEqual(t *testing.T) {
	set := made(t, 4)
	r := compare(t, set, set, diff.FramesPixels)
	if r.Different || r.Counts != (diff.Counts{Equal: 4}) || len(r.Notes) > 0 {
		t.Errorf("%+v", r)
	}
}

// Episodes are found under other numbers, and edits are described.
func TestEdits(t *testing.T) {
	set := made(t, 6)
	t.Run("deleted", func(t *testing.T) {
		out := edited(t, set, edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "1"}})
		r := compare(t, set, out, "")
		if r.Counts != (diff.Counts{Equal: 1, Moved: 4, Removed: 1}) ||
			!slices.Equal(r.Moved, []diff.Move{{A: 2, B: 1, Count: 4}}) ||
			r.Removed[0].Index != 1 || len(r.Changed) > 0 {
			t.Errorf("%+v", r)
		}
		back := compare(t, out, set, "")
		if back.Counts.Added != 1 || back.Added[0].Index != 1 || back.Counts.Removed != 0 {
			t.Errorf("%+v", back)
		}
	})
	t.Run("trimmed", func(t *testing.T) {
		out := edited(t, set, edit.Verb{
			Verb: "trim", From: "5r", To: "-3r", Choice: edit.Choice{Episodes: "2"},
		}, edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0"}})
		r := compare(t, set, out, "")
		if r.Counts != (diff.Counts{Changed: 1, Moved: 5, Removed: 1}) {
			t.Fatalf("%+v", r.Counts)
		}
		c := r.Changed[0]
		if c.A != 2 || c.B != 1 || c.Rows.RemovedHead != 5 || c.Rows.RemovedTail != 3 ||
			c.Rows.RemovedMiddle+c.Rows.AddedHead+c.Rows.AddedTail != 0 ||
			len(c.Streams) > 0 || c.Times != nil || c.Tasks != nil {
			t.Errorf("%+v", c)
		}
	})
	t.Run("relabeled", func(t *testing.T) {
		out := edited(t, set, edit.Verb{
			Verb: "set-task", Text: "another", Choice: edit.Choice{Episodes: "3"},
		})
		r := compare(t, set, out, "")
		if r.Counts != (diff.Counts{Equal: 5, Changed: 1}) || r.Changed[0].Tasks == nil ||
			!slices.Equal(r.Changed[0].Tasks.B.([]string), []string{"another"}) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("renamed", func(t *testing.T) {
		out := edited(t, set, edit.Verb{Verb: "rename", Names: map[string]string{
			"observation.state": "state", "observation.images.cam_0": "observation.images.top",
		}})
		r := compare(t, set, out, "")
		if len(r.Changed) > 0 || len(r.Features) != 2 {
			t.Fatalf("%+v", r)
		}
		for _, f := range r.Features {
			if f.Change != "renamed" || f.To == "" {
				t.Errorf("%+v", f)
			}
		}
	})
	t.Run("added feature", func(t *testing.T) {
		out := edited(t, set, edit.Verb{Verb: "add", Features: []string{"robot_id"}, From: "7"})
		r := compare(t, set, out, "")
		want := []diff.Feature{{Key: "robot_id", Change: "added"}}
		if len(r.Changed) > 0 || len(r.Features) != 1 || r.Features[0].Key != want[0].Key ||
			r.Features[0].Change != "added" {
			t.Errorf("%+v", r)
		}
	})
}

// A dataset equals its conversions to other formats, except for what these formats cannot store.
func TestConversions(t *testing.T) {
	set := made(t, 3)
	for _, format := range []string{"zarr", "delta", "robomimic", "mcap"} {
		dst := filepath.Join(t.TempDir(), "out")
		if _, err := convert.Write(t.Context(), open(t, set), format, dst,
			convert.Options{}); err != nil {
			t.Fatal(err)
		}
		r := compare(t, set, dst, "")
		if r.Counts != (diff.Counts{Equal: 3}) {
			text, _ := json.Marshal(r)
			t.Errorf("%s: %s", format, text)
		}
	}
}

// Video of real episodes: copied packets are equal, and encoded ones differ by their PSNR.
func TestVideo(t *testing.T) {
	src := realdata.Path(t, "g1_h264_v30")
	out := edited(t, src, edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0"}})
	r := compare(t, src, out, diff.FramesPackets)
	if len(r.Changed) > 0 || r.Counts.Removed != 1 {
		t.Errorf("%+v", r)
	}
	if testing.Short() {
		t.Skip("encodes video")
	}
	out = edited(t, src, edit.Verb{
		Verb: "reencode", Video: &edit.Video{Codec: "h264", CRF: 40},
	})
	r = compare(t, src, out, diff.FramesPixels)
	if r.Counts.Changed != r.A.Episodes {
		t.Fatalf("%+v", r.Counts)
	}
	for _, s := range r.Changed[0].Streams {
		if s.What != diff.FramesPixels || s.PSNR == nil || s.PSNR.Min < 15 || s.PSNR.Mean > 60 {
			t.Errorf("%+v", s)
		}
	}
}

// clocked gives the camera of a dataset its own clock, which is slow by some ns in each row.
type clocked struct {
	robocache.Dataset
	info robocache.Info
	slow int64
}

func newClocked(ds robocache.Dataset, slow int64) *clocked {
	c := &clocked{ds, *ds.Info(), slow}
	c.info.Features = slices.Clone(c.info.Features)
	for i := range c.info.Features {
		if f := &c.info.Features[i]; f.Kind == robocache.KindImage {
			f.Clock = f.Key
		}
	}
	return c
}

func (c *clocked) Info() *robocache.Info { return &c.info }

func (c *clocked) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	times, err := c.Dataset.Times(ctx, episode, key)
	times = slices.Clone(times)
	if f := c.info.Feature(key); f != nil && f.Clock != "" {
		for i := range times {
			times[i] += int64(i) * c.slow
		}
	}
	return times, err
}

// The timestamps of a camera with its own clock are compared.
func TestCameraClock(t *testing.T) {
	set := open(t, made(t, 2))
	for slow, changed := range map[int64]int{0: 0, 500_000: 2} {
		r, err := diff.Compare(t.Context(), newClocked(set, 0), newClocked(set, slow),
			diff.Options{})
		if err != nil || r.Counts.Changed != changed {
			t.Fatal(r, err)
		}
		if changed > 0 && (r.Changed[0].Times == nil ||
			r.Changed[0].Times.Rows != r.Changed[0].Rows.A-1) {
			t.Errorf("%+v", r.Changed[0])
		}
	}
}

func TestMisuse(t *testing.T) {
	set := open(t, made(t, 1))
	if _, err := diff.Compare(t.Context(), set, set, diff.Options{Frames: "all"}); err == nil {
		t.Error("no error")
	}
}

// altered changes values of a dataset.
type altered struct {
	robocache.Dataset
	change func(key string, row robocache.Row, value []byte)
}

func (a *altered) Gather(
	ctx context.Context, key string, rows []robocache.Row, dst []byte,
) error {
	err := a.Dataset.Gather(ctx, key, rows, dst)
	for i, row := range rows {
		size := len(dst) / len(rows)
		a.change(key, row, dst[i*size:(i+1)*size])
	}
	return err
}

// compareAltered compares a dataset with itself after a change of values.
func compareAltered(
	t testing.TB, set string, change func(key string, row robocache.Row, value []byte),
) *diff.Report {
	t.Helper()
	a := open(t, set)
	r, err := diff.Compare(t.Context(), a, &altered{a, change}, diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestValues(t *testing.T) {
	set := made(t, 4)
	put := func(value []byte, f float32) {
		binary.LittleEndian.PutUint32(value, math.Float32bits(f))
	}
	get := func(value []byte) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(value))
	}
	r := compareAltered(t, set, func(key string, row robocache.Row, value []byte) {
		if key == "action" && row.Episode == 2 && row.Index >= 3 && row.Index < 6 {
			put(value, get(value)+float32(row.Index))
		}
	})
	if r.Counts != (diff.Counts{Equal: 3, Changed: 1}) || len(r.Changed[0].Streams) != 1 {
		t.Fatalf("%+v", r)
	}
	s := r.Changed[0].Streams[0]
	if r.Changed[0].A != 2 || s.Key != "action" || s.What != "values" || s.Rows != 3 ||
		s.FirstRow != 3 || s.MaxDifference == nil || math.Abs(*s.MaxDifference-5) > 1e-5 {
		t.Errorf("%+v", s)
	}
	// All values of an episode change: its number and length match it.
	r = compareAltered(t, set, func(key string, row robocache.Row, value []byte) {
		if row.Episode == 1 && len(value) >= 4 && key != "timestamp" &&
			!strings.Contains(key, "index") {
			put(value, get(value)*1.5+3)
		}
	})
	if r.Counts != (diff.Counts{Equal: 3, Changed: 1}) || r.Changed[0].B != 1 {
		t.Errorf("%+v", r)
	}
	// -0 equals 0.
	r = compareAltered(t, set, func(key string, row robocache.Row, value []byte) {
		if key == "action" && get(value) == 0 {
			put(value, float32(math.Copysign(0, -1)))
		}
	})
	if r.Different {
		t.Errorf("%+v", r)
	}
}
