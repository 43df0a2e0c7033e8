package view

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// made writes a synthetic dataset whose frames show their row.
func made(t *testing.T, format string, opt synth.Options) string {
	t.Helper()
	f, err := convert.Writer(format)
	if err != nil {
		t.Fatal(err)
	}
	ds, options, err := synth.For(opt, f, false)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "set")
	if format == "mcap" {
		dst += ".mcap"
	}
	if _, err := convert.Write(t.Context(), ds, format, dst,
		convert.Options{WriteOptions: robocache.WriteOptions{Options: options}}); errors.Is(err,
		robocache.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dst
}

func rgbOf(img image.Image) ([]byte, int, int) {
	b := img.Bounds()
	m := image.NewRGBA(b)
	draw.Draw(m, b, img, b.Min, draw.Src)
	out := make([]byte, 0, 3*b.Dx()*b.Dy())
	for i := 0; i < len(m.Pix); i += 4 {
		out = append(out, m.Pix[i:i+3]...)
	}
	return out, b.Dx(), b.Dy()
}

// TestFramesAreTheirRows is view.W4 and acceptance case 7: for random episodes, cameras and rows,
// the frame shows its row number. Requests jump, and step forwards and backwards.
func TestFramesAreTheirRows(t *testing.T) {
	for name, c := range map[string]struct {
		format string
		opt    synth.Options
	}{
		"h264 gop 250": {
			"lerobot",
			synth.Options{Codec: "h264", GOP: 250, Seconds: 4, Episodes: 2},
		},
		"av1":    {"lerobot", synth.Options{Codec: "av1", Episodes: 2}},
		"hevc":   {"lerobot", synth.Options{Codec: "hevc", GOP: 30, Episodes: 2}},
		"images": {"lerobot", synth.Options{Codec: "png", Episodes: 2}},
		"mcap": {
			"mcap",
			synth.Options{
				Rates:    map[string]float64{"camera": 30, "joints": 100},
				Jitter:   3e6,
				Late:     3e8,
				Episodes: 2,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := video.ActiveBackend(); err != nil && c.format == "lerobot" {
				t.Skip(err)
			}
			s := serve(t, Options{}, made(t, c.format, c.opt))
			info, rnd := s.server.sets[0].info, rand.New(rand.NewPCG(1, 2))
			var cameras []string
			for i := range info.Features {
				if f := &info.Features[i]; f.Kind == robocache.KindVideo ||
					f.Kind == robocache.KindImage {
					cameras = append(cameras, f.Key)
				}
			}
			row := 0
			for k := range 200 {
				e, key := rnd.IntN(info.Episodes), cameras[rnd.IntN(len(cameras))]
				n := s.server.sets[0].ds.Len(e)
				switch k % 5 {
				case 0:
					row = rnd.IntN(n)
				case 1, 2:
					row = min(row+1, n-1)
				default:
					row = max(min(row, n-1)-1, 0)
				}
				a, b := s.do(
					"GET",
					fmt.Sprintf("/api/e/%d/frame/%s/%d?w=640", e, url.PathEscape(key), row),
					nil,
					nil,
				)
				if a.StatusCode == 404 && c.format == "mcap" {
					continue // the camera has fewer rows than the anchor
				}
				img, err := jpeg.Decode(bytes.NewReader(b))
				if err != nil {
					t.Fatalf("%s: %v", a.Status, err)
				}
				rgb, w, h := rgbOf(img)
				if ge, gr, ok := synth.ReadCode(rgb, w, h); !ok || ge != e || gr != row {
					t.Fatalf(
						"episode %d row %d of %s shows episode %d row %d (%v)",
						e,
						row,
						key,
						ge,
						gr,
						ok,
					)
				}
			}
		})
	}
}

// TestFramesOfARealSet: in a dataset whose timestamps drift by more than a frame, every row shows
// the frame that ffmpeg decodes at its number.
func TestFramesOfARealSet(t *testing.T) {
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip(err)
	}
	s := serve(t, Options{}, "g1_h264_v30_bigdrift")
	key, ds := "observation.images.cam_high", s.server.sets[0].ds
	f := ds.Info().Feature(key)
	w := 64
	h := w * f.Height / f.Width
	raw, err := exec.Command(ffmpeg, "-v", "error", "-i",
		filepath.Join(realdata.Path(t, "g1_h264_v30_bigdrift"), "videos", key,
			"chunk-000/file-000.mp4"), "-fps_mode", "passthrough", "-vf",
		fmt.Sprintf("scale=%d:%d:flags=area", w, h), "-pix_fmt", "rgb24", "-f", "rawvideo",
		"-").Output()
	if err != nil {
		t.Fatal(err)
	}
	frames, n, worst := len(raw)/(3*w*h), 0, 0.0
	distance := func(a, b []byte) (sum float64) {
		for i := range a {
			d := float64(a[i]) - float64(b[i])
			sum += d * d
		}
		return sum / float64(len(a))
	}
	for e := 0; e < ds.Info().Episodes; e += 5 {
		for row := range ds.Len(e) {
			refs := make([]robocache.FrameRef, 1)
			if err := ds.Frames(t.Context(), key, []robocache.Row{{Episode: e, Index: row}},
				refs); err != nil {
				t.Fatal(err)
			}
			_, b := s.do("GET", fmt.Sprintf("/api/e/%d/frame/%s/%d?w=%d", e, key, row, w), nil, nil)
			img, err := jpeg.Decode(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			rgb, gw, gh := rgbOf(img)
			if gw != w || gh != h {
				t.Fatalf("%d×%d", gw, gh)
			}
			at := refs[0].Ordinal
			own := distance(rgb, raw[at*3*w*h:][:3*w*h])
			worst = max(worst, own)
			for _, other := range []int{at - 3, at + 3} {
				if other >= 0 && other < frames &&
					distance(raw[other*3*w*h:][:3*w*h], raw[at*3*w*h:][:3*w*h]) > 4 &&
					distance(rgb, raw[other*3*w*h:][:3*w*h]) < own {
					t.Fatalf(
						"episode %d row %d is nearer to frame %d than to %d",
						e,
						row,
						other,
						at,
					)
				}
			}
			n++
		}
	}
	t.Logf("%d rows, mean square distance to ffmpeg's at most %.1f", n, worst)
	if worst > 60 {
		t.Error("too far")
	}
}

// TestManyAtOnce: concurrent requests, canceled ones, and requests for several widths all get their
// own frame (with -race).
func TestManyAtOnce(t *testing.T) {
	s := serve(t, Options{}, "g1_h264_v30")
	x := s.server.sets[0]
	f := x.info.Feature("observation.images.cam_high")
	want := map[int][]byte{}
	for row := range 60 {
		b, err := s.server.jpegOf(t.Context(), x, f, 0, row, 80)
		if err != nil {
			t.Fatal(err)
		}
		want[row] = b
	}
	s.server.frames.Limit(20 << 10) // space for only a few frames
	var work sync.WaitGroup
	for g := range 6 {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				row := rnd.IntN(60)
				if rnd.IntN(4) == 0 {
					go cancel()
				}
				b, err := s.server.jpegOf(ctx, x, f, 0, row, 80)
				if err == nil && !bytes.Equal(b, want[row]) {
					t.Errorf("row %d: another frame", row)
				} else if err != nil && ctx.Err() == nil &&
					!errors.Is(err, robocache.ErrTemporary) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	work.Wait()
}

func (s *Server) jpegOf(
	ctx context.Context,
	x *viewedSet,
	f *robocache.Feature,
	e, row, width int,
) ([]byte, error) {
	return s.frameJPEG(ctx, x, frameKey{cameraKey{x.cacheID, e, f.Key, width}, row}, f)
}

// TestDepth: colours show near and far depth, and pixels without a measurement are black.
func TestDepth(t *testing.T) {
	s := serve(t, Options{}, made(t, "mcap", synth.Options{Depth: true, Seconds: 1}))
	for i := range s.server.sets[0].info.Features {
		f := &s.server.sets[0].info.Features[i]
		if f.DepthUnit() == "" {
			continue
		}
		_, b := s.do("GET", "/api/e/0/frame/"+url.PathEscape(f.Key)+"/0", nil, nil)
		img, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[color.RGBA]bool{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				r, g, b, _ := img.At(x, y).RGBA()
				seen[color.RGBA{uint8(r >> 12), uint8(g >> 12), uint8(b >> 12), 0}] = true
			}
		}
		if len(seen) < 4 {
			t.Errorf("%d colours", len(seen))
		}
		return
	}
	t.Error("no depth")
}

// TestDepthVideo: HEVC with 12 bits, which browsers do not play, is decoded by the server. A near
// stripe is at the position for its row (acceptance case 7).
func TestDepthVideo(t *testing.T) {
	const w, h, rows = 128, 64, 16
	dst := filepath.Join(t.TempDir(), "set")
	depth := robocache.Feature{
		Key:      "depth",
		Kind:     robocache.KindVideo,
		DType:    robocache.Uint16,
		Height:   h,
		Width:    w,
		Channels: 1,
		Depth:    &robocache.Depth{Min: 0.01, Max: 10, Shift: 3.5, Log: true, Unit: "mm"},
	}
	r, err := lerobot.Record(
		t.Context(),
		dst,
		write.Config{FPS: robocache.Rate{Num: 30, Den: 1}, Features: []robocache.Feature{depth}},
		write.RecordOptions{QueueBytes: 1 << 20},
	)
	if errors.Is(err, robocache.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	for k := range rows {
		img := make([]byte, 0, 2*w*h)
		for i := range w * h {
			mm := uint16(8000)
			if i%w/8 == k {
				mm = 1000
			}
			img = binary.LittleEndian.AppendUint16(img, mm)
		}
		if _, err := r.AddFrame(t.Context(), "look", 0, [][]byte{img}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.SaveEpisode(t.Context()), r.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{}, dst)
	for _, row := range []int{9, 2, 3, 15, 0} {
		_, b := s.do("GET", fmt.Sprintf("/api/e/0/frame/depth/%d?w=%d", row, w), nil, nil)
		img, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		best, at := uint32(0), 0
		for x := 4; x < w; x += 8 {
			if r, _, _, _ := img.At(x, h/2).RGBA(); r > best {
				best, at = r, x/8
			}
		}
		if at != row {
			t.Errorf("row %d: the near stripe stands at %d", row, at)
		}
	}
}
