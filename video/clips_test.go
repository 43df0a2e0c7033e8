package video

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// framesByProbe returns the pts of every frame that ffprobe decodes, in presentation order.
func framesByProbe(t testing.TB, path string) (pts []int64) {
	t.Helper()
	out := runTool(
		t,
		"ffprobe",
		"-v",
		"error",
		"-select_streams",
		"v:0",
		"-show_entries",
		"frame=pts",
		"-of",
		"csv=p=0",
		path,
	)
	for line := range strings.Lines(string(out)) {
		line = strings.Trim(strings.TrimSpace(line), ",")
		if line == "" {
			continue
		}
		v, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatalf("ffprobe says %q", line)
		}
		pts = append(pts, v)
	}
	return pts
}

// TestClipsAgainstProbe creates clips of every common kind, and compares frames and times with
// ffprobe (video.V1).
func TestClipsAgainstProbe(t *testing.T) {
	if testing.Short() {
		t.Skip("short: one goroutine, and programs that take the time")
	}
	t.Parallel() // most of the work is in other programs
	tool(t, "ffmpeg")
	tool(t, "ffprobe")
	x264 := []string{"-c:v", "libx264", "-pix_fmt", "yuv420p"}
	x265 := []string{"-c:v", "libx265", "-x265-params", "log-level=error:pools=1:frame-threads=1"}
	long := clip(t, "long.mp4", append(x264, "-g", "24", "-bf", "3")...)
	open265 := clip(t, "open265.mp4", append(x265, "-g", "8")...)
	clips := map[string]string{
		"h264 with B-frames": long,
		"hevc open GOP":      open265,
		"h264 open GOP": clip(
			t,
			"open264.mp4",
			append(x264, "-g", "12", "-x264-params", "open-gop=1:bframes=3:scenecut=0")...),
		"hevc depth": clip(
			t,
			"depth.mp4",
			"-pix_fmt",
			"gray12le",
			"-c:v",
			"libx265",
			"-g",
			"2",
			"-x265-params",
			"log-level=error:pools=1:frame-threads=1:lossless=1",
		),
		"h264 faststart": clip(t, "fast.mp4", append(x264, "-movflags", "+faststart")...),
		"h264 signed ctts": clip(
			t,
			"signed.mp4",
			append(x264, "-movflags", "+negative_cts_offsets")...),
		"h264 variable rate": clip(
			t,
			"vfr.mp4",
			append(x264, "-vf", "select='mod(n,7)*mod(n,5)',setpts='PTS+0.013*random(0)/TB'",
				"-fps_mode", "vfr")...),
		"h264 and audio before": clip(
			t,
			"audio.mp4",
			"-f",
			"lavfi",
			"-i",
			"sine=duration=4",
			"-map",
			"1:a",
			"-map",
			"0:v",
			"-c:v",
			"libx264",
			"-pix_fmt",
			"yuv420p",
			"-c:a",
			"aac",
		),
		"mpeg4 with B-frames": clip(t, "mpeg4.mp4", "-c:v", "mpeg4", "-bf", "2", "-g", "12"),
		"mov":                 clip(t, "x.mov", x264...),
		"30000/1001": clip(
			t,
			"ntsc.mp4",
			append([]string{"-r", "30000/1001"}, x264...)...),
		"late start": clip(t, "late.mp4", append(x264, "-output_ts_offset", "1.5")...),
	}
	cut := func(name, src string, args ...string) string {
		path := filepath.Join(t.TempDir(), name)
		all := append([]string{"-v", "error", "-nostdin", "-y"}, args...)
		runTool(t, "ffmpeg", append(all, path)...)
		return path
	}
	clips["h264 excerpt by stream copy"] = cut(
		"cut.mp4",
		long,
		"-ss",
		"1.21",
		"-i",
		long,
		"-t",
		"1.5",
		"-c",
		"copy",
	)
	clips["h264 excerpt of the start"] = cut(
		"head.mp4",
		long,
		"-i",
		long,
		"-t",
		"0.77",
		"-c",
		"copy",
	)
	clips["mpeg4 excerpt"] = cut(
		"cut4.mp4",
		"",
		"-ss",
		"0.9",
		"-i",
		clips["mpeg4 with B-frames"],
		"-t",
		"1",
		"-c",
		"copy",
	)
	if encoderListed(t, "libsvtav1") {
		clips["av1"] = clip(
			t,
			"av1.mp4",
			"-c:v",
			"libsvtav1",
			"-g",
			"2",
			"-crf",
			"30",
			"-preset",
			"12",
		)
		clips["av1 excerpt"] = cut(
			"cutav1.mp4",
			"",
			"-ss",
			"0.52",
			"-i",
			clips["av1"],
			"-c",
			"copy",
		)
	}
	if encoderListed(t, "libvpx-vp9") {
		clips["vp9"] = clip(
			t,
			"vp9.mp4",
			"-c:v",
			"libvpx-vp9",
			"-g",
			"8",
			"-deadline",
			"realtime",
			"-cpu-used",
			"8",
		)
	}
	for name, path := range clips {
		want := framesByProbe(t, path)
		for strings.HasPrefix(name, "av1") && len(want) > 0 && want[0] < 0 {
			want = want[1:] // FFmpeg's libdav1d ignores the discard flag of a packet
		}
		ix := indexOf(t, path)
		got := make([]int64, ix.NumFrames())
		for k := range got {
			got[k] = ix.PTS(k)
		}
		if !slices.Equal(got, want) {
			t.Errorf(
				"%s: %d frames, ffprobe %d; pts\n got %v\nwant %v",
				name,
				len(got),
				len(want),
				got[:min(8, len(got))],
				want[:min(8, len(want))],
			)
		}
		hidden := ix.NumSamples() - ix.NumFrames()
		t.Logf(
			"%-30s %3d frames, %d hidden, %d sync, %v",
			name,
			ix.NumFrames(),
			hidden,
			len(ix.syncSamples),
			ix.Entries()[0].Codec,
		)
	}
}

func encoderListed(t testing.TB, name string) bool {
	t.Helper()
	return strings.Contains(string(runTool(t, "ffmpeg", "-v", "error", "-encoders")), " "+name+" ")
}

func TestFragmentedIsRefusedByName(t *testing.T) {
	for _, flags := range []string{"frag_keyframe+empty_moov", "frag_keyframe", "dash"} {
		path := clip(
			t,
			"frag.mp4",
			"-c:v",
			"libx264",
			"-pix_fmt",
			"yuv420p",
			"-g",
			"30",
			"-movflags",
			flags,
		)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if ix, err := ReadIndex(t.Context(), &memory{data: b}, Limits{}); !errors.Is(err,
			robocache.ErrUnsupported) || !strings.Contains(err.Error(), "fragment") {
			t.Errorf("%s: %v %v", flags, ix != nil, err)
		}
	}
}

// TestRotationOfRealFile: ffmpeg 5.1 writes "rotate=90" as a matrix that it displays with
// transpose=cclock, 270 degrees clockwise.
func TestRotationOfRealFile(t *testing.T) {
	path := clip(t, "up.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p")
	turned := filepath.Join(t.TempDir(), "turned.mp4")
	runTool(
		t,
		"ffmpeg",
		"-v",
		"error",
		"-nostdin",
		"-i",
		path,
		"-c",
		"copy",
		"-metadata:s:v:0",
		"rotate=90",
		turned,
	)
	if got := indexOf(t, turned).Entries()[0].Rotation; got != 270 {
		t.Errorf("rotation %d, want 270", got)
	}
}

// TestFewReads: an index takes three reads if the moov is at the end, and one or two if it comes
// first (video.V2).
func TestFewReads(t *testing.T) {
	for _, flags := range []string{"+faststart", "+use_metadata_tags"} {
		path := clip(t, "reads.mp4", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", flags)
		m := readFile(t, path)
		if _, err := ReadIndex(t.Context(), m, Limits{}); err != nil {
			t.Fatal(err)
		}
		if m.reads.Load() > 3 || m.bytes.Load() > 40<<10 {
			t.Errorf(
				"%s: %d reads, %d bytes of %d",
				flags,
				m.reads.Load(),
				m.bytes.Load(),
				len(m.data),
			)
		}
	}
}
