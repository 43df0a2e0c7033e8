package convert_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// encoder skips the test if video cannot be encoded or decoded.
func encoder(t testing.TB) {
	t.Helper()
	err := video.CanEncode(t.Context(),
		video.EncodeConfig{Width: 128, Height: 96, Rate: robocache.Rate{Num: 30, Den: 1}})
	if err !=
		nil {
		t.Skip(err)
	}
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
}

func synthetic(t testing.TB, opt synth.Options) *synth.Dataset {
	t.Helper()
	d, err := synth.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var bent = synth.Options{
	Episodes: 3,
	Seconds:  0.8,
	Spread:   0.3,
	Seed:     4,
	Rates:    map[string]float64{"camera": 30, "joints": 100, "force": 333, "cloud": 10, "text": 4},
	Jitter:   time.Millisecond,
	Late:     150 * time.Millisecond,
	Skew:     100,
	Dropout:  100 * time.Millisecond,
}

// codes reads the bar codes in the images of an episode. Each is the number of the source row; −1
// means none.
func codesOf(t *testing.T, ds robocache.Dataset, key string, e int) (out []int) {
	t.Helper()
	f := ds.Info().Feature(key)
	take := func(rgb []byte) error {
		got, row, ok := synth.ReadCode(rgb, f.Width, f.Height)
		if ok && got != e {
			t.Errorf("an image of episode %d in %d", got, e)
		}
		if !ok {
			row = -1
		}
		out = append(out, row)
		return nil
	}
	rows := rowsOf(e, ds.Len(e))
	var err error
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(t.Context(), key, rows, refs); err != nil {
		t.Fatal(err)
	}
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	var buf []byte
	err = video.EachFrame(
		t.Context(),
		video.LibraryOf(ds),
		refs,
		video.Each{},
		func(at []int, pic video.Frame) (err error) {
			r := &refs[at[0]]
			switch {
			case pic != nil:
				buf, err = video.ConvertTo(buf, pic, spec)
			case r.Missing:
				buf = make([]byte, 3*f.Width*f.Height)
			default:
				buf, err = stats.Still(r, spec, buf)
			}
			for range at {
				if err == nil {
					err = take(buf)
				}
			}
			return err
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// convert.C7, C8: streams with their own clocks become rows on a grid and equal those of the view.
// Images show the rows that the view selected. Text and tasks are kept, and the point cloud is
// reported.
func TestClocksToLeRobot(t *testing.T) {
	for _, images := range []string{"video", "images"} {
		t.Run(images, func(t *testing.T) {
			if images == "video" {
				encoder(t)
			}
			src := synthetic(t, bent)
			cfg := align.Config{HZ: robocache.Rate{Num: 50, Den: 1}, Extent: "union"}
			if err := cfg.Edge.UnmarshalJSON([]byte(`"mask"`)); err != nil {
				t.Fatal(err)
			}
			dst := filepath.Join(t.TempDir(), "set")
			rep, err := ToLeRobot(t.Context(), src, dst, Options{Align: &cfg, Images: images})
			if err != nil {
				t.Fatal(err)
			}
			v, err := align.View(t.Context(), src, cfg, align.ViewOptions{Rhythm: true})
			if err != nil {
				t.Fatal(err)
			}
			out := open(t, dst)
			if !rep.Aligned || !slices.Equal(rep.Dropped, []string{"observation.points"}) ||
				out.Info().FPS != cfg.HZ ||
				out.Info().Frames != v.Info().Frames ||
				len(out.Info().Tasks) != 3 {
				t.Errorf("%+v", rep)
			}
			black := 0
			for e := range bent.Episodes {
				for _, f := range v.Info().Features {
					got := out.Info().Feature(f.Key)
					switch {
					case f.Kind == robocache.KindPointCloud,
						f.Key == "observation.points"+align.ValidSuffix:
						if got != nil {
							t.Errorf(
								"%s is there: LeRobot has no clouds, and a mask of no stream "+
									"says nothing",
								f.Key,
							)
						}
					case got == nil:
						t.Errorf("%s is missing", f.Key)
					case f.Kind == robocache.KindImage:
						want, have := codesOf(t, v, f.Key, e), codesOf(t, out, f.Key, e)
						if !slices.Equal(want, have) {
							t.Errorf("%s of episode %d shows %v, want %v", f.Key, e, have, want)
						}
						if slices.Contains(have, -1) {
							black++
						}
					default:
						if want, have := content(t, v, &f, e),
							content(t, out, got, e); !reflect.DeepEqual(want, have) {
							t.Errorf("%s of episode %d differs", f.Key, e)
						}
					}
				}
				if ep, err := out.Episode(t.Context(), e); err != nil || len(ep.Tasks) != 1 ||
					ep.Tasks[0] != src.Info().Tasks[(e+4)%3].Text {
					t.Errorf("%+v %v", ep, err)
				}
			}
			if black == 0 {
				t.Error("no camera began late: the test shows nothing")
			}
		})
	}
}

func content(t *testing.T, ds robocache.Dataset, f *robocache.Feature, e int) any {
	t.Helper()
	rows := rowsOf(e, ds.Len(e))
	if f.Kind == robocache.KindText {
		s, err := ds.Text(t.Context(), f.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	b := make([]byte, len(rows)*f.RowBytes())
	if err := ds.Gather(t.Context(), f.Key, rows, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// C9: the bytes do not depend on the number of episodes that are written in parallel. The video
// encoder is deterministic too.
func TestThreadsSameBytes(t *testing.T) {
	opt := Options{Images: "images"}
	if video.CanEncode(t.Context(),
		video.EncodeConfig{Width: 128, Height: 96, Rate: robocache.Rate{Num: 30, Den: 1}}) == nil {
		opt.Images = "video"
	}
	var want map[string]string
	for _, n := range []int{1, 2, 5} {
		dst := filepath.Join(t.TempDir(), "set")
		opt.Threads = n
		_, err := ToLeRobot(t.Context(), synthetic(t,
			synth.Options{Episodes: 6, Seconds: 0.5, Spread: 0.5, Cameras: 2, Codec: "jpeg"}), dst,
			opt)
		if err != nil {
			t.Fatal(err)
		}
		got := tree(t, dst)
		if want == nil {
			want = got
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%d threads give other bytes", n)
		}
	}
}

// dying returns an error when its images are read for the n-th time.
type dying struct {
	*synth.Dataset
	left *int
}

func (d dying) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	if *d.left--; *d.left < 0 {
		return &robocache.Error{Class: robocache.ErrTemporary, Msg: "the lights went out"}
	}
	return d.Dataset.Frames(ctx, key, rows, out)
}

// convert.C5: an interrupted run with Resume keeps its encoded episodes. The next run reuses them,
// does not read their images again, and gives the bytes of an uninterrupted run.
func TestResumeEncoded(t *testing.T) {
	encoder(t)
	opt := Options{Resume: true, Threads: 1, Group: 20} // several groups
	set := synth.Options{
		Episodes: 10,
		Seconds:  0.3,
		Spread:   0.5,
		Cameras:  1,
		Codec:    "jpeg",
		Width:    64,
		Height:   64,
	}
	whole := filepath.Join(t.TempDir(), "whole")
	many := 1 << 30
	if _, err := ToLeRobot(t.Context(), dying{synthetic(t, set), &many}, whole, opt); err != nil {
		t.Fatal(err)
	}
	reads := 1<<30 - many
	want := tree(t, whole)
	dst := filepath.Join(t.TempDir(), "set")
	left := reads / 2
	_, err := ToLeRobot(t.Context(), dying{synthetic(t, set), &left}, dst, opt)
	if !errors.Is(err,
		robocache.ErrTemporary) {
		t.Fatal(err)
	}
	parts, _ := filepath.Glob(filepath.Join(dst, partsName, "*.json"))
	if len(parts) == 0 || len(parts) >= 9 {
		t.Fatalf("%d encoded episodes are kept", len(parts))
	}
	// If one of them is damaged, it is encoded again.
	if err := os.Truncate(strings.TrimSuffix(parts[0], ".json"), 10); err != nil {
		t.Fatal(err)
	}
	left = 1 << 30
	if _, err := ToLeRobot(t.Context(), dying{synthetic(t, set), &left}, dst, opt); err != nil {
		t.Fatal(err)
	}
	if again := 1<<30 - left; again > reads-(len(parts)-1) {
		t.Errorf("%d reads of images, %d without resuming", again, reads)
	}
	if got := tree(t, dst); !reflect.DeepEqual(want, got) {
		for n := range got {
			if want[n] != got[n] {
				t.Errorf("%s differs", n)
			}
		}
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}

// Write uses the registry. A format without a writer is rejected by name. A format with clocks gets
// the source itself, other formats get a view.
func TestWriteFormats(t *testing.T) {
	var seen robocache.Dataset
	write := func(_ context.Context, src robocache.Dataset, _ string, opt robocache.WriteOptions) (
		*robocache.WriteReport,
		error,
	) {
		seen = src
		return &robocache.WriteReport{Episodes: src.Info().Episodes}, nil
	}
	robocache.Register(
		robocache.Format{Name: "test-clocks", Clocks: true, Write: write, Detect: never},
	)
	robocache.Register(robocache.Format{Name: "test-rows", Write: write, Detect: never})
	robocache.Register(robocache.Format{Name: "test-read", Detect: never})
	src := synthetic(t, bent)
	if _, err := Write(t.Context(), src, "test-clocks", "x", Options{}, nil); err != nil ||
		seen != robocache.Dataset(src) {
		t.Errorf("%v %T", err, seen)
	}
	if _, err := Write(
		t.Context(),
		src,
		"test-rows",
		"x",
		Options{},
		nil,
	); err != nil || seen.Info().Clock != "" ||
		slices.ContainsFunc(seen.Info().Features, func(f robocache.Feature) bool {
			return f.Clock != ""
		}) ||
		seen.Info().FPS != src.Info().FPS {
		t.Errorf("%v %T", err, seen)
	}
	if _, err := Write(t.Context(), src, "test-clocks", "x",
		Options{
			Align: &align.Config{HZ: robocache.Rate{Num: 10, Den: 1}},
			Keys:  []string{"action"},
		}, nil); err != nil || len(seen.Info().Features) != 1 {
		t.Errorf("%v %+v", err, seen.Info())
	}
	for format, class := range map[string]error{
		"test-read": robocache.ErrUnsupported,
		"nothing":   robocache.ErrUnsupported,
	} {
		if _, err := Write(t.Context(), src, format, "x", Options{}, nil); !errors.Is(err, class) {
			t.Errorf("%s: %v", format, err)
		}
	}
	_, err := Write(t.Context(), src, "test-rows", "x", Options{Resume: true},
		nil)
	if !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	_, err = Write(t.Context(), src, "test-rows", "x", Options{Episodes: []int{9}},
		nil)
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("%v", err)
	}
	if names := convert.Formats(); !slices.Contains(names, "lerobot") ||
		!slices.Contains(names, "test-rows") ||
		slices.Contains(names, "test-read") {
		t.Errorf("%v", names)
	}
}

func never(context.Context, string, robocache.OpenOptions) (bool, error) { return false, nil }

// C8: depth keeps its values in millimetres.
func TestDepthStills(t *testing.T) {
	for _, codec := range []string{"png", "raw"} {
		src := synthetic(
			t,
			synth.Options{Episodes: 1, Seconds: 0.2, Cameras: 1, Depth: true, Codec: codec},
		)
		dst := filepath.Join(t.TempDir(), "set")
		if _, err := ToLeRobot(t.Context(), src, dst, Options{Images: "images"}); err != nil {
			t.Fatal(err)
		}
		out := open(t, dst)
		const key = "observation.depth.cam_0"
		if f := out.Info().
			Feature(key); f.DType != robocache.Uint16 || f.Depth == nil || f.Depth.Unit != "mm" ||
			f.Channels != 1 {
			t.Errorf("read back as %+v", f)
		}
		if all, err := out.Stats(t.Context()); err != nil || all[key] == nil ||
			!(all[key].Max[0] > 255) {
			t.Errorf("statistics %+v, %v", all[key], err)
		}
		rows := rowsOf(0, src.Len(0))
		a, b := make([]robocache.FrameRef, len(rows)), make([]robocache.FrameRef, len(rows))
		if err := errors.Join(src.Frames(t.Context(), key, rows, a),
			out.Frames(t.Context(), key, rows, b)); err != nil {
			t.Fatal(err)
		}
		spec := &video.Spec{Pixel: video.Gray16}
		for i := range a {
			x, y := make([]byte, 2*128*96), make([]byte, 2*128*96)
			err := errors.Join(video.DecodeImage(&a[i], spec, x),
				video.DecodeImage(&b[i], spec, y))
			if err != nil || !bytes.Equal(x, y) {
				t.Fatalf("row %d: %v", i, err)
			}
		}
	}
}
