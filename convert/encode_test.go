package convert

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

func picture(t *testing.T, ds robocache.Dataset, pool *video.Pool, key string, row robocache.Row) []byte {
	t.Helper()
	refs := make([]robocache.FrameRef, 1)
	if err := ds.Frames(t.Context(), key, []robocache.Row{row}, refs); err != nil {
		t.Fatal(err)
	}
	f, err := ds.(stats.VideoSource).Video().Acquire(t.Context(), refs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	var out []byte
	spec := &video.Spec{Pixel: video.RGB8}
	for _, g := range video.Plan(f.Index, []int{refs[0].Ordinal}) {
		if err := pool.Decode(t.Context(), f, g, func(_ int, p video.Picture) error {
			n, err := p.Bytes(spec)
			if err != nil {
				return err
			}
			out = make([]byte, n)
			return p.Convert(spec, out)
		}); err != nil {
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

// C2: re-encoded pictures are the right ones: each is nearer to its own source picture than to one a few rows away, and the rows keep their bits.
func TestEncode(t *testing.T) {
	for _, codec := range []video.Codec{video.H264, video.AV1} {
		t.Run(string(codec), func(t *testing.T) {
			if err := video.CanEncode(context.Background(), video.EncodeConfig{Codec: codec, Width: 320, Height: 240, Rate: robocache.Rate{Num: 30, Den: 1}}); err != nil {
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
			rep, err := ToLeRobot(t.Context(), src, dst, Options{VideoCodec: string(codec), Episodes: episodes, TempDir: temp, VideoFileBytes: 300_000})
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
						got := picture(t, out, pool, f.Key, robocache.Row{Episode: i, Index: k})
						right := rms(got, picture(t, src, pool, f.Key, robocache.Row{Episode: e, Index: k}))
						other := rms(got, picture(t, src, pool, f.Key, robocache.Row{Episode: e, Index: (k + n/3) % n}))
						if right > 8 || right >= other {
							t.Errorf("episode %d %s row %d: %.1f levels from its own picture, %.1f from another", e, f.Key, k, right, other)
						}
					}
				}
			}
		})
	}
}

// A dry run says what a run does, and writes nothing.
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
	if dry.NumEpisodes != rep.NumEpisodes || dry.NumFrames != rep.NumFrames || dry.Copied != rep.Copied || len(dry.Added) != 1 || len(rep.Added) != 1 || dry.Added[0] != RecordedStamps {
		t.Errorf("dry %+v\nrun %+v", dry, rep)
	}
}
