package mcap_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// camera is a dataset with one camera. Its frames are those of a video file; from[episode] is the
// first frame of an episode.
type camera struct {
	robocache.Dataset
	info    robocache.Info
	lib     *video.Library
	file    string
	from    []int
	missing map[robocache.Row]bool
}

const cam = "observation.images.cam"

func newCamera(t *testing.T, file string, codec video.Codec, from ...int) *camera {
	t.Helper()
	rows, err := synth.New(synth.Options{Episodes: len(from), Seconds: 0.8, Cameras: -1})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	c := &camera{Dataset: rows, info: *rows.Info(), file: filepath.Base(file), from: from}
	c.info.Features = append(
		slices.Clone(c.info.Features),
		robocache.Feature{
			Key:      cam,
			Kind:     robocache.KindVideo,
			DType:    robocache.Uint8,
			Codec:    string(codec),
			Shape:    []int{122, 162, 3},
			Height:   122,
			Width:    162,
			Channels: 3,
			FPS:      c.info.FPS,
		},
	)
	c.lib = video.NewLibrary(
		func(ctx context.Context, path string) (robocache.Ranged, error) {
			return st.Open(ctx, path)
		},
		0,
	)
	t.Cleanup(func() { c.lib.Close(); store.Close(st); rows.Close() })
	return c
}

func (c *camera) Info() *robocache.Info { return &c.info }
func (c *camera) Video() *video.Library { return c.lib }
func (c *camera) Times(ctx context.Context, e int, key string) ([]int64, error) {
	if key == cam {
		key = ""
	}
	return c.Dataset.Times(ctx, e, key)
}

func (c *camera) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	for i, r := range rows {
		if out[i] = (robocache.FrameRef{
			Path:    c.file,
			Ordinal: c.from[r.Episode] + r.Index,
		}); c.missing[r] {
			out[i] = robocache.FrameRef{Missing: true}
		}
	}
	return nil
}

// clip makes a video of 48 frames, or skips the test.
func clip(t *testing.T, name, how string) string {
	t.Helper()
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip("no decoder in this build:", err)
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg CLI to make video with:", err)
	}
	file := filepath.Join(t.TempDir(), name)
	args := append(
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
	if out, err := exec.Command("ffmpeg", append(args, file)...).CombinedOutput(); err != nil {
		t.Skipf("this ffmpeg cannot make it: %v: %s", err, out)
	}
	return file
}

type filmable interface {
	robocache.Dataset
	Video() *video.Library
}

// TestVideoIsCopied checks that packets of each codec are copied unchanged and decode to the frames
// of the file. It decodes with this package and, if available, with PyAV from the mcap package.
func TestVideoIsCopied(t *testing.T) {
	for codec, how := range map[video.Codec]string{
		video.H264: x264, video.HEVC: x265 + " -tag:v hvc1", video.AV1: "-c:v libsvtav1 -g 12 " +
			"-preset 12 -svtav1-params log-level=0", video.VP9: "-c:v libvpx-vp9 -g 12 " +
			"-deadline realtime -cpu-used 8 -b:v 400k",
	} {
		t.Run(string(codec), func(t *testing.T) {
			file := clip(
				t,
				"a.mp4",
				how+" -colorspace bt709 -color_primaries bt709 -color_trc bt709",
			)
			// The second episode begins at a key frame within the file.
			src := newCamera(t, file, codec, 0, 24)
			src.missing = map[robocache.Row]bool{{Episode: 1, Index: src.Len(1) - 1}: true}
			dst := filepath.Join(t.TempDir(), "out")
			report, err := mcap.Write(t.Context(), src, dst, robocache.WriteOptions{})
			if err != nil || len(report.Findings) > 0 {
				t.Fatal(err, report)
			}
			out, err := mcap.Open(t.Context(), dst, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			f := out.Info().Feature(cam)
			if f == nil || f.Kind != robocache.KindVideo || f.Codec != string(codec) ||
				f.Width != 162 ||
				f.Height != 122 ||
				f.Clock != "" {
				t.Fatalf("%+v %v", f, out.Info().Findings)
			}
			// A copy is copied again, with the same bytes.
			again := filepath.Join(t.TempDir(), "again")
			twice, err := mcap.Write(t.Context(), out, again, robocache.WriteOptions{})
			if err != nil || twice.Bytes < report.Bytes*99/100 ||
				twice.Bytes > report.Bytes*101/100 {
				t.Errorf("%+v, %+v: %v", report, twice, err)
			}
			third, err := mcap.Open(t.Context(), again, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer third.Close()
			var all []string
			for e := range 2 {
				want := decodedOf(t, src, e)
				if got := decodedOf(t, out, e); !slices.Equal(want, got) {
					t.Errorf("episode %d: frames differ:\n%v\n%v", e, want, got)
				}
				if got := decodedOf(t, third, e); !slices.Equal(want, got) {
					t.Errorf("episode %d: frames of the copy of the copy differ", e)
				}
				all = append(all, want...)
			}
			entry := func(ds filmable, e int) video.SampleEntry {
				refs := make([]robocache.FrameRef, 1)
				if err := ds.Frames(t.Context(), cam, []robocache.Row{{Episode: e}}, refs); err !=
					nil {
					t.Fatal(err)
				}
				file, err := ds.Video().Acquire(t.Context(), refs[0].Path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Release()
				return file.Index.Entries()[0]
			}
			if a, b := entry(src, 0), entry(out, 0); a.Matrix != b.Matrix ||
				a.Primaries != b.Primaries || a.Transfer != b.Transfer ||
				a.FullRange != b.FullRange {
				t.Errorf("colours %+v, written %+v", a, b)
			}
			pyav(t, dst, all)
		})
	}
}

// decodedOf returns the MD5 of the planes of all rows of an episode.
func decodedOf(t *testing.T, ds filmable, e int) []string {
	t.Helper()
	rows := upTo(ds.Len(e))
	return decoded(t, of{ds, e}, cam, rows)
}

// of presents one episode of a dataset as its first episode.
type of struct {
	filmable
	episode int
}

func (o of) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	list := slices.Clone(rows)
	for i := range list {
		list[i].Episode = o.episode
	}
	return o.filmable.Frames(ctx, key, list, out)
}

// pyav compares the messages with the expected frames. The mcap package reads them, and PyAV
// decodes each one separately.
func pyav(t *testing.T, dir string, want []string) {
	t.Helper()
	const script = `
import glob, hashlib, json, sys
try:
    import av, numpy as np
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory
except ImportError as e:
    print("missing", e); sys.exit(0)
names = {"h265": "hevc", "av1": "libdav1d"}
out = []
for path in sorted(glob.glob(sys.argv[1] + "/*.mcap")):
    decoder = None
    for schema, channel, message, m in make_reader(open(path, "rb"), decoder_factories=[DecoderFactory()]).iter_decoded_messages(topics=["/observation/images/cam"]):
        assert schema.name == "foxglove_msgs/msg/CompressedVideo" and m.timestamp.sec * 10**9 + m.timestamp.nanosec == message.log_time
        if len(m.data) == 0:
            out.append("")
            continue
        data = bytes(m.data)
        if decoder is None:
            decoder = av.CodecContext.create(names.get(m.format, m.format), "r")
            decoder.thread_count = 1
            decoder.options = {"framethreads": "1", "max_frame_delay": "1", "flags": "low_delay"} if m.format == "av1" else {"flags": "low_delay"}
        frames = decoder.decode(av.Packet(data))
        assert len(frames) == 1, (len(out), len(frames), m.format)
        planes = [np.frombuffer(p, np.uint8).reshape(p.height, p.line_size)[:, :p.width].tobytes() for p in frames[0].planes]
        out.append(hashlib.md5(b"".join(planes)).hexdigest())
print(json.dumps(out))
`
	b, err := exec.Command(filmmaker(t), "-c", script, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if strings.HasPrefix(string(b), "missing") {
		t.Skip(string(b))
	}
	var got []string
	if err := json.Unmarshal(b, &got); err != nil || !slices.Equal(got, want) {
		t.Errorf("PyAV decodes other frames: %v\n%v\n%v", err, got, want)
	}
}

// TestVideoAsStills checks that video whose packets cannot be copied becomes lossless images and
// that the report gives the reason. The same happens on request.
func TestVideoAsStills(t *testing.T) {
	plain := clip(t, "plain.mp4", x264)
	reordered := clip(t, "b.mp4", "-c:v libx264 -g 12 -bf 2 -x264-params b-adapt=0:scenecut=0")
	for name, c := range map[string]struct {
		file    string
		from    int
		options map[string]string
		why     string
	}{
		"reordered":    {reordered, 0, nil, "decoding order"},
		"inside a GOP": {plain, 5, nil, "inside a group of pictures"},
		"asked":        {plain, 0, map[string]string{"video": "stills"}, ""},
		"as before":    {plain, 0, map[string]string{"images": "png"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			src := newCamera(t, c.file, video.H264, 0, c.from)
			dst := filepath.Join(t.TempDir(), "out")
			report, err := mcap.Write(
				t.Context(),
				src,
				dst,
				robocache.WriteOptions{Options: c.options},
			)
			if err != nil {
				t.Fatal(err)
			}
			found := len(report.Findings) == 1 && report.Findings[0].Code == "video-as-stills" &&
				strings.Contains(report.Findings[0].Message, c.why)
			if found != (c.why != "") || len(report.Findings) > 1 {
				t.Errorf("%+v", report.Findings)
			}
			out, err := mcap.Open(t.Context(), dst, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			if f := out.Info().
				Feature(cam); f == nil || f.Kind != robocache.KindImage ||
				out.Len(1) != src.Len(1) {
				t.Errorf("%+v", f)
			}
		})
	}
}
