package rlds_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/rlds"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func open(t *testing.T, dir string, opt robocache.OpenOptions) *rlds.Dataset {
	t.Helper()
	d, err := rlds.Open(t.Context(), dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func write(
	t *testing.T,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (string, *robocache.WriteReport) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my_set", "1.2.0")
	rep, err := rlds.Write(t.Context(), src, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return dir, rep
}

func rows(ds robocache.Dataset, e int) []robocache.Row {
	out := make([]robocache.Row, ds.Len(e))
	for i := range out {
		out[i] = robocache.Row{Episode: e, Index: i}
	}
	return out
}

// rgb decodes the images of rows as 8-bit color or as 16-bit depth.
func rgb(t *testing.T, ds robocache.Dataset, f *robocache.Feature, rs []robocache.Row) []byte {
	t.Helper()
	refs := make([]robocache.FrameRef, len(rs))
	if err := ds.Frames(t.Context(), f.Key, rs, refs); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i := range refs {
		spec := &video.Spec{Pixel: video.RGB8}
		if f.DType == robocache.Uint16 {
			spec.Pixel = video.Gray16
		} else if f.DType == robocache.Float32 {
			spec.Pixel = video.DepthMM
		}
		info, err := video.ImageSize(&refs[i])
		if err != nil {
			t.Fatal(err)
		}
		n, err := video.StillBytes(info, spec)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		if err := video.DecodeImage(&refs[i], spec, b); err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// same compares the streams that two datasets share. All streams that were not dropped must exist.
func same(t *testing.T, a, b robocache.Dataset, dropped []string) {
	t.Helper()
	if a.Info().Episodes != b.Info().Episodes || a.Info().Frames != b.Info().Frames {
		t.Fatalf(
			"%d episodes, %d frames; expected %d, %d",
			b.Info().Episodes,
			b.Info().Frames,
			a.Info().Episodes,
			a.Info().Frames,
		)
	}
	gone := map[string]bool{}
	for _, k := range dropped {
		gone[k] = true
	}
	for i := range a.Info().Features {
		f := &a.Info().Features[i]
		if f.Default || gone[f.Key] {
			continue
		}
		g := b.Info().Feature(f.Key)
		if g == nil {
			t.Errorf("%s is lost", f.Key)
			continue
		}
		if f.DType != g.DType || f.Kind != g.Kind ||
			!reflect.DeepEqual(f.Shape, g.Shape) && f.Kind != robocache.KindText {
			t.Errorf(
				"%s: %s %s %v became %s %s %v",
				f.Key,
				f.Kind,
				f.DType,
				f.Shape,
				g.Kind,
				g.DType,
				g.Shape,
			)
		}
		for e := range a.Info().Episodes {
			sameRows(t, a, b, f, e)
		}
	}
	for e := range a.Info().Episodes {
		ta, err1 := a.Times(t.Context(), e, "")
		tb, err2 := b.Times(t.Context(), e, "")
		if err1 != nil || err2 != nil || !reflect.DeepEqual(ta, tb) {
			t.Errorf("episode %d: timestamps differ (%v %v)", e, err1, err2)
		}
		x, _ := a.Text(t.Context(), "task", rows(a, e))
		y, err := b.Text(t.Context(), "task", rows(b, e))
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("episode %d: tasks %q, expected %q (%v)", e, y, x, err)
		}
	}
}

func sameRows(t *testing.T, a, b robocache.Dataset, f *robocache.Feature, e int) {
	t.Helper()
	ra, rb := rows(a, e), rows(b, e)
	if len(ra) != len(rb) {
		t.Fatalf("episode %d: %d rows, expected %d", e, len(rb), len(ra))
	}
	switch {
	case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		x, err1 := a.Text(t.Context(), f.Key, ra)
		y, err2 := b.Text(t.Context(), f.Key, rb)
		if err1 != nil || err2 != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%s differs (%v %v)", f.Key, err1, err2)
		}
	case f.Kind == robocache.KindImage:
		if !bytes.Equal(rgb(t, a, f, ra), rgb(t, b, f, rb)) {
			t.Errorf("%s: images differ", f.Key)
		}
	case f.Ragged():
		x, n, err1 := robocache.GatherRagged(t.Context(), a, f.Key, ra)
		y, m, err2 := robocache.GatherRagged(t.Context(), b, f.Key, rb)
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) || !reflect.DeepEqual(n, m) {
			t.Errorf("%s differs (%v %v)", f.Key, err1, err2)
		}
	case f.Kind == robocache.KindNumeric:
		x, y := make([]byte, len(ra)*f.RowBytes()), make([]byte, len(rb)*f.RowBytes())
		err1, err2 := a.Gather(t.Context(), f.Key, ra, x), b.Gather(t.Context(), f.Key, rb, y)
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			t.Errorf("%s differs (%v %v)", f.Key, err1, err2)
		}
	}
}

// TestWriteSynth checks that raw and encoded images, depth, clouds, float64 and text keep their
// bits, and that tensorflow-datasets reads the same.
func TestWriteSynth(t *testing.T) {
	for _, codec := range []string{"raw", "png", "jpeg"} {
		made, err := synth.New(
			synth.Options{
				Episodes: 3,
				Seconds:  0.4,
				Spread:   0.5,
				Width:    64,
				Height:   64,
				Codec:    codec,
				Depth:    true,
				Points:   40,
				Rates: map[string]float64{
					"camera": 20,
					"joints": 20,
					"force":  20,
					"cloud":  20,
					"text":   20,
				},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		src := onRows(made)
		dir, rep := write(t, src, robocache.WriteOptions{Options: map[string]string{"shards": "2"}})
		d := open(t, dir, robocache.OpenOptions{})
		same(t, src, d, rep.Dropped)
		if len(rep.Dropped) != 0 || rep.Episodes != 3 || d.Info().FPS != src.Info().FPS ||
			d.Info().Robot != src.Info().Robot ||
			len(d.Info().Findings) != 0 {
			t.Errorf("%+v\n%+v", rep, d.Info())
		}
		if n, _ := filepath.Glob(filepath.Join(dir, "my_set-train.tfrecord-*-of-00002")); len(n) !=
			2 {
			t.Errorf("shards: %v", n)
		}
		t.Run("judge "+codec, func(t *testing.T) { rlds.JudgeReads(t, dir) })
	}
}

// TestWriteUneven checks that timestamps off the grid are kept to the nanosecond, and that streams
// on other clocks are reported as dropped.
func TestWriteUneven(t *testing.T) {
	src, err := synth.New(
		synth.Options{
			Episodes: 2,
			Seconds:  1,
			Cameras:  1,
			Width:    64,
			Height:   64,
			Jitter:   3 * time.Millisecond,
			Rates:    map[string]float64{"camera": 20, "joints": 100},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	dir, rep := write(t, src, robocache.WriteOptions{})
	d := open(t, dir, robocache.OpenOptions{})
	same(t, src, d, rep.Dropped)
	if len(rep.Dropped) == 0 {
		t.Error("a stream of 100 Hz was written on rows of 20 Hz")
	}
	// A rate of the caller has priority.
	d = open(t, dir, robocache.OpenOptions{HZ: robocache.Rate{Num: 7, Den: 1}})
	if ts, err := d.Times(t.Context(), 0, ""); err != nil || ts[7] != 1e9 {
		t.Error(ts, err)
	}
}

// TestWriteBridge checks that a real dataset that is written again has the same JPEG bytes and
// values, in its own splits.
func TestWriteBridge(t *testing.T) {
	src := open(t, realdata.Path(t, "bridge_rlds"), robocache.OpenOptions{})
	dir, rep := write(t, src, robocache.WriteOptions{})
	d := open(t, dir, robocache.OpenOptions{})
	same(t, src, d, rep.Dropped)
	if len(rep.Dropped) != 0 || !reflect.DeepEqual(d.Info().Splits, src.Info().Splits) ||
		d.Info().FPS != src.Info().FPS {
		t.Errorf("%+v %+v", rep, d.Info())
	}
	for e := range 3 {
		a, b := make([]robocache.FrameRef, 10), make([]robocache.FrameRef, 10)
		if err := errors.Join(src.Frames(t.Context(), "observation.image_1", rows(src, e), a),
			d.Frames(t.Context(), "observation.image_1", rows(d, e), b)); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if !bytes.Equal(a[i].Encoded, b[i].Encoded) {
				t.Fatal("a JPEG was made again")
			}
		}
		x, _ := src.Text(t.Context(), "episode_metadata.file_path", rows(src, e))
		y, err := d.Text(t.Context(), "episode_metadata.file_path", rows(d, e))
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Error("file_path is lost", err)
		}
	}
	again, _ := write(t, src, robocache.WriteOptions{Threads: 1})
	for _, n := range []string{
		"features.json",
		"dataset_info.json",
		"my_set-val.tfrecord-00000-of-00001",
	} {
		x, err1 := os.ReadFile(filepath.Join(dir, n))
		y, err2 := os.ReadFile(filepath.Join(again, n))
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			t.Errorf("%s is not the same a second time (%v %v)", n, err1, err2)
		}
	}
	t.Run("judge", func(t *testing.T) { rlds.JudgeReads(t, dir) })
}

// TestWriteVideo checks that images of video files become PNG, pixel for pixel.
func TestWriteVideo(t *testing.T) {
	if testing.Short() {
		t.Skip(
			"-short: frames of video become PNG, slow under the race detector and the same " +
				"path as TestWriteSynth",
		)
	}
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip("skipped: no decoder: ", err)
	}
	src, err := lerobot.Open(t.Context(), realdata.Path(t, "g1_v21"), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	short := 0
	for e := range src.Info().Episodes {
		if src.Len(e) < src.Len(short) {
			short = e
		}
	}
	var keys []string
	cam := ""
	for _, f := range src.Info().Features {
		if f.Kind == robocache.KindVideo && cam == "" {
			cam = f.Key
			keys = append(keys, f.Key)
		} else if f.Kind == robocache.KindNumeric && !f.Default {
			keys = append(keys, f.Key)
		}
	}
	dir, rep := write(t, src, robocache.WriteOptions{Episodes: []int{short}, Keys: keys})
	d := open(t, dir, robocache.OpenOptions{})
	if rep.Episodes != 1 || d.Len(0) != src.Len(short) {
		t.Fatalf("%+v", rep)
	}
	f := d.Info().Feature(cam)
	if f == nil || f.Kind != robocache.KindImage || f.Height != src.Info().Feature(cam).Height {
		t.Fatalf("%+v", f)
	}
	ref := make([]robocache.FrameRef, 1)
	if err := d.Frames(t.Context(), cam, []robocache.Row{{Index: d.Len(0) - 1}}, ref); err != nil ||
		!bytes.HasPrefix(ref[0].Encoded, []byte("\x89PNG")) {
		t.Error("no PNG", err)
	}
}

// TestWriteRefuses checks that input that cannot be written is rejected before anything is written,
// and that a failure leaves nothing.
func TestWriteRefuses(t *testing.T) {
	src, err := synth.New(synth.Options{Episodes: 2, Seconds: 0.2, Width: 64, Height: 64})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, opt := range map[string]robocache.WriteOptions{
		"option":  {Options: map[string]string{"shard": "1"}},
		"shards":  {Options: map[string]string{"shards": "0"}},
		"version": {Options: map[string]string{"version": "2"}},
		"name":    {Options: map[string]string{"name": "My-Set"}},
		"split":   {Options: map[string]string{"split": "a b"}},
		"episode": {Episodes: []int{7}},
		"key":     {Keys: []string{"nothing"}},
	} {
		if _, err := rlds.Write(t.Context(), src, dir, opt); !errors.Is(err, robocache.ErrMisuse) &&
			!errors.Is(err, robocache.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s left %v", name, left)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := rlds.Write(t.Context(), src, dir, robocache.WriteOptions{}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error("a folder that is not empty was taken:", err)
	}
	mem := storetest.NewMem("rlds-refuses")
	defer mem.Drop()
	if _, err := rlds.WriteStore(t.Context(), broken{src}, mem,
		robocache.WriteOptions{}); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	if left, _ := mem.List(t.Context(), ""); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	rep, err := rlds.WriteStore(
		t.Context(),
		broken{src},
		mem,
		robocache.WriteOptions{SkipBad: true},
	)
	if err != nil || rep.Episodes != 1 || len(rep.Findings) != 1 {
		t.Errorf("%+v %v", rep, err)
	}
	d, err := rlds.OpenStore(t.Context(), mem, robocache.OpenOptions{})
	if err != nil || d.Info().Episodes != 1 ||
		math.Abs(d.Info().FPS.Float()-src.Info().FPS.Float()) > 0 {
		t.Error(err)
	}
}

// onRows is a synthetic dataset whose streams all have the rate of the rows, as one clock.
func onRows(d *synth.Dataset) robocache.Dataset {
	info := *d.Info()
	info.Features = slices.Clone(info.Features)
	for i := range info.Features {
		info.Features[i].Clock = ""
	}
	return plainRows{d, &info}
}

type plainRows struct {
	*synth.Dataset
	info *robocache.Info
}

func (p plainRows) Info() *robocache.Info { return p.info }

// mixed has clouds, float64, depth, text and raw images.
func mixed(t *testing.T) *synth.Dataset {
	t.Helper()
	d, err := synth.New(
		synth.Options{
			Episodes: 3,
			Seconds:  0.4,
			Spread:   0.5,
			Width:    64,
			Height:   64,
			Codec:    "raw",
			Depth:    true,
			Points:   40,
			Rates: map[string]float64{
				"camera": 20,
				"joints": 20,
				"force":  20,
				"cloud":  20,
				"text":   20,
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// broken is a dataset whose second episode cannot be read.
type broken struct{ robocache.Dataset }

func (b broken) Times(ctx context.Context, e int, key string) ([]int64, error) {
	if e == 1 {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Msg: "broken"}
	}
	return b.Dataset.Times(ctx, e, key)
}

// TestDoctorDepth checks that every image of a sound dataset with depth can be decoded, in its own
// kind of pixels.
func TestDoctorDepth(t *testing.T) {
	src, err := synth.New(
		synth.Options{Episodes: 1, Seconds: 0.2, Width: 64, Height: 64, Cameras: 1, Depth: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := write(t, src, robocache.WriteOptions{})
	found, err := open(
		t,
		dir,
		robocache.OpenOptions{},
	).Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
	if err != nil || len(found) > 0 {
		t.Error(found, err)
	}
}
