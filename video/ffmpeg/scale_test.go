//go:build cgo

package ffmpeg

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/video"
)

// ffmpeg.F1 for scaled frames: the scaler is bit-identical to swscale, up and down. The test logs
// for how many shapes the scaler is used.
func TestScalerEqualsSwscale(t *testing.T) {
	sizes := [][2]int{
		{640, 480},
		{320, 240},
		{160, 120},
		{848, 480},
		{1280, 720},
		{256, 256},
		{100, 84},
		{97, 61},
		{322, 183},
		{35, 9},
		{20, 20},
	}
	targets := [][2]int{
		{224, 224},
		{96, 96},
		{84, 84},
		{320, 240},
		{256, 192},
		{640, 480},
		{518, 378},
		{30, 22},
		{17, 40},
		{16, 16},
		{18, 400},
		{224, 480},
		{640, 224},
		{1000, 30},
	}
	if testing.Short() {
		sizes = sizes[:4]
	}
	ours, all := 0, 0
	for i, from := range sizes {
		for k, to := range targets {
			if from == to && runtime.GOARCH != "amd64" {
				continue // tested by TestKernelEqualsSwscale
			}
			format := []string{"yuv420p", "yuvj420p", "yuv422p", "yuv420p", "yuvj422p"}[(i+k)%5]
			d := synthetic(
				from[0],
				from[1],
				format,
				[]int{1, 2, 5, 9}[k%4],
				k%3 == 0,
				uint32(i*50+k),
			)
			spec := video.Spec{Width: to[0], Height: to[1], ChannelsFirst: k%2 == 0}
			if k%5 == 4 {
				spec.Pixel = video.RGBFloat32
			}
			for _, extreme := range []bool{false, true} {
				if extreme {
					stretch(d)
				}
				d.frame.swscale = true
				want := convert(t, d, spec)
				d.frame.swscale = false
				if !bytes.Equal(convert(t, d, spec), want) {
					t.Errorf("%s %v → %v (%+v): not equal to swscale", format, from, to, spec)
				}
			}
			all++
			if hasScaler(d) {
				ours++
			} else if testing.Verbose() {
				t.Log("swscale:", format, from, to)
			}
			d.Close()
		}
	}
	t.Logf("%d of %d shapes go through our own scaler", ours, all)
	if d := synthetic(640, 480, "yuv420p", 5, false, 1); true {
		convert(t, d, video.Spec{Width: 224, Height: 224})
		if !hasScaler(d) {
			t.Log(
				"640×480 → 224×224 uses swscale: no AVX2, or swscale has another arithmetic",
			)
		}
		d.Close()
	}
}

// BenchmarkScale scales frame by frame with both in turn, and reports medians of CPU time.
func BenchmarkScale(b *testing.B) {
	for _, size := range [][4]int{
		{640, 480, 224, 224},
		{640, 480, 96, 96},
		{1280, 720, 224, 224},
		{320, 240, 224, 224},
		{256, 256, 224, 224},
		{640, 480, 320, 240},
	} {
		b.Run(fmt.Sprintf("%d×%d→%d×%d", size[0], size[1], size[2], size[3]), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			d := synthetic(size[0], size[1], "yuv420p", 5, false, 1)
			defer d.Close()
			spec := video.Spec{ChannelsFirst: true, Width: size[2], Height: size[3]}
			dst := convert(b, d, spec)
			var times [2][]time.Duration
			for b.Loop() {
				for k := range times {
					d.frame.swscale = k == 1
					begin := threadTime()
					if err := d.frame.Convert(&spec, dst); err != nil {
						b.Fatal(err)
					}
					times[k] = append(times[k], threadTime()-begin)
				}
			}
			for k, name := range []string{"ours-µs", "swscale-µs"} {
				slices.Sort(times[k])
				b.ReportMetric(float64(times[k][len(times[k])/2].Nanoseconds())/1000, name)
			}
		})
	}
}
