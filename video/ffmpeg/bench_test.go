//go:build cgo

package ffmpeg

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/video"
)

// cpuTime returns the user and system time of the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchFile returns ROBOCACHE_BENCH_VIDEO, or else AV1 640×480 with a key frame every two frames,
// LeRobot's default.
func benchFile(b *testing.B) *video.File {
	path := os.Getenv("ROBOCACHE_BENCH_VIDEO")
	if path == "" {
		found, _ := filepath.Glob(
			filepath.Join(dataDir(b), "g1_v30_exact", "videos", "*", "*", "*.mp4"),
		)
		if len(found) == 0 {
			b.Skip("no g1_v30_exact")
		}
		path = found[0]
	}
	return acquire(b, path)
}

func report(b *testing.B, cpu time.Duration, frames int) {
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(frames), "cpu-ns/frame")
	b.ReportMetric(float64(frames)/cpu.Seconds(), "frames/cpu-s")
}

// BenchmarkSequentialRGB decodes the whole file in order. One operation is one frame.
func BenchmarkSequentialRGB(b *testing.B) {
	f := benchFile(b)
	p := newPool(b, 0)
	n := f.Index.NumFrames()
	groups := video.Plan(f.Index, upTo(n))
	spec := video.Spec{ChannelsFirst: true}
	var dst []byte
	done := 0
	deliver := func(_ int, pic video.Frame) error {
		if dst == nil {
			size, err := pic.Bytes(&spec)
			if err != nil {
				return err
			}
			dst = make([]byte, size)
		}
		done++
		return pic.Convert(&spec, dst)
	}
	// Opening a decoder does not count.
	if err := p.Decode(context.Background(), f, nil, groups[:1], deliver); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	done = 0
	cpu := cpuTime()
	for done < b.N {
		part := groups
		if left := b.N - done; left < n {
			part = video.Plan(f.Index, upTo(left))
		}
		if err := p.Decode(context.Background(), f, nil, part, deliver); err != nil {
			b.Fatal(err)
		}
	}
	report(b, cpuTime()-cpu, done)
}

// BenchmarkRandomFrame decodes single frames in random order.
func BenchmarkRandomFrame(b *testing.B) {
	f := benchFile(b)
	p := newPool(b, 0)
	n := f.Index.NumFrames()
	spec := video.Spec{ChannelsFirst: true}
	var dst []byte
	var planner video.Planner
	one := []int{0}
	deliver := func(_ int, pic video.Frame) error {
		if dst == nil {
			size, err := pic.Bytes(&spec)
			if err != nil {
				return err
			}
			dst = make([]byte, size)
		}
		return pic.Convert(&spec, dst)
	}
	r := newRand(3)
	step := func() {
		one[0] = r.IntN(n)
		for _, g := range planner.Plan(f.Index, one) {
			if err := p.Decode(context.Background(), f, nil, []video.Group{g}, deliver); err !=
				nil {
				b.Fatal(err)
			}
		}
	}
	for range 4 {
		step()
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	for range b.N {
		step()
	}
	report(b, cpuTime()-cpu, b.N)
}
