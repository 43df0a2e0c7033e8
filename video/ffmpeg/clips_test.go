//go:build cgo

package ffmpeg

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// clip is a video that the ffmpeg program creates at test time.
type clip struct {
	name, size, format string
	args               string
}

const x265Quiet = ":log-level=none:pools=1:frame-threads=1"

var clips = []clip{
	{"av1 g=2", "160x120", "yuv420p", "-c:v libsvtav1 -preset 12 -g 2 -svtav1-params lp=1"},
	{
		"av1 g=16, hidden frames",
		"160x120",
		"yuv420p",
		"-c:v libsvtav1 -preset 12 -g 16 -svtav1-params lp=1",
	},
	{"av1 10 bit", "160x120", "yuv420p10le", "-c:v libsvtav1 -preset 12 -g 8 -svtav1-params lp=1"},
	{"h264 g=2", "160x120", "yuv420p", "-c:v libx264 -g 2"},
	{"h264 gop 250, b-frames", "160x120", "yuv420p", "-c:v libx264 -g 250 -bf 3"},
	{
		"h264 open gop",
		"160x120",
		"yuv420p",
		"-c:v libx264 -bf 3 -x264-params open-gop=1:keyint=12:min-keyint=12:scenecut=0",
	},
	{
		"h264 open gop, b-pyramid, 4 refs",
		"160x120",
		"yuv420p",
		"-c:v libx264 -bf 8 -refs 4 -x264-params open-gop=1:keyint=24:b-pyramid=normal:b-adapt=0",
	},
	{"h264 interlaced", "160x128", "yuv420p", "-c:v libx264 -flags +ildct+ilme -g 12 -bf 2"},
	{"h264 10 bit", "160x120", "yuv420p10le", "-c:v libx264 -g 12"},
	{"h264 lossless 4:4:4", "98x62", "yuv444p", "-c:v libx264 -qp 0 -g 12"},
	{
		"hevc open gop",
		"160x120",
		"yuv420p",
		"-c:v libx265 -tag:v hvc1 -x265-params keyint=8:min-keyint=8:open-gop=1" + x265Quiet,
	},
	{
		"hevc default",
		"160x120",
		"yuv420p",
		"-c:v libx265 -tag:v hev1 -x265-params keyint=30" + x265Quiet,
	},
	{
		"hevc 10 bit open gop",
		"160x120",
		"yuv420p10le",
		"-c:v libx265 -tag:v hvc1 -x265-params keyint=8:min-keyint=8:open-gop=1" + x265Quiet,
	},
	{
		"hevc temporal layers",
		"160x120",
		"yuv420p",
		"-c:v libx265 -tag:v hvc1 -x265-params keyint=24:temporal-layers=2:b-adapt=0:bframes=4" +
			x265Quiet,
	},
	{
		"hevc gray12 lossless g=2",
		"160x120",
		"gray12le",
		"-c:v libx265 -tag:v hvc1 -x265-params keyint=2:min-keyint=2:lossless=1" + x265Quiet,
	},
	{"mpeg4 b-frames", "160x120", "yuv420p", "-c:v mpeg4 -q:v 3 -g 12 -bf 2"},
	{"mpeg4 odd", "99x57", "yuv420p", "-c:v mpeg4 -q:v 3 -g 12"},
	{"vp9 g=8", "160x120", "yuv420p", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 8"},
	{
		"vp9 alternate references",
		"160x120",
		"yuv420p",
		"-c:v libvpx-vp9 -deadline good -cpu-used 5 -g 40 -auto-alt-ref 1 -lag-in-frames 16",
	},
	{"vp9 odd", "101x67", "yuv420p", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 8"},
	{"width 84", "84x84", "yuv420p", "-c:v libx264 -g 10"},
	{"width 100", "100x60", "yuv420p", "-c:v libx264 -g 10"},
	{"width 150", "150x150", "yuv420p", "-c:v libx264 -g 10"},
	{"width 322", "322x182", "yuv420p", "-c:v libx264 -g 10"},
	{"width 18", "18x34", "yuv420p", "-c:v libx264 -g 10"},
	{"full range", "160x120", "yuvj420p", "-c:v libx264 -g 10 -color_range pc"},
	{
		"bt.709",
		"160x120",
		"yuv420p",
		"-c:v libx264 -g 10 -colorspace bt709 -color_primaries bt709 -color_trc bt709",
	},
	{
		"bt.2020",
		"160x120",
		"yuv420p",
		"-c:v libx264 -g 10 -colorspace bt2020nc -color_primaries bt2020 -color_trc bt709",
	},
	{"4:2:2", "150x98", "yuv422p", "-c:v libx264 -g 10"},
	{"4:4:4", "101x67", "yuv444p", "-c:v libx264 -g 10"},
	{"4:2:2, odd height", "98x67", "yuv422p", "-c:v libx264 -g 10"},
}

// exact reports whether the peers' RGB is bit-identical to ours (ffmpeg.F1).
func (c clip) exact() bool { return !strings.HasPrefix(c.format, "gray") }

func needFFmpeg(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg CLI to make clips with")
	}
}

func ffmpegCLI(t testing.TB, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("ffmpeg", append([]string{"-nostdin", "-v", "error", "-y"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ffmpeg %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// clipFrames exceeds the GOP of every clip with limited GOPs, and every look-ahead.
const clipFrames = 72

// exhaustive reports whether the nightly tests run: every frame alone, every real file, and many
// plans.
func exhaustive() bool { return os.Getenv("ROBOCACHE_EXHAUSTIVE") == "1" }

// clipDir is the folder of the clips. TestMain removes it.
var clipDir struct {
	sync.Mutex
	path string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if clipDir.path != "" {
		os.RemoveAll(clipDir.path)
	}
	os.Exit(code)
}

func newClipPath(number int) (string, error) {
	clipDir.Lock()
	defer clipDir.Unlock()
	if clipDir.path == "" {
		dir, err := os.MkdirTemp("", "clips")
		if err != nil {
			return "", err
		}
		clipDir.path = dir
	}
	return filepath.Join(clipDir.path, fmt.Sprintf("%d.mp4", number)), nil
}

// encoders returns the encoder list of the ffmpeg program.
var encoders = sync.OnceValue(func() string {
	out, _ := exec.Command("ffmpeg", "-hide_banner", "-v", "error", "-encoders").Output()
	return string(out)
})

// recipe creates one clip and its hashes, once per process.
type recipe struct {
	clip, sums sync.Once
	path       string
	want       []string
}

var recipes = func() map[string]*recipe {
	all := map[string]*recipe{}
	for _, c := range clips {
		all[c.name] = &recipe{}
	}
	return all
}()

// make encodes a moving test pattern with noise, so that no two frames are equal. If the encoder is
// missing, the test is skipped.
func (c clip) make(t testing.TB) string {
	t.Helper()
	needFFmpeg(t)
	words := strings.Fields(c.args)
	if !strings.Contains(encoders(), " "+words[1]+" ") {
		t.Skipf("this ffmpeg has no %s", words[1])
	}
	r := recipes[c.name]
	r.clip.Do(func() {
		path, err := newClipPath(
			slices.IndexFunc(clips, func(o clip) bool { return o.name == c.name }),
		)
		if err != nil {
			t.Fatal(err)
		}
		args := []string{
			"-f",
			"lavfi",
			"-i",
			"testsrc2=size=" + c.size + ":rate=30,noise=alls=12:allf=t:all_seed=7",
			"-frames:v",
			strconv.Itoa(clipFrames),
			"-pix_fmt",
			c.format,
			"-threads",
			"1",
		}
		ffmpegCLI(t, append(append(args, words...), path)...)
		r.path = path
	})
	if r.path == "" {
		t.Fatalf("%s could not be made", c.name)
	}
	return r.path
}

// hashes returns ffmpeg's hash of every frame of the clip.
func (c clip) hashes(t testing.TB) []string {
	t.Helper()
	path, r := c.make(t), recipes[c.name]
	r.sums.Do(func() {
		if !alike && strings.Contains(c.args, "mpeg4") {
			// the averages of the standard, without the shortcut of x86-64 (ffmpeg.F2)
			r.want = fileSums(t, path, "-cpuflags", "0")
		} else {
			r.want = fileSums(t, path)
		}
	})
	if len(r.want) != clipFrames {
		t.Fatalf("ffmpeg decodes %d frames", len(r.want))
	}
	return r.want
}

func fileSums(t testing.TB, path string, flags ...string) []string {
	return readMD5(
		t,
		bytes.NewReader(
			ffmpegCLI(
				t,
				append(
					flags,
					"-noautorotate",
					"-threads",
					"1",
					"-i",
					path,
					"-map",
					"0:v:0",
					"-fps_mode",
					"passthrough",
					"-f",
					"framemd5",
					"-",
				)...),
		),
	)
}

// ffmpeg.F2: every frame of every clip, in sequence, alone, and by random plans.
func TestClips(t *testing.T) {
	singles, plans := 12, 10
	switch {
	case exhaustive():
		singles, plans = clipFrames, 60
	case testing.Short():
		singles, plans = 4, 3
	}
	t.Logf(
		"each clip (with -short one of four) in sequence, %d of %d frames alone, "+
			"%d random plans (ROBOCACHE_EXHAUSTIVE=1: %d and 60)",
		singles,
		clipFrames,
		plans,
		clipFrames,
	)
	for i, c := range clips {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkSums(t, c.make(t), c.hashes(t), singles, plans)
		})
	}
}

// ffmpeg.F1 on the clips: color is bit-identical to both peers; with more than 8 bits to
// torchcodec.
func TestPeersOnClips(t *testing.T) {
	t.Parallel() // two thirds of the time are Python's imports
	py := python(t)
	if testing.Short() {
		t.Skip("short")
	}
	var paths []string
	for _, c := range clips {
		t.Run("make/"+c.name, func(t *testing.T) { paths = append(paths, c.make(t)) })
	}
	count := peerCount(t, 13)
	sums := peerSums(t, py, count, paths)
	for _, c := range clips {
		t.Run(c.name, func(t *testing.T) {
			path := c.make(t)
			differ, have := comparePeers(t, path, count, sums[path])
			for i := range differ {
				switch {
				case !have[i]:
					t.Logf("%s cannot read it", peerNames[i])
				case differ[i] > 0 && i == 0 && strings.HasPrefix(c.name, "bt."):
					t.Log("PyAV before 18 takes BT.601 for every stream")
				case differ[i] > 0 && i == 0 && strings.Contains(c.format, "10le"):
					t.Log(
						"PyAV interpolates chroma of more than 8 bits linearly, torchcodec by " +
							"cubics",
					)
				case differ[i] > 0 && c.exact():
					t.Errorf("%d frames differ from %s", differ[i], peerNames[i])
				case differ[i] > 0:
					t.Logf("%s: %d frames differ from %s", c.format, differ[i], peerNames[i])
				}
			}
		})
	}
}

// ffmpegCLIRotated returns frame 2 of rot90.mp4 as the ffmpeg program shows it, or nil without the
// program.
func ffmpegCLIRotated(t *testing.T) []byte {
	t.Helper()
	needFFmpeg(t)
	return ffmpegCLI(
		t,
		"-i",
		filepath.Join("testdata", "odd", "rot90.mp4"),
		"-vf",
		`select=eq(n\,2)`,
		"-frames:v",
		"1",
		"-pix_fmt",
		"rgb24",
		"-f",
		"rawvideo",
		"-",
	)
}

// ffmpeg.F2 on the files of testdata/odd.
func TestOddFiles(t *testing.T) {
	needFFmpeg(t)
	if testing.Short() {
		t.Skip("short: TestGolden has their hashes")
	}
	paths, _ := filepath.Glob(filepath.Join("testdata", "odd", "*.mp4"))
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want := fileSums(t, path)
			checkSums(t, path, want, len(want), 5)
		})
	}
}
