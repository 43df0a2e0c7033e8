//go:build cgo

package ffmpeg

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// elementary creates an elementary stream with the ffmpeg program, and splits it into packets at
// its access unit delimiters.
func elementary(t *testing.T, codec video.Codec, args string) (path string, packets [][]byte) {
	t.Helper()
	needFFmpeg(t)
	ext, filter, aud := "h264", "h264_metadata=aud=insert", []byte{0, 0, 0, 1, 9}
	if codec == video.HEVC {
		ext, filter, aud = "hevc", "hevc_metadata=aud=insert", []byte{0, 0, 0, 1, 70}
	}
	words := strings.Fields(args)
	if !strings.Contains(encoders(), " "+words[1]+" ") {
		t.Skipf("this ffmpeg has no %s", words[1])
	}
	path = filepath.Join(t.TempDir(), "stream."+ext)
	ffmpegCLI(
		t,
		append(
			append(
				[]string{
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
				words...),
			"-bsf:v",
			filter,
			path,
		)...)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		n := bytes.Index(b[1:], aud) + 1
		if n == 0 {
			n = len(b)
		}
		packets = append(packets, b[:n])
		b = b[n:]
	}
	if len(packets) != 48 {
		t.Fatalf("%d packets", len(packets))
	}
	return path, packets
}

// bare removes the parameter sets from a packet.
func bare(codec video.Codec, packet []byte) (out []byte) {
	for _, nal := range bytes.Split(packet, []byte{0, 0, 1})[1:] {
		nal = bytes.TrimRight(nal, "\x00")
		if kind := nal[0]; codec == video.H264 && (kind&31 == 7 || kind&31 == 8) ||
			codec == video.HEVC && kind>>1&63 >= 32 && kind>>1&63 <= 34 {
			continue
		}
		out = append(append(out, 0, 0, 1), nal...)
	}
	return out
}

// film returns a virtual mp4 of packets, and the frame number of each packet.
func film(
	t *testing.T,
	codec video.Codec,
	packets [][]byte,
) (*video.VirtualMP4, []int, *video.Stream) {
	t.Helper()
	s, err := video.NewStream(codec, video.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	numbers := make([]int, len(packets))
	for i, p := range packets {
		if p == nil {
			s.Lost()
			numbers[i] = -1
			continue
		}
		if numbers[i], err = s.Add(p); err != nil {
			t.Fatal(i, err)
		}
	}
	f, err := s.MP4(robocache.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f, numbers, s
}

// write writes a virtual mp4 to a file, read in pieces of a given size.
func write(t *testing.T, f *video.VirtualMP4, packets [][]byte, numbers []int, piece int) string {
	t.Helper()
	var of []int
	for i, k := range numbers {
		if k >= 0 {
			of = append(of, i)
		}
	}
	b := make([]byte, f.Size())
	for at := 0; at < len(b); at += piece {
		err := f.ReadAt(
			b[at:min(at+piece, len(b))],
			int64(at),
			func(first, last int, yield func(int, []byte) error) error {
				for k := first; k <= last; k++ {
					if err := yield(k, packets[of[k]]); err != nil {
						return err
					}
				}
				return nil
			},
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "film.mp4")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// video.V14: a virtual mp4 gives the frames that libavcodec gives for the stream, bit for bit and
// in any order. Other readers accept it as a file.
func TestMP4(t *testing.T) {
	for _, c := range []struct {
		name, args string
		codec      video.Codec
	}{
		{"h264", "-c:v libx264 -g 12 -bf 0", video.H264},
		{
			"h264, zero latency, several slices",
			"-c:v libx264 -g 250 -tune zerolatency -x264-params slices=4",
			video.H264,
		},
		{"h264, baseline, every frame a key", "-c:v libx264 -profile:v baseline -g 1", video.H264},
		{
			"hevc",
			"-c:v libx265 -x265-params keyint=12:bframes=0:repeat-headers=1" + x265Quiet,
			video.HEVC,
		},
		{"h264, parameter sets once", "-c:v libx264 -g 12 -bf 0", video.H264},
		{
			"hevc, parameter sets once",
			"-c:v libx265 -x265-params keyint=12:bframes=0:repeat-headers=1" + x265Quiet,
			video.HEVC,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path, packets := elementary(t, c.codec, c.args)
			want := fileSums(t, path)
			if strings.HasSuffix(c.name, "once") {
				for i := range packets[1:] {
					packets[i+1] = bare(c.codec, packets[i+1])
				}
			}
			f, numbers, s := film(t, c.codec, packets)
			if w, h := s.Size(); w != 162 || h != 122 {
				t.Fatalf("frames of %d×%d", w, h)
			}
			for i, k := range numbers {
				if k != i {
					t.Fatalf("packet %d is frame %d", i, k)
				}
			}
			for _, piece := range []int{1 << 20, 777} {
				mp4 := write(t, f, packets, numbers, piece)
				checkSums(t, mp4, want, 12, 8)
				if got := fileSums(t, mp4); strings.Join(got, " ") != strings.Join(want, " ") {
					t.Error("ffmpeg decodes other frames of the film than of the stream")
				}
			}
		})
	}
}

// video.V14: frames before the first key frame and after a missing packet are in no virtual mp4,
// even if the caller does not report the loss.
func TestMP4Gaps(t *testing.T) {
	for _, codec := range []video.Codec{video.H264, video.HEVC} {
		args := "-c:v libx264 -g 12 -bf 0"
		if codec == video.HEVC {
			args = "-c:v libx265 -x265-params " +
				"keyint=12:min-keyint=12:scenecut=0:bframes=0:repeat-headers=1" + x265Quiet
		}
		path, packets := elementary(t, codec, args)
		want := fileSums(t, path)
		for _, silent := range []bool{false, true} {
			if silent && codec == video.HEVC {
				continue // its frames carry no number that shows a loss
			}
			cut := append([][]byte(nil), packets...)
			for i := range 5 {
				cut[i] = nil
			}
			cut[29] = nil
			if silent {
				cut = append(cut[:29:29], cut[30:]...)[5:]
			}
			f, numbers, s := film(t, codec, cut)
			early, lost := s.Absent()
			if early != 7 || lost != 6 || f.Frames() != 48-5-1-7-6 {
				t.Fatalf(
					"%s: %d before the first key frame, %d behind the gap, %d frames",
					codec,
					early,
					lost,
					f.Frames(),
				)
			}
			var sums []string
			shift := 0
			for i, k := range numbers {
				if silent {
					shift = 5
					if i >= 24 {
						shift = 6
					}
				}
				if k >= 0 {
					sums = append(sums, want[i+shift])
				}
			}
			checkSums(t, write(t, f, cut, numbers, 1<<20), sums, 8, 6)
		}
	}
}

// video.V14: streams that the schemas of video messages exclude are rejected by name.
func TestMP4Refuses(t *testing.T) {
	refuse := func(codec video.Codec, packets [][]byte, what string) {
		t.Helper()
		s, err := video.NewStream(codec, video.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packets {
			if _, err = s.Add(p); err != nil {
				break
			}
		}
		if err == nil {
			_, err = s.MP4(robocache.Rate{Num: 30, Den: 1})
		}
		if !errors.Is(err, robocache.ErrUnsupported) && !errors.Is(err, robocache.ErrMalformed) ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("expected %q, found %v", what, err)
		}
	}
	_, packets := elementary(t, video.H264, "-c:v libx264 -g 24 -bf 3")
	refuse(video.H264, packets, "B frames")
	_, plain := elementary(t, video.H264, "-c:v libx264 -g 12 -bf 0")
	refuse(
		video.H264,
		[][]byte{append(append([]byte{}, plain[0]...), plain[1]...)},
		"several frames",
	)
	refuse(video.H264, plain[1:12], "no key frame")
	refuse(video.H264, [][]byte{plain[0][4:]}, "Annex B")
	_, hevc := elementary(t, video.HEVC, "-c:v libx265 -x265-params keyint=12"+x265Quiet)
	refuse(video.HEVC, hevc, "B frames")
	if _, err := video.NewStream(video.MPEG4, video.Limits{}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
}
