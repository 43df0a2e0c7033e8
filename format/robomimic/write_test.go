package robomimic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/robomimic"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func rows(ds robocache.Dataset, e int) []robocache.Row {
	out := make([]robocache.Row, ds.Len(e))
	for i := range out {
		out[i] = robocache.Row{Episode: e, Index: i}
	}
	return out
}

// pixels decodes the images of rows, from stills or from video, one by one.
func pixels(t *testing.T, ds robocache.Dataset, f *robocache.Feature, at []robocache.Row) []byte {
	t.Helper()
	refs := make([]robocache.FrameRef, len(at))
	if err := ds.Frames(t.Context(), f.Key, at, refs); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i := range refs {
		if refs[i].Path != "" {
			lib, _ := robocache.As[interface{ Video() *video.Library }](ds)
			file, err := lib.Video().Acquire(t.Context(), refs[i].Path)
			if err != nil {
				t.Fatal(err)
			}
			pool := video.NewPool(0)
			err = pool.Decode(
				t.Context(),
				file,
				nil,
				[]video.Group{video.Plan(file.Index, []int{refs[i].Ordinal})[0]},
				func(_ int, p video.Frame) error {
					n, err := p.Bytes(&video.Spec{})
					if err != nil {
						return err
					}
					out = append(out, make([]byte, n)...)
					return p.Convert(&video.Spec{}, out[len(out)-n:])
				},
			)
			pool.Close()
			file.Release()
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		info, err := video.ImageSize(&refs[i])
		if err != nil {
			t.Fatal(err)
		}
		spec := &video.Spec{}
		if info.DType != robocache.Uint8 {
			spec.Pixel = video.DepthMM
		}
		n, err := video.StillBytes(info, spec)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, n)
		if err := video.DecodeImage(&refs[i], spec, buf); err != nil {
			t.Fatal(err)
		}
		out = append(out, buf...)
	}
	return out
}

// same compares two datasets stream by stream; episodes[i] of a is i of b.
func same(t *testing.T, a, b robocache.Dataset, episodes []int) {
	t.Helper()
	if b.Info().Episodes != len(episodes) {
		t.Fatalf("%d episodes, not %d", b.Info().Episodes, len(episodes))
	}
	if a.Info().FPS != b.Info().FPS {
		t.Errorf("rate %v, not %v", b.Info().FPS, a.Info().FPS)
	}
	for i, e := range episodes {
		if a.Len(e) != b.Len(i) {
			t.Fatalf("episode %d: %d rows, not %d", i, b.Len(i), a.Len(e))
		}
		ma, err1 := a.Episode(t.Context(), e)
		mb, err2 := b.Episode(t.Context(), i)
		if err1 != nil || err2 != nil || !slices.Equal(ma.Tasks, mb.Tasks) {
			t.Errorf("episode %d: tasks %q, not %q (%v %v)", i, mb.Tasks, ma.Tasks, err1, err2)
		}
		ra, rb := rows(a, e), rows(b, i)
		for k := range a.Info().Features {
			f := &a.Info().Features[k]
			if f.Default || f.Clock != "" || f.Ragged() {
				continue
			}
			key := f.Key
			if b.Info().Feature(key) == nil {
				key = map[string]string{"next.reward": "rewards", "next.done": "dones"}[key]
			}
			g := b.Info().Feature(key)
			if g == nil {
				t.Errorf("%s is lost", key)
				continue
			}
			switch f.Kind {
			case robocache.KindNumeric:
				if f.DType != g.DType || !slices.Equal(f.Shape, g.Shape) {
					t.Errorf("%s: %s %v, not %s %v", key, g.DType, g.Shape, f.DType, f.Shape)
					continue
				}
				x, y := make([]byte, len(ra)*f.RowBytes()), make([]byte, len(rb)*f.RowBytes())
				if err := errors.Join(a.Gather(t.Context(), f.Key, ra, x),
					b.Gather(t.Context(), key, rb, y)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x, y) {
					t.Errorf("episode %d: %s differs", i, key)
				}
			case robocache.KindText:
				x, err1 := a.Text(t.Context(), f.Key, ra)
				y, err2 := b.Text(t.Context(), key, rb)
				if err1 != nil || err2 != nil || !slices.Equal(x, y) {
					t.Errorf("episode %d: %s differs (%v %v)", i, key, err1, err2)
				}
			default:
				if x, y := pixels(t, a, f, ra), pixels(t, b, g, rb); len(x) == 0 ||
					!bytes.Equal(x, y) {
					t.Errorf("episode %d: the images of %s differ", i, key)
				}
			}
		}
	}
}

func write(
	t *testing.T,
	src robocache.Dataset,
	name string,
	opt robocache.WriteOptions,
) (string, *robocache.WriteReport) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), name)
	r, err := robomimic.Write(t.Context(), src, dst, opt)
	if err != nil {
		t.Fatal(err)
	}
	return dst, r
}

func openSet(t *testing.T, path string, opt robocache.OpenOptions) robocache.Dataset {
	t.Helper()
	opt.Format = "robomimic"
	ds, err := robocache.Open(t.Context(), path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// TestWriteRealAgain checks that real demos are equal after reading and writing.
func TestWriteRealAgain(t *testing.T) {
	src := openSet(
		t,
		realdata.Path(t, "robomimic_like/latest_gzip_shuffle.hdf5"),
		robocache.OpenOptions{},
	)
	for _, options := range []map[string]string{
		nil,
		{"compression": "gzip:1", "next_obs": "true"},
	} {
		dst, r := write(t, src, "again.hdf5", robocache.WriteOptions{Options: options})
		if info, err := os.Stat(dst); err != nil || info.Size() != r.Bytes || r.Episodes != 3 ||
			r.Frames != 90 {
			t.Errorf("%+v, %v", r, err)
		}
		again := openSet(t, dst, robocache.OpenOptions{})
		same(t, src, again, []int{0, 1, 2})
		if x, y := src.Info().Splits, again.Info().Splits; len(x) != 2 ||
			x["train"] != y["train"] ||
			x["valid"] != y["valid"] {
			t.Errorf("splits %v, not %v", y, x)
		}
		loadByRobomimic(
			t,
			dst,
			[]string{"state"},
			[]string{"image"},
			nil,
			options["next_obs"] == "true",
			90,
		)
		loadByRobomimic(t, dst, []string{"state"}, []string{}, "train", false, 90)
	}
	// A selection of episodes, in another order.
	dst, _ := write(
		t,
		src,
		"folder",
		robocache.WriteOptions{
			Episodes: []int{2, 0},
			Keys:     []string{"action", "observation.state"},
		},
	)
	part := openSet(t, filepath.Join(dst, "demos.hdf5"), robocache.OpenOptions{})
	if len(part.Info().Features) != 2 || part.Len(0) != src.Len(2) || part.Len(1) != src.Len(0) {
		t.Errorf("%+v", part.Info().Features)
	}
}

// TestWriteSynthetic writes stills of all kinds, text, and streams with their own clocks.
func TestWriteSynthetic(t *testing.T) {
	for _, codec := range []string{"png", "jpeg", "raw"} {
		src, err := synth.New(
			synth.Options{
				Episodes: 3,
				Seconds:  0.5,
				Cameras:  2,
				Width:    80,
				Height:   64,
				Depth:    true,
				Codec:    codec,
				Spread:   0.3,
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		dst, r := write(t, src, "made.h5", robocache.WriteOptions{Threads: 2})
		same(t, src, openSet(t, dst, robocache.OpenOptions{}), []int{0, 1, 2})
		formattest.Run(t, formattest.Fixture{URI: dst, Format: "robomimic"})
		if len(r.Dropped) != 0 {
			t.Errorf("%s: dropped %v", codec, r.Dropped)
		}
	}
	src, err := synth.New(
		synth.Options{
			Episodes: 1,
			Seconds:  0.5,
			Cameras:  -1,
			Rates:    map[string]float64{"joints": 100, "cloud": 10, "text": 2},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	_, r := write(t, src, "clocks.h5", robocache.WriteOptions{})
	if len(r.Dropped) == 0 || len(r.Findings) < len(r.Dropped) {
		t.Errorf("%+v", r)
	}
}

// TestWriteVideo compares the images of a video with those of its decoder, frame by frame.
func TestWriteVideo(t *testing.T) {
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg to encode with")
	}
	dir := filepath.Join(t.TempDir(), "set")
	if _, err := synth.Write(t.Context(), dir, synth.Options{
		Episodes: 2, Seconds: 0.5, Cameras: 1,
		Width: 80, Height: 64, Codec: "h264",
	}); err != nil {
		t.Fatal(err)
	}
	src, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, _ := write(t, src, "v.hdf5", robocache.WriteOptions{})
	same(t, src, openSet(t, dst, robocache.OpenOptions{}), []int{0, 1})
}

// broken is a dataset with an episode that cannot be read.
type broken struct {
	robocache.Dataset
	episode int
}

func (b *broken) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	for _, r := range rows {
		if r.Episode == b.episode && key == "action" {
			return &robocache.Error{Class: robocache.ErrMalformed, Msg: "broken"}
		}
	}
	return b.Dataset.Gather(ctx, key, rows, dst)
}

func TestWriteSkipsBad(t *testing.T) {
	made, err := synth.New(synth.Options{Episodes: 3, Seconds: 0.5, Cameras: -1})
	if err != nil {
		t.Fatal(err)
	}
	src := &broken{made, 1}
	dst := filepath.Join(t.TempDir(), "a.hdf5")
	if _, err := robomimic.Write(t.Context(), src, dst, robocache.WriteOptions{}); !errors.Is(err,
		robocache.ErrMalformed) || !strings.Contains(err.Error(), "episode 1") &&
		!strings.Contains(err.Error(), "episode=1") {
		t.Errorf("a broken episode: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	dst, r := write(t, src, "b.hdf5", robocache.WriteOptions{SkipBad: true})
	if r.Episodes != 2 || len(r.Findings) == 0 || r.Findings[0].Code != "episode-skipped" {
		t.Errorf("%+v", r)
	}
	same(t, made, openSet(t, dst, robocache.OpenOptions{}), []int{0, 2})
}

func TestWriteMisuse(t *testing.T) {
	src, err := synth.New(synth.Options{Episodes: 1, Seconds: 0.2, Cameras: -1})
	if err != nil {
		t.Fatal(err)
	}
	dst, _ := write(t, src, "a.hdf5", robocache.WriteOptions{})
	for name, err := range map[string]error{
		"there already": func() error {
			_, err := robomimic.Write(
				t.Context(),
				src,
				dst,
				robocache.WriteOptions{},
			)
			return err
		}(),
		"option": func() error {
			return bad(t, src, robocache.WriteOptions{Options: map[string]string{"colour": "x"}})
		}(),
		"compression": func() error {
			return bad(
				t,
				src,
				robocache.WriteOptions{Options: map[string]string{"compression": "gzip:0"}},
			)
		}(),
		"key": func() error {
			return bad(t, src, robocache.WriteOptions{Keys: []string{"none"}})
		}(),
		"episode": func() error {
			return bad(t, src, robocache.WriteOptions{Episodes: []int{1}})
		}(),
	} {
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func bad(t *testing.T, src robocache.Dataset, opt robocache.WriteOptions) error {
	dst := filepath.Join(t.TempDir(), "bad.hdf5")
	_, err := robomimic.Write(t.Context(), src, dst, opt)
	if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	return err
}

// loadByRobomimic loads a file with robomimic's SequenceDataset.
func loadByRobomimic(
	t *testing.T,
	path string,
	low, rgb []string,
	mask any,
	following bool,
	total int,
) {
	t.Helper()
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	find := "import sys, importlib.util as u; sys.exit(not u.find_spec('robomimic'))"
	if testing.Short() || exec.Command(python, "-c", find).Run() != nil {
		t.Log("not read by robomimic: not in .venv, or -short, because it imports torch")
		return
	}
	args := []string{"testdata/sequence.py", path}
	for _, v := range []any{low, rgb, []string{}, mask, following} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, string(b))
	}
	cmd := exec.Command(python, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("robomimic: %v %s", err, stderr.String())
	}
	line := out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:]
	var got struct {
		Items, Demos, Total int
		Freq                float64 `json:"control_freq"`
	}
	if err := json.Unmarshal(line, &got); err != nil || got.Items == 0 || got.Total != total ||
		got.Freq == 0 {
		t.Errorf("robomimic: %s %v", out, err)
	}
	t.Logf("robomimic: %s", line)
}

// TestManyDemos checks that opening a file of many demos takes linear time.
func TestManyDemos(t *testing.T) {
	opening := func(demos int) float64 {
		src, err := synth.New(synth.Options{Episodes: demos, Seconds: 0.1, Cameras: -1})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "many.hdf5")
		if _, err := robomimic.Write(t.Context(), src, file, robocache.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(1, func() {
			ds, err := robomimic.Open(t.Context(), file, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ds.Close()
		})
	}
	if few, many := opening(100), opening(800); many > 12*few {
		t.Errorf(
			"8 times the demos take %.1f times the allocations (%.0f and %.0f)",
			many/few,
			few,
			many,
		)
	}
}
