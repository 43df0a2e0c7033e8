package convert_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

func frame(
	t *testing.T,
	ds robocache.Dataset,
	pool *video.Pool,
	key string,
	row robocache.Row,
) []byte {
	t.Helper()
	refs := make([]robocache.FrameRef, 1)
	if err := ds.Frames(t.Context(), key, []robocache.Row{row}, refs); err != nil {
		t.Fatal(err)
	}
	f, err := ds.(video.Source).Video().Acquire(t.Context(), refs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	var out []byte
	spec := &video.Spec{Pixel: video.RGB8}
	for _, g := range video.Plan(f.Index, []int{refs[0].Ordinal}) {
		err := pool.Decode(t.Context(), f, nil, []video.Group{g}, func(_ int, p video.Frame) error {
			n, err := p.Bytes(spec)
			if err != nil {
				return err
			}
			out = make([]byte, n)
			return p.Convert(spec, out)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func rms(a, b []byte) float64 {
	var s float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		s += d * d
	}
	return math.Sqrt(s / float64(len(a)))
}

// C2: re-encoded images are in the right order: each is closer to its own source image than to one
// a few rows away. Rows keep their bits.
func TestEncode(t *testing.T) {
	if testing.Short() {
		t.Skip("encodes in two codecs")
	}
	for _, codec := range []video.Codec{video.H264, video.AV1} {
		t.Run(string(codec), func(t *testing.T) {
			if err := video.CanEncode(context.Background(), video.EncodeConfig{
				Codec: codec,
				Width: 320, Height: 240, Rate: robocache.Rate{Num: 30, Den: 1},
			}); err != nil {
				t.Skip(err)
			}
			if _, err := video.ActiveBackend(); err != nil {
				t.Skip(err)
			}
			src := open(t, data(t, "g1_h264_v30"))
			dst := filepath.Join(t.TempDir(), "out")
			temp := t.TempDir()
			episodes := []int{4, 1}
			if codec == video.AV1 && !exhaustive() {
				episodes = episodes[:1]
				t.Log("one episode (ROBOCACHE_EXHAUSTIVE=1: two)")
			}
			rep, err := ToLeRobot(t.Context(), src, dst, Options{
				VideoCodec:     string(codec),
				Episodes:       episodes,
				TempDir:        temp,
				VideoFileBytes: 300_000,
			})
			if err != nil {
				t.Fatal(err)
			}
			if rep.Copied != 0 || rep.Encoded != 2*len(episodes) {
				t.Errorf("%d copied, %d encoded", rep.Copied, rep.Encoded)
			}
			if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			out := open(t, dst)
			pool := video.NewPool(64 << 20)
			defer pool.Close()
			for i, e := range episodes {
				n := src.Len(e)
				if out.Len(i) != n {
					t.Fatalf("%d rows, want %d", out.Len(i), n)
				}
				for _, f := range src.Info().Features {
					if f.Kind != robocache.KindVideo {
						continue
					}
					if g := out.Info().Feature(f.Key); g.Codec != string(codec) {
						t.Errorf("codec %q", g.Codec)
					}
					for _, k := range []int{0, 1, n / 2, n - 1} {
						got := frame(t, out, pool, f.Key, robocache.Row{Episode: i, Index: k})
						right := rms(
							got,
							frame(t, src, pool, f.Key, robocache.Row{Episode: e, Index: k}),
						)
						other := rms(
							got,
							frame(
								t,
								src,
								pool,
								f.Key,
								robocache.Row{Episode: e, Index: (k + n/3) % n},
							),
						)
						if right > 8 || right >= other {
							t.Errorf(
								"episode %d %s row %d: %.1f levels from its own image, %.1f "+
									"from another",
								e,
								f.Key,
								k,
								right,
								other,
							)
						}
					}
				}
			}
		})
	}
}

// A dry run reports what a run does, and writes nothing.
func TestDryRun(t *testing.T) {
	src := open(t, data(t, "gr00t_picknplace_v20"))
	dst := filepath.Join(t.TempDir(), "out")
	dry, err := ToLeRobot(t.Context(), src, dst, Options{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := ToLeRobot(t.Context(), src, dst, Options{Frames: stats.NoFrames})
	if err != nil {
		t.Fatal(err)
	}
	if dry.NumEpisodes != rep.NumEpisodes || dry.NumFrames != rep.NumFrames ||
		dry.Copied != rep.Copied ||
		len(dry.Added) != 1 ||
		len(rep.Added) != 1 ||
		dry.Added[0] != RecordedTimestamps {
		t.Errorf("dry %+v\nrun %+v", dry, rep)
	}
}

// An episode whose images cannot be decoded is left out if SkipBad is set. The other episodes are
// complete.
func TestSkipUndecodable(t *testing.T) {
	if err := video.CanEncode(t.Context(), video.EncodeConfig{
		Codec: video.H264, Width: 160,
		Height: 120, Rate: robocache.Rate{Num: 30, Den: 1},
	}); err != nil {
		t.Skip(err)
	}
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	from, dir := data(t, "g1_v21"), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	const key = "observation.images.cam_high"
	path := filepath.Join(dir, "videos", "chunk-000", key, "episode_000002.mp4")
	src := open(t, from)
	refs := make([]robocache.FrameRef, 1)
	if err := src.Frames(t.Context(), key, []robocache.Row{{Episode: 2, Index: 20}}, refs); err !=
		nil {
		t.Fatal(err)
	}
	f, err := src.(video.Source).Video().Acquire(t.Context(), refs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := range 30 {
		s := f.Index.Sample(20 + d)
		for i := range s.Size {
			b[s.Offset+int64(i)] = 0xff
		}
	}
	f.Release()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	opt := Options{
		VideoCodec: "h264",
		Encode:     write.VideoConfig{Preset: "ultrafast"},
		Keys:       []string{key, "action"},
		Episodes:   []int{1, 2, 3},
		Frames:     stats.NoFrames,
		TempDir:    t.TempDir(),
	}
	if _, err := ToLeRobot(t.Context(), open(t, dir), filepath.Join(t.TempDir(), "x"),
		opt); !errors.Is(err, robocache.ErrMalformed) {
		t.Fatalf("not asked to skip: %v", err)
	}
	opt.SkipBad = true
	dst := filepath.Join(t.TempDir(), "y")
	rep, err := ToLeRobot(t.Context(), open(t, dir), dst, opt)
	if err != nil {
		t.Fatal(err)
	}
	if rep.NumEpisodes != 2 || rep.Encoded != 2 || rep.Episodes[1].New != -1 ||
		rep.Episodes[2].New != 1 ||
		!strings.Contains(fmt.Sprint(rep.Findings), "episode-skipped") {
		t.Errorf("%+v", rep)
	}
	out := open(t, dst)
	pool := video.NewPool(64 << 20)
	defer pool.Close()
	for i, e := range []int{1, 3} {
		r := rms(frame(t, out, pool, key, robocache.Row{Episode: i, Index: 7}),
			frame(t, src, pool, key, robocache.Row{Episode: e, Index: 7}))
		if r > 8 {
			t.Errorf("episode %d: %.1f levels from its image", e, r)
		}
	}
}
