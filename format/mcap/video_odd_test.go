package mcap_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/video"
)

// oddly makes recordings with unusual video (testdata/odd.py): odd.mcap and the folder cams.
func oddly(t *testing.T) string {
	t.Helper()
	python := filmmaker(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "cams"), 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{filepath.Join("testdata", "odd.py"), dir}
	for _, s := range [][3]string{
		{"a.h264", "64x48", x264},
		{"b.h264", "80x64", x264},
		{"c.hevc", "64x48", x265},
	} {
		file := filepath.Join(dir, s[0])
		cmd := append(
			[]string{
				"-nostdin",
				"-v",
				"error",
				"-f",
				"lavfi",
				"-i",
				"testsrc2=size=" + s[1] + ":rate=30",
				"-frames:v",
				"24",
				"-pix_fmt",
				"yuv420p",
				"-threads",
				"1",
			},
			strings.Fields(s[2])...)
		if out, err := exec.Command("ffmpeg", append(cmd, file)...).CombinedOutput(); err != nil {
			t.Skipf("this ffmpeg cannot make %s: %v: %s", s[0], err, out)
		}
		args = append(args, file)
	}
	if out, err := exec.Command(python, args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ModuleNotFoundError") {
			t.Skip(string(out))
		}
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestVideoBehindNothing checks that images are found after messages without any. A topic without
// images is omitted and named, or reported and not used as an anchor. Inspect looks beyond rows
// without an image.
func TestVideoBehindNothing(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(oddly(t), "odd.mcap")
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
		sums := decoded(t, ds, "dotted", upTo(24))
		for _, key := range []string{"late", "image"} {
			f := ds.Info().Feature(key)
			if f == nil || f.Kind != robocache.KindVideo || f.Codec != "h264" || f.Width != 64 ||
				f.Height != 48 ||
				!f.Masked {
				t.Fatalf("scan=%s: %s: %+v", scan, key, f)
			}
			for k, s := range decoded(t, ds, key, upTo(44)) {
				want := ""
				if k >= 20 {
					want = sums[k-20]
				}
				if s != want || k >= 20 && s == "" {
					t.Fatalf("scan=%s: %s: row %d: %q, expected %q", scan, key, k, s, want)
				}
			}
		}
		if ds.Info().Feature("never") != nil {
			t.Error("scan=" + scan + ": a topic without an image is a stream")
		}
		found := map[string]string{}
		for _, f := range ds.Info().Findings {
			found[f.Code] += f.Where.String()
		}
		if !strings.Contains(found["unreadable-topic"], "/never") ||
			scan == "all" && !strings.Contains(found["video-without-images"], "sets") {
			t.Errorf("scan=%s: %v", scan, found)
		}
		if err := ds.Info().Withheld("never"); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("scan=%s: asking for never: %v, want malformed", scan, err)
		}
		rep, err := inspect.Dataset(ctx, ds)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range rep.Streams {
			if s.Key != "sets" && s.GOP != 12 {
				t.Errorf("scan=%s: inspect: %s has a GOP of %v", scan, s.Key, s.GOP)
			}
		}
	}
}

// TestVideoOfEachRecording checks that packets are read with the codec of their recording. A first
// recording without a key frame does not hide the topic in other recordings. Images of another size
// than the stream are reported and not copied.
func TestVideoOfEachRecording(t *testing.T) {
	ctx := context.Background()
	dir := oddly(t)
	ds, err := mcap.Open(ctx, filepath.Join(dir, "cams"), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	f := ds.Info().Feature("cam")
	if f == nil || f.Width != 64 || f.Height != 48 {
		t.Fatalf("%+v", f)
	}
	for ep, want := range []int{0, 24, 24, 24} {
		refs := make([]robocache.FrameRef, ds.Len(ep))
		rows := make([]robocache.Row, ds.Len(ep))
		for k := range rows {
			rows[k] = robocache.Row{Episode: ep, Index: k}
		}
		if err := ds.Frames(ctx, "cam", rows, refs); err != nil {
			t.Fatal(ep, err)
		}
		n := 0
		for _, r := range refs {
			if !r.Missing {
				n++
			}
		}
		if n != want {
			t.Errorf("episode %d: %d images, expected %d", ep, n, want)
		}
		if want == 0 {
			continue
		}
		file, err := ds.Video().Acquire(ctx, refs[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		if e := file.Index.Entries()[0]; ep == 3 && e.Codec != video.HEVC ||
			ep < 3 && e.Codec != video.H264 {
			t.Errorf("episode %d is %s", ep, e.Codec)
		}
		file.Release()
	}
	differs := 0
	for _, f := range ds.Info().Findings {
		if f.Code == "image-size-differs" {
			differs++
			if f.Where["file"] != "2.mcap" {
				t.Error(f)
			}
		}
	}
	if differs != 1 {
		t.Error(ds.Info().Findings)
	}
	opt := convert.Options{
		WriteOptions: robocache.WriteOptions{Episodes: []int{1, 2, 3}},
		Align:        &align.Config{HZ: robocache.Rate{Num: 30, Den: 1}},
	}
	if _, err := toLeRobot(ctx, ds, filepath.Join(dir, "copied"), opt,
		map[string]string{"copy_only": "true"}); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "80×64") {
		t.Error(err)
	}
	rep, err := toLeRobot(
		ctx,
		ds,
		filepath.Join(dir, "out"),
		opt,
		map[string]string{"codec": "h264"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Copied != 2 || rep.Encoded != 1 {
		t.Errorf("%d copied, %d encoded", rep.Copied, rep.Encoded)
	}
}
