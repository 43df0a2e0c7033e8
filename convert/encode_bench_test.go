package convert_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// cpuSeconds returns the user and system time of this process and of its finished children.
func cpuSeconds() float64 {
	total := 0.0
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			total += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return total
}

// BenchmarkToVideo converts RLDS and MCAP with JPEG images to LeRobot in AV1. It compares this with
// a lower bound: only the encoder, with one process per core, reading the same pixels from raw
// files, without GOP joining, statistics and rows. Metrics are the wall and CPU seconds of both,
// and their ratio.
//
// go test ./convert -run - -bench ToVideo -benchtime 1x
func BenchmarkToVideo(b *testing.B) {
	if err := video.CanEncode(b.Context(),
		video.EncodeConfig{Width: 256, Height: 256, Rate: robocache.Rate{Num: 30, Den: 1}}); err !=
		nil {
		b.Skip(err)
	}
	set := synth.Options{
		Episodes: 16,
		Seconds:  4,
		Spread:   0.5,
		Width:    256,
		Height:   256,
		Cameras:  2,
		Codec:    "jpeg",
	}
	made := synthetic(b, set)
	for _, format := range []string{"rlds", "mcap"} {
		b.Run(format, func(b *testing.B) {
			from := filepath.Join(b.TempDir(), "src."+format)
			if _, err := Write(b.Context(), made, format, from, Options{}, nil); err != nil {
				b.Skip(err)
			}
			src, err := robocache.Open(b.Context(), from)
			if err != nil {
				b.Fatal(err)
			}
			defer src.Close()
			raw := rawImages(b, src)
			var wall, cpu, floorWall, floorCPU float64
			for b.Loop() {
				w, c := measured(func() { encodeAlone(b, raw) })
				floorWall, floorCPU = floorWall+w, floorCPU+c
				w, c = measured(func() {
					_, err := ToLeRobot(b.Context(), src, filepath.Join(b.TempDir(), "out"),
						Options{FPS: src.Info().FPS})
					if err != nil {
						b.Fatal(err)
					}
				})
				wall, cpu = wall+w, cpu+c
			}
			n := float64(b.N)
			b.ReportMetric(wall/n, "wall-s")
			b.ReportMetric(cpu/n, "cpu-s")
			b.ReportMetric(floorWall/n, "floor-wall-s")
			b.ReportMetric(floorCPU/n, "floor-cpu-s")
			b.ReportMetric(100*floorWall/wall, "%floor-wall")
			b.ReportMetric(100*floorCPU/cpu, "%floor-cpu")
		})
	}
}

func measured(f func()) (wall, cpu float64) {
	begin, c := time.Now(), cpuSeconds()
	f()
	return time.Since(begin).Seconds(), cpuSeconds() - c
}

// rawImages writes the pixels of each camera to raw files, one for each encoder of a conversion.
func rawImages(b *testing.B, src robocache.Dataset) (files []string) {
	total, rows := 0, 0
	for e := range src.Info().Episodes {
		total += src.Len(e)
	}
	var groups [][]int // the groups that a conversion forms
	for e := range src.Info().Episodes {
		n := src.Len(e)
		if k := len(groups); k > 0 && rows+n <= min(4096, max(total/8, 1024)) {
			groups[k-1], rows = append(groups[k-1], e), rows+n
			continue
		}
		groups, rows = append(groups, []int{e}), n
	}
	for g, group := range groups {
		for i, f := range src.Info().Features {
			if f.Kind != robocache.KindImage {
				continue
			}
			name := filepath.Join(b.TempDir(), fmt.Sprintf("%d-%d.rgb", g, i))
			out, err := os.Create(name)
			if err != nil {
				b.Fatal(err)
			}
			var buf []byte
			for _, e := range group {
				refs := make([]robocache.FrameRef, src.Len(e))
				if err := src.Frames(b.Context(), f.Key, rowsOf(e, len(refs)), refs); err != nil {
					b.Fatal(err)
				}
				for k := range refs {
					if buf, err = stats.Still(&refs[k], &video.Spec{Pixel: video.RGB8}, buf); err !=
						nil {
						b.Fatal(err)
					}
					if _, err := out.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := out.Close(); err != nil {
				b.Fatal(err)
			}
			files = append(files, name)
		}
	}
	return files
}

// encodeAlone runs ffmpeg on the raw files with the options of video.Encoder.
func encodeAlone(b *testing.B, files []string) {
	var wg sync.WaitGroup
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, f := range files {
		wg.Go(func() {
			cores <- struct{}{}
			defer func() { <-cores }()
			cmd := exec.CommandContext(
				b.Context(),
				"ffmpeg",
				"-hide_banner",
				"-nostdin",
				"-loglevel",
				"error",
				"-y",
				"-f",
				"rawvideo",
				"-pix_fmt",
				"rgb24",
				"-video_size",
				"256x256",
				"-framerate",
				"30",
				"-i",
				f,
				"-c:v",
				"libsvtav1",
				"-pix_fmt",
				"yuv420p",
				"-g",
				"2",
				"-preset",
				"12",
				"-crf",
				"30",
				"-svtav1-params",
				"fast-decode=0",
				"-fflags",
				"+bitexact",
				"-flags:v",
				"+bitexact",
				"-movflags",
				"+faststart",
				"-use_editlist",
				"0",
				"-f",
				"mp4",
				f+".mp4",
			)
			cmd.Env = append(os.Environ(), "SVT_LOG=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
}
