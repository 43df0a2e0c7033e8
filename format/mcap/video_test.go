package mcap_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// filmmaker returns the Python that writes video into recordings. The test is skipped without it,
// an encoder or a decoder.
func filmmaker(t *testing.T) (python string) {
	t.Helper()
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip("no decoder in this build:", err)
	}
	python = filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no Python environment:", err)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg CLI to make video with:", err)
	}
	return python
}

// filmed makes a recording with video in messages (testdata/video.py). It returns the MD5 of the
// images of each stream as PyAV decodes them.
func filmed(t *testing.T, h264, h265 string) (path string, want map[string][]string) {
	t.Helper()
	python := filmmaker(t)
	dir := t.TempDir()
	path = filepath.Join(dir, "filmed.mcap")
	args := []string{filepath.Join("testdata", "video.py"), path, filepath.Join(dir, "want.json")}
	for name, how := range map[string]string{"h264": h264, "h265": h265} {
		if how == "" {
			continue
		}
		file := filepath.Join(dir, map[string]string{"h264": "a.h264", "h265": "a.hevc"}[name])
		cmd := append(
			[]string{
				"-nostdin",
				"-v",
				"error",
				"-f",
				"lavfi",
				"-i",
				"testsrc2=size=162x122:rate=30,noise=alls=12:allf=t:all_seed=7",
				"-frames:v",
				"48",
				"-pix_fmt",
				"yuv420p",
				"-threads",
				"1",
			},
			strings.Fields(how)...)
		if out, err := exec.Command("ffmpeg", append(cmd, file)...).CombinedOutput(); err != nil {
			t.Skipf("this ffmpeg cannot make %s: %v: %s", name, err, out)
		}
		args = append(args, name+"="+file)
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ModuleNotFoundError") {
			t.Skip(string(out))
		}
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "want.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	return path, want
}

const (
	x264 = "-c:v libx264 -g 12 -bf 0"
	x265 = "-c:v libx265 -x265-params " +
		"keyint=12:min-keyint=12:scenecut=0:bframes=0:repeat-headers=1:log-level=none:pools=1:frame-threads=1"
)

// decoded returns the MD5 of the planes of rows of a stream, or "" for rows without an image.
func decoded(t *testing.T, ds interface {
	robocache.Dataset
	Video() *video.Library
}, key string, rows []int,
) []string {
	t.Helper()
	ctx := context.Background()
	list := make([]robocache.Row, len(rows))
	for i, r := range rows {
		list[i].Index = r
	}
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(ctx, key, list, refs); err != nil {
		t.Fatal(key, err)
	}
	pool := video.NewPool(0)
	defer pool.Close()
	out := make([]string, len(rows))
	ordinals := []int{}
	path := ""
	for _, r := range refs {
		if !r.Missing {
			path = r.Path
			ordinals = append(ordinals, r.Ordinal)
		}
	}
	if path == "" {
		return out
	}
	f, err := ds.Video().Acquire(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	sums := map[int]string{}
	spec := video.Spec{Pixel: video.YUVPlanes}
	if err := pool.Decode(
		ctx,
		f,
		nil,
		video.Plan(f.Index, ordinals),
		func(k int, pic video.Frame) error {
			n, err := pic.Bytes(&spec)
			if err != nil {
				return err
			}
			b := make([]byte, n)
			if err := pic.Convert(&spec, b); err != nil {
				return err
			}
			h := md5.Sum(b)
			sums[k] = hex.EncodeToString(h[:])
			return nil
		},
	); err != nil {
		t.Fatal(key, err)
	}
	for i, r := range refs {
		if !r.Missing {
			out[i] = sums[r.Ordinal]
		}
	}
	return out
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestVideo checks that images of video in messages equal those of libavcodec bit for bit, in any
// order. Images that cannot be decoded are invalid and reported. The same holds if opening reads
// only a sample.
func TestVideo(t *testing.T) {
	ctx := context.Background()
	path, want := filmed(t, x264, x265)
	r := rand.New(rand.NewPCG(3, 4))
	for _, scan := range []string{"all", "sample"} {
		ds, err := mcap.Open(
			ctx,
			path,
			robocache.OpenOptions{Options: map[string]string{"scan": scan}},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		for name, sums := range want {
			if len(sums) != 48 {
				t.Fatalf("%d images of %s", len(sums), name)
			}
			codec := map[string]string{"h264": "h264", "h265": "hevc"}[name]
			for _, topic := range []string{"cam", "image", "late"} {
				key := topic + "." + name
				f := ds.Info().Feature(key)
				if f == nil || f.Kind != robocache.KindVideo || f.Width != 162 || f.Height != 122 ||
					f.Codec != codec {
					t.Fatalf("%s: %+v", key, f)
				}
				if f.Masked != (topic == "late" || scan == "sample") {
					t.Errorf("%s, scan=%s: masked %v", key, scan, f.Masked)
				}
				times, err := ds.Times(ctx, 0, key)
				if err != nil {
					t.Fatal(err)
				}
				// The image of each row: packets 5 to 47 without 20. Packets 5 to 11 and 21 to 23
				// cannot be decoded.
				of := upTo(48)
				if topic == "late" {
					of = nil
					for k := 5; k < 48; k++ {
						if k != 20 {
							of = append(of, k)
						}
					}
				}
				if len(times) != len(of) {
					t.Fatalf("%s: %d rows, expected %d", key, len(times), len(of))
				}
				expect := func(rows []int) {
					t.Helper()
					got := decoded(t, ds, key, rows)
					valid := make([]uint8, len(rows))
					list := make([]robocache.Row, len(rows))
					for i, row := range rows {
						list[i].Index = row
					}
					if err := ds.Valid(ctx, key, list, valid); err != nil {
						t.Fatal(err)
					}
					for i, row := range rows {
						k := of[row]
						w := sums[k]
						if topic == "late" && (k < 12 || k > 20 && k < 24 && codec == "h264") {
							w = ""
						}
						if topic == "late" && k > 20 && k < 24 && codec == "hevc" {
							continue // no counter in the stream reveals a missing message
						}
						if got[i] != w || (valid[i] == 1) != (w != "") {
							t.Fatalf(
								"%s, scan=%s, row %d (image %d): %q, expected %q; valid %d",
								key,
								scan,
								row,
								k,
								got[i],
								w,
								valid[i],
							)
						}
						if at := int64(1_770_000_000_000_000_000) +
							int64(k)*1_000_000_000/30; times[row] != at {
							t.Fatalf("%s: row %d at %d, expected %d", key, row, times[row], at)
						}
					}
				}
				expect(upTo(len(of)))
				for range 6 {
					expect([]int{r.IntN(len(of)), r.IntN(len(of)), r.IntN(len(of))})
				}
			}
		}
		found, err := ds.Diagnose(ctx, robocache.DiagnoseOptions{Decode: true})
		if err != nil {
			t.Fatal(err)
		}
		codes := map[string]int64{}
		for _, f := range found {
			codes[f.Code] += f.Count
			if f.Code == "bad-video" {
				t.Error(f)
			}
		}
		if codes["video-before-key"] != 14 || codes["video-cut"] != 3 {
			t.Errorf("scan=%s: %v", scan, codes)
		}
	}
	formattest.Run(t, formattest.Fixture{URI: path, Format: "mcap"})
}

// TestVideoRefused checks that a topic whose images are not in display order is omitted and named,
// and that others are read.
func TestVideoRefused(t *testing.T) {
	path, _ := filmed(t, "-c:v libx264 -g 12 -bf 3", "")
	ds, err := mcap.Open(context.Background(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if ds.Info().Feature("cam.h264") != nil || ds.Info().Feature("joints.position") == nil {
		t.Error("streams", ds.Info().Features)
	}
	said := false
	for _, f := range ds.Info().Findings {
		said = said || f.Code == "unsupported-topic" && strings.Contains(f.Message, "B frames")
	}
	if !said {
		t.Error(ds.Info().Findings)
	}
	if _, err := ds.Video().Acquire(context.Background(), "filmed.mcap#/cam/h264"); !errors.Is(err,
		robocache.ErrNotFound) {
		t.Error(err)
	}
}

// TestVideoConvert checks that packets become a LeRobot video without encoding if the grid is the
// camera's. The images equal those that libavcodec decodes from the stream.
func TestVideoConvert(t *testing.T) {
	ctx := context.Background()
	path, want := filmed(t, x264, x265)
	src, err := mcap.Open(ctx, path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst := filepath.Join(t.TempDir(), "out")
	rep, err := toLeRobot(
		ctx,
		src,
		dst,
		convert.Options{
			WriteOptions: robocache.WriteOptions{
				Keys: []string{"cam.h264", "image.h265", "joints.position"},
			},
			Align: &align.Config{HZ: robocache.Rate{Num: 30, Den: 1}},
		},
		map[string]string{"copy_only": "true"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Copied != 2 || rep.Encoded != 0 {
		t.Errorf("%d copied, %d encoded", rep.Copied, rep.Encoded)
	}
	out, err := lerobot.Open(ctx, dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	n := out.Len(0)
	if n < 46 {
		t.Fatalf("%d rows", n)
	}
	for key, sums := range map[string][]string{
		"cam.h264":   want["h264"],
		"image.h265": want["h265"],
	} {
		got := decoded(t, out, key, upTo(n))
		for k, s := range got {
			if s != sums[k] {
				t.Fatalf("%s: image %d is another", key, k)
			}
		}
	}
}

// toLeRobot converts to LeRobot with options of its writer.
func toLeRobot(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt convert.Options,
	options map[string]string,
) (*write.Report, error) {
	opt.Options = options
	r, err := convert.Write(ctx, src, "lerobot", dst, opt)
	if err != nil {
		return nil, err
	}
	return r.Own.(*write.Report), nil
}
